//! Rounds: every peer once, in turn, and again. Figures are medians over rounds, ratios are medians of the ratios
//! within one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::load::{self, Call, Span, Target, Window};
use super::origin::{EVENT, EVENTS, JSON, JSON_PATH, KEYED_PATH, STREAM_PATH, WRITE_PATH};
use super::peer::{DIRECT, HYPER, Peer};
use super::{BenchError, Pace};

#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub path: &'static str,
    pub call: Call,
    pub body_bytes: usize,
    pub connections: usize,
}

pub const READS_1: &str = "json, 1 connection";
pub const READS_32: &str = "json, 32 connections";
pub const READS_64: &str = "json, 64 connections";
pub const STREAMS: &str = "streams of 200 events, 8 connections";
pub const WRITES_1: &str = "writes without a key, 1 connection";
pub const WRITES_64: &str = "writes without a key, 64 connections";
pub const KEYED_1: &str = "writes with a key, 1 connection";
pub const KEYED_64: &str = "writes with a key, 64 connections";

const fn json(name: &'static str, path: &'static str, call: Call, connections: usize) -> Case {
    Case { name, path, call, body_bytes: JSON.len(), connections }
}

pub const CASES: &[Case] = &[
    json(READS_1, JSON_PATH, Call::Read, 1),
    json(READS_32, JSON_PATH, Call::Read, 32),
    json(READS_64, JSON_PATH, Call::Read, 64),
    json("json, 256 connections", JSON_PATH, Call::Read, 256),
    Case { name: STREAMS, path: STREAM_PATH, call: Call::Read, body_bytes: EVENT.len() * EVENTS, connections: 8 },
    json(WRITES_1, WRITE_PATH, Call::Write, 1),
    json(WRITES_64, WRITE_PATH, Call::Write, 64),
    json(KEYED_1, KEYED_PATH, Call::KeyedWrite, 1),
    json(KEYED_64, KEYED_PATH, Call::KeyedWrite, 64),
];

/// One peer in one round. Times in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    pub requests_per_second: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub cpu_ns_per_request: Option<u64>,
}

#[derive(Debug)]
pub struct PeerResult {
    pub peer: &'static str,
    pub errors: u64,
    pub first_error: Option<String>,
    /// One a round, in order.
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct CaseResult {
    pub name: &'static str,
    pub connections: usize,
    pub peers: Vec<PeerResult>,
}

pub(super) async fn measure(case: &Case, peers: &[Peer], pace: Pace) -> Result<CaseResult, BenchError> {
    let empty = |peer: &Peer| PeerResult { peer: peer.name, errors: 0, first_error: None, samples: Vec::new() };
    let mut results: Vec<PeerResult> = peers.iter().map(empty).collect();
    for _ in 0..pace.rounds {
        for (peer, result) in peers.iter().zip(&mut results) {
            let (window, sample) = one_window(case, peer, pace).await;
            result.errors += window.errors;
            result.first_error = result.first_error.take().or(window.first_error);
            result.samples.push(sample);
        }
    }
    Ok(CaseResult { name: case.name, connections: case.connections, peers: results })
}

async fn one_window(case: &Case, peer: &Peer, pace: Pace) -> (Window, Sample) {
    let target = target(case, peer.address, peer.prefix);
    let start = Instant::now() + pace.warm_up;
    let span = Span { start, end: start + pace.measured };
    let cpu = async {
        tokio::time::sleep_until(span.start.into()).await;
        let before = peer.cpu_ns();
        tokio::time::sleep_until(span.end.into()).await;
        Some(peer.cpu_ns()? - before?)
    };
    let (window, cpu_ns) = tokio::join!(load::run(&target, case.connections, span), cpu);
    let sample = sample(&window, cpu_ns, pace.measured);
    (window, sample)
}

fn target(case: &Case, address: SocketAddr, prefix: &str) -> Target {
    Target { address, path: format!("{prefix}{}", case.path), call: case.call, body_bytes: case.body_bytes }
}

fn sample(window: &Window, cpu_ns: Option<u64>, measured: Duration) -> Sample {
    let count = window.latencies.count();
    let measured_ms = u64::try_from(measured.as_millis()).unwrap_or(u64::MAX).max(1);
    Sample {
        requests_per_second: count * 1_000 / measured_ms,
        p50_ns: window.latencies.per_mille_ns(500),
        p90_ns: window.latencies.per_mille_ns(900),
        p99_ns: window.latencies.per_mille_ns(990),
        cpu_ns_per_request: cpu_ns.and_then(|cpu_ns| cpu_ns.checked_div(count)),
    }
}

/// A peer beside the proxy without logic, in hundredths: 70 throughput is 70 % of its throughput.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ratios {
    pub throughput: Option<u64>,
    pub cpu: Option<u64>,
    /// Of what each adds to the p50 of a direct call.
    pub added_p50: Option<u64>,
    /// Of the throughput without any proxy.
    pub throughput_of_direct: Option<u64>,
}

impl CaseResult {
    fn samples(&self, peer: &str) -> &[Sample] {
        self.peers.iter().find(|result| result.peer == peer).map_or(&[], |result| &result.samples)
    }

    #[must_use]
    pub fn ratios(&self, result: &PeerResult) -> Ratios {
        let (direct, hyper) = (self.samples(DIRECT), self.samples(HYPER));
        let rounds = result.samples.iter().zip(direct).zip(hyper);
        let of_rounds = |ratio: fn(&Sample, &Sample, &Sample) -> Option<u64>| {
            median(rounds.clone().filter_map(|((mine, direct), hyper)| ratio(mine, direct, hyper)).collect())
        };
        Ratios {
            throughput: of_rounds(|mine, _, hyper| hundredths(mine.requests_per_second, hyper.requests_per_second)),
            cpu: of_rounds(|mine, _, hyper| hundredths(mine.cpu_ns_per_request?, hyper.cpu_ns_per_request?)),
            added_p50: of_rounds(|mine, direct, hyper| {
                let added = |sample: &Sample| sample.p50_ns.checked_sub(direct.p50_ns);
                hundredths(added(mine)?, added(hyper)?)
            }),
            throughput_of_direct: of_rounds(|mine, direct, _| {
                hundredths(mine.requests_per_second, direct.requests_per_second)
            }),
        }
    }
}

impl PeerResult {
    /// Each figure's own median over the rounds.
    #[must_use]
    pub fn median(&self) -> Sample {
        let of = |figure: fn(&Sample) -> Option<u64>| median(self.samples.iter().filter_map(figure).collect());
        Sample {
            requests_per_second: of(|sample| Some(sample.requests_per_second)).unwrap_or_default(),
            p50_ns: of(|sample| Some(sample.p50_ns)).unwrap_or_default(),
            p90_ns: of(|sample| Some(sample.p90_ns)).unwrap_or_default(),
            p99_ns: of(|sample| Some(sample.p99_ns)).unwrap_or_default(),
            cpu_ns_per_request: of(|sample| sample.cpu_ns_per_request),
        }
    }
}

fn hundredths(of: u64, to: u64) -> Option<u64> {
    (of * 100).checked_div(to)
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{CaseResult, PeerResult, Ratios, Sample, median, target};
    use crate::bench::rounds::CASES;

    fn result(peer: &'static str, samples: &[(u64, u64, Option<u64>)]) -> PeerResult {
        let sample = |(requests_per_second, p50_ns, cpu_ns_per_request): &(u64, u64, Option<u64>)| Sample {
            requests_per_second: *requests_per_second,
            p50_ns: *p50_ns,
            cpu_ns_per_request: *cpu_ns_per_request,
            ..Sample::default()
        };
        PeerResult { peer, errors: 0, first_error: None, samples: samples.iter().map(sample).collect() }
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // The machine halves its speed in the last round; the peer stays at 80 % of the proxy in each.
        let case = CaseResult {
            name: "x",
            connections: 1,
            peers: vec![
                result("direct", &[(2_000, 10, None), (2_000, 10, None), (1_000, 20, None)]),
                result("hyper", &[(1_000, 20, Some(50)), (1_000, 20, Some(50)), (500, 40, Some(100))]),
                result("forbear", &[(800, 25, Some(75)), (800, 25, Some(75)), (400, 50, Some(150))]),
            ],
        };
        let expected =
            Ratios { throughput: Some(80), cpu: Some(150), added_p50: Some(150), throughput_of_direct: Some(40) };
        assert_eq!(case.ratios(&case.peers[2]), expected);
        assert_eq!(case.ratios(&case.peers[0]).cpu, None);
        assert_eq!(case.peers[2].median().requests_per_second, 800);
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9, 1, 5]), Some(5));
    }

    #[test]
    fn the_peer_s_prefix_comes_before_the_path() {
        assert_eq!(target(&CASES[0], "127.0.0.1:1".parse().unwrap(), "/bench").path, "/bench/json");
    }
}
