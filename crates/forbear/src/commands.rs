//! One module a command.

pub mod action;
pub mod actions;
pub mod config;
pub mod demo;
pub mod drill;
pub mod lab;
pub mod own;
pub mod scopes;
pub mod serve;
mod server;
pub mod task;
