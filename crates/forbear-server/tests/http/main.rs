//! The gateway's plumbing over real sockets, around the pass-through example.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[path = "../../examples/passthrough/proxy.rs"]
mod proxy;

mod ends;
mod exact;
mod http2;
mod refused;
mod rig;
mod sending;
mod stale;
mod warm;
