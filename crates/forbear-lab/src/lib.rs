//! What breaks on purpose: a fake provider that misbehaves on request and measures what it is sent, the drill and the
//! demo over it, the simulator of the core, and the peers of the benches.

pub mod bench;
pub mod demo;
pub mod drill;
pub mod provider;
pub mod sim;
