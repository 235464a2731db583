//! Faults reported elsewhere, of limits that are misread and boundaries that do not hold, where the waits are long or the
//! runs many: the core under a clock that jumps. Their shorter halves run over real sockets in forbear-server's
//! `faults_limits`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod below;
mod bodies;
mod boundaries;
mod resets;
mod world;
