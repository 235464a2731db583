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

#[cfg(test)]
pub(super) mod testing {
    use crate::provider::{Arrival, Fate};

    /// An arrival that was answered at once.
    pub(crate) fn arrival(at_ms: u64, status: u16) -> Arrival {
        let at_ns = at_ms * super::NS_PER_MS;
        Arrival {
            n: at_ms,
            at_ns,
            wall_ms: 0,
            connection: 1,
            client_port: 1,
            version: "HTTP/1.1",
            stream: None,
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: Vec::new(),
            trailers: Vec::new(),
            credential: "drill".to_owned(),
            route: None,
            idempotency_key: None,
            body_bytes: 0,
            body_sha256: String::new(),
            body: None,
            body_complete: true,
            refused_by_limit: false,
            limit: None,
            effect: None,
            status: Some(status),
            head_written_at_ns: Some(at_ns),
            finished_at_ns: Some(at_ns),
            peer_closed_at_ns: None,
            fate: Fate::Answered,
        }
    }
}
