//! What breaks on purpose: a fake provider that misbehaves on request and measures what it is sent, and the peers of the
//! benches.

pub mod bench;
pub mod provider;
