//! The HTTP plumbing of the gateway, without any deciding: bytes in, bytes out, and what the transport proves.
//!
//! ```text
//! agent ── serve ── guard ──> target, headers, body ──> (the driver decides) ──> upstream ── pool ── dial ── provider
//! agent <── serve ────────── relay <──────────────────────────────────────────── answer <──┘
//! ```
//!
//! It promises that what `http::Uri` and the header map can carry arrives unchanged, that a request whose framing two
//! parsers could read differently never gets past the listener, and that evidence is never better than what was seen.
//! It refuses to retry, to follow redirects, to decode bodies and to know what a status means.

mod ahead;
pub mod answer;
mod attentive;
pub mod begun;
pub mod body;
mod counted;
pub mod dial;
mod ends;
mod framing;
pub mod guard;
pub mod headers;
mod http1;
mod http2;
mod incoming;
mod inward;
pub mod origin;
pub mod pipe;
pub mod pool;
pub mod relay;
mod room;
pub mod serve;
pub mod socket;
pub mod target;
mod told;
pub mod upstream;
pub mod warm;
