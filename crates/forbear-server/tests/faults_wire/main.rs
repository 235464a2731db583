//! Faults that were reported of other proxies, on the wire and through the whole gateway: streams, bodies, redirects,
//! encodings, and what a proxy may change. Each test is named after its case.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[path = "../governing/rig.rs"]
#[expect(dead_code, reason = "shared with the tests that restart and measure gaps")]
mod rig;

mod agent;

mod bodies;
mod exact;
mod expectations;
mod framing;
mod loops;
mod redirects;
mod semantics;
mod streams;
mod streams_ends;
mod streams_errors;
