//! One function a target: bytes in, a panic where something that must hold does not. They promise to hold for every input, so
//! that a file that breaks one is a fault of ours, or of the promise.

mod config;
mod durations;
mod event_stream;
mod fields;
mod guard;
mod held;
mod lenient;
mod recorded;
mod response;
mod retry_after;
mod routes;
mod structured;

use forbear_core::time::{Mono, Now, Wall};

/// A target's name and what it checks.
pub(crate) type Target = (&'static str, fn(&[u8]));

pub(crate) const TARGETS: &[Target] = &[
    ("config", config::check),
    ("durations", durations::check),
    ("event_stream", event_stream::check),
    ("guard", guard::check),
    ("idempotency_key", fields::idempotency_key),
    ("prefer", fields::prefer),
    ("response", response::check),
    ("response_body", response::check_body),
    ("retry_after", retry_after::check),
    ("routes", routes::check),
    ("structured", structured::check),
    ("traceparent", fields::traceparent),
];

/// When every answer comes: Sun, 06 Nov 1994 08:49:07 GMT.
const NOW: Now = Now { mono: Mono(1), wall: Wall(784_111_747_000) };
