//! Driver, gateway and control API.

pub mod http;
