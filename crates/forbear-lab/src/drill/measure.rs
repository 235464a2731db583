//! Measures over the fake provider's log: pure, in the provider's own time.

use crate::provider::Arrival;

pub(super) const NS_PER_MS: u64 = 1_000_000;

/// When the first answer with this status had its head written.
pub(super) fn first_head_ns(arrivals: &[Arrival], status: u16) -> Option<u64> {
    arrivals.iter().filter(|a| a.status == Some(status)).filter_map(|a| a.head_written_at_ns).min()
}

/// Milliseconds from an instant to the first arrival after it.
pub(super) fn quiet_ms(arrivals: &[Arrival], from_ns: u64) -> Option<u64> {
    let next = arrivals.iter().map(|a| a.at_ns).filter(|at| *at > from_ns).min()?;
    Some((next - from_ns) / NS_PER_MS)
}

/// The least time between two arrivals after an instant, in milliseconds.
pub(super) fn least_gap_ms(arrivals: &[Arrival], from_ns: u64) -> Option<u64> {
    let mut times: Vec<u64> = arrivals.iter().map(|a| a.at_ns).filter(|at| *at > from_ns).collect();
    times.sort_unstable();
    times.windows(2).map(|pair| (pair[1] - pair[0]) / NS_PER_MS).min()
}

/// The different idempotency keys that came, those without a key as `none`.
pub(super) fn keys(arrivals: &[Arrival]) -> Vec<&str> {
    let mut keys: Vec<&str> = arrivals.iter().map(|a| a.header("idempotency-key").unwrap_or("none")).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
