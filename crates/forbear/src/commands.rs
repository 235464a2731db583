//! One module a command.

pub(crate) mod action;
pub(crate) mod actions;
pub(crate) mod cancel;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod drill;
pub(crate) mod explain;
pub(crate) mod lab;
pub(crate) mod live;
pub(crate) mod own;
pub(crate) mod providers;
pub(crate) mod report;
pub(crate) mod routes;
pub(crate) mod scopes;
pub(crate) mod serve;
mod server;
