//! The marks that Forbear holds itself to, each judged from figures of one run.

use super::peer::{FORBEAR, HYPER};
use super::rounds::{self, CaseResult, PeerResult, Ratios, Sample};

/// Per cent of the proxy's.
const THROUGHPUT_MIN: u64 = 70;
const CPU_MAX: u64 = 160;
const ADDED_P50_MAX: u64 = 160;
/// Per cent of the reads' throughput at as many callers.
const WRITES_MIN: u64 = 50;
/// Hundredths of a flush that a write may take longer than a read.
const FLUSHES_MAX: u64 = 150;

/// One mark beside what was measured, both in the same unit; nothing where a peer was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub what: String,
    pub unit: &'static str,
    pub bound: Bound,
    pub measured: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    AtLeast(u64),
    AtMost(u64),
}

impl Mark {
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.measured, self.bound) {
            (None, _) => "absent",
            (Some(measured), Bound::AtLeast(least)) if measured >= least => "held",
            (Some(measured), Bound::AtMost(most)) if measured <= most => "held",
            (Some(_), _) => "missed",
        }
    }
}

pub(super) fn all(cases: &[CaseResult], flush_ns: u64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for name in [rounds::READS_32, rounds::STREAMS] {
        let ratios = ratios(cases, name);
        let mut of = |what: &str, bound, measured: Option<u64>| {
            marks.push(Mark { what: format!("{name}: {what} of {HYPER}"), unit: "%", bound, measured });
        };
        of("req/s", Bound::AtLeast(THROUGHPUT_MIN), ratios.and_then(|r| r.throughput));
        of("cpu", Bound::AtMost(CPU_MAX), ratios.and_then(|r| r.cpu));
    }
    marks.push(Mark {
        what: format!("{}: added p50 of {HYPER}", rounds::READS_1),
        unit: "%",
        bound: Bound::AtMost(ADDED_P50_MAX),
        measured: ratios(cases, rounds::READS_1).and_then(|r| r.added_p50),
    });
    let reads = figures(cases, rounds::READS_64).map(|s| s.requests_per_second);
    for name in [rounds::WRITES_64, rounds::KEYED_64] {
        let writes = figures(cases, name).map(|s| s.requests_per_second);
        let measured = writes.zip(reads).and_then(|(writes, reads)| (writes * 100).checked_div(reads));
        let what = format!("{name}: req/s of the reads");
        marks.push(Mark { what, unit: "%", bound: Bound::AtLeast(WRITES_MIN), measured });
    }
    let read_ns = figures(cases, rounds::READS_1).map(|s| s.p50_ns);
    for name in [rounds::WRITES_1, rounds::KEYED_1] {
        let most_us = read_ns.map(|read_ns| (read_ns + flush_ns * FLUSHES_MAX / 100) / 1_000);
        marks.push(Mark {
            what: format!("{name}: p50 in read+1.5 flush"),
            unit: "µs",
            bound: Bound::AtMost(most_us.unwrap_or_default()),
            measured: most_us.and(figures(cases, name)).map(|s| s.p50_ns / 1_000),
        });
    }
    marks
}

fn forbears<'a>(cases: &'a [CaseResult], name: &str) -> Option<(&'a CaseResult, &'a PeerResult)> {
    let case = cases.iter().find(|case| case.name == name)?;
    Some((case, case.peers.iter().find(|result| result.peer == FORBEAR)?))
}

fn ratios(cases: &[CaseResult], name: &str) -> Option<Ratios> {
    forbears(cases, name).map(|(case, result)| case.ratios(result))
}

fn figures(cases: &[CaseResult], name: &str) -> Option<Sample> {
    forbears(cases, name).map(|(_, result)| result.median())
}

#[cfg(test)]
mod tests {
    use super::{Bound, all};
    use crate::bench::rounds::{CASES, CaseResult, PeerResult, Sample};

    fn cases(forbear_cpu_ns: u64, write_p50_ns: u64) -> Vec<CaseResult> {
        let peer = |peer, requests_per_second, p50_ns, cpu_ns| PeerResult {
            peer,
            errors: 0,
            first_error: None,
            samples: vec![Sample { requests_per_second, p50_ns, cpu_ns_per_request: cpu_ns, ..Sample::default() }],
        };
        let of = |name: &'static str| {
            let p50_ns = if name.contains("write") { write_p50_ns } else { 60_000 };
            let peers = vec![
                peer("direct", 1_000, 10_000, None),
                peer("hyper", 500, 50_000, Some(10_000)),
                peer("forbear", 400, p50_ns, Some(forbear_cpu_ns)),
            ];
            CaseResult { name, connections: 1, peers }
        };
        CASES.iter().map(|case| of(case.name)).collect()
    }

    #[test]
    fn what_keeps_within_every_bound_holds_them_all() {
        let marks = all(&cases(16_000, 360_000), 200_000);
        assert!(marks.iter().all(|mark| mark.verdict() == "held"), "{marks:?}");
        assert_eq!(marks.last().map(|mark| (mark.bound, mark.measured)), Some((Bound::AtMost(360), Some(360))));
    }

    #[test]
    fn each_bound_is_missed_alone_and_what_is_absent_is_not_judged() {
        let missed = |cpu_ns, write_ns| -> Vec<String> {
            let marks = all(&cases(cpu_ns, write_ns), 200_000).into_iter();
            marks.filter(|mark| mark.verdict() == "missed").map(|mark| mark.what).collect()
        };
        assert!(missed(16_100, 360_000).iter().all(|what| what.contains("cpu")) && missed(16_100, 360_000).len() == 2);
        assert!(missed(16_000, 362_000).iter().all(|what| what.contains("p50")) && missed(16_000, 362_000).len() == 2);
        assert!(all(&[], 1).iter().all(|mark| mark.verdict() == "absent"));
    }
}
