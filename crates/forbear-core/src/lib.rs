//! The decisions of Forbear: a pure state machine. `now` is passed in, commands are handed back; nothing here can read
//! a clock, a socket, a file or a random source.

pub mod classify;
pub mod contract;
pub mod effect;
pub mod event;
pub mod idempotency_key;
pub mod ids;
pub mod policy;
pub mod prefer;
pub mod retry_marker;
pub mod time;
pub mod traceparent;
