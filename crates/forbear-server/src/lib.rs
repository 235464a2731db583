//! Driver, gateway and control API: what connects the decisions of the core to sockets, clocks and files.

pub mod clock;
pub mod config;
pub mod control;
pub mod gateway;
pub mod http;
pub mod journal;
pub mod keys;
mod mailbox;
pub mod outside;
pub mod reload;
pub mod serve;
pub mod shard;
mod surface;
