//! Faults reported elsewhere, of limits that are misread and boundaries that do not hold, over real sockets and counted
//! at the provider. Where waits are long or runs many, the other half is in forbear-core's tests, `limits`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[allow(dead_code, reason = "shared with other suites, which use other parts of it")]
#[path = "../governing/rig.rs"]
mod rig;

mod accounts;
mod answers;
mod boundaries;
mod breakers;
mod closing;
mod codes;
mod lanes;
mod leaving;
mod pacing;
mod resets;
mod retry_after;
mod slots;
mod told;
