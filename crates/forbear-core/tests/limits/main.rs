//! Faults reported elsewhere, of limits that are misread and boundaries that do not hold, where the waits are long or the
//! runs many: the core under a clock that jumps. Their shorter halves run over real sockets in forbear-server's
//! `faults_limits`.

mod boundaries;
mod resets;
mod world;
