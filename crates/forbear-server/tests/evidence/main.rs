//! What the wire proves: one row a fault, played by a peer that writes bytes by hand, through the whole gateway.
//!
//! Each row is called as a read, as an uncertain write and as a write whose key the provider honours. What is asserted is what
//! the journal says of it (evidence of every attempt, effect, outcome), what the agent is told, that every attempt but the first was
//! charged, and what came in at the peer: connections, heads, whole bodies. No attempt that was not announced is ever seen.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[path = "../governing/rig.rs"]
#[expect(dead_code, reason = "shared with the suites that use the lab's provider")]
mod rig;

#[path = "../faults_wire/agent.rs"]
#[expect(dead_code, reason = "shared with the suites that speak HTTP/2 as an agent")]
mod agent;

mod frames;
mod http1;
mod http2;
mod leaver;
mod leaving;
mod peer;
mod reuse;
mod room;
mod stopping;
mod table;
mod tls;
