//! Driver, gateway and control API: what connects the decisions of the core to sockets, clocks and files.

pub mod config;
pub mod control;
