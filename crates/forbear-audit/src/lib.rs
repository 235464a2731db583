//! What can be proven of the log without trusting who kept it: the hash chain over its entries and the sealing of
//! contents.
//!
//! This crate works on bytes. It imports nothing of Forbear's, reads no clock and no file, and draws no randomness, so
//! that an auditor can read it alone and check a log with it alone.

pub mod chain;
pub mod seal;
