//! Faults reported elsewhere, of writes that were done twice, of keys that did not keep them from it, and of layers whose
//! retries multiply, over real sockets and counted at the provider. Each test is named after its case.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[allow(dead_code, reason = "shared with other suites, which use other parts of it")]
#[path = "../governing/rig.rs"]
mod rig;

mod duplicates;
mod keys;
mod layers;
