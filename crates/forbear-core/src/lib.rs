//! The decisions of Forbear: a pure state machine. `now` is passed in, commands are handed back; nothing here can read
//! a clock, a socket, a file or a random source.

pub mod action;
pub mod advice;
pub mod backoff;
pub mod breaker;
mod canonical;
pub mod classify;
pub mod command;
mod consistency;
pub mod contract;
pub mod coordinator;
pub mod durable;
pub mod effect;
pub mod event;
pub mod fingerprint;
pub mod gate;
pub mod home;
pub mod idempotency_key;
pub mod identity;
pub mod ids;
pub mod input;
pub mod json_member;
pub mod lane;
pub mod line;
pub mod lookup;
pub mod marked;
pub mod pacer;
pub mod policy;
pub mod prefer;
mod recover;
pub mod register;
pub mod retry_marker;
pub mod route;
pub mod time;
pub mod traceparent;
pub mod view;

pub use coordinator::{Coordinator, WakeReason};
