//! The built program, as a shell sees it: what it prints where, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first thing that is not as it says")]

mod commands;
mod refusals;
mod rehearsals;
mod rig;
mod stops;
