//! What the bench found, as a table of 80 columns or as one JSON document.

use std::fmt;

use serde_json::{Value, json};

use super::Pace;
use super::marks::{self, Bound, Mark};
use super::peer::HYPER;
use super::rounds::{CaseResult, PeerResult};

#[derive(Debug)]
pub struct Report {
    quick: bool,
    pace: Pace,
    cases: Vec<CaseResult>,
    left_out: Vec<String>,
    flush_ns: u64,
}

impl Report {
    pub(super) const fn new(
        quick: bool,
        pace: Pace,
        cases: Vec<CaseResult>,
        left_out: Vec<String>,
        flush_ns: u64,
    ) -> Self {
        Self { quick, pace, cases, left_out, flush_ns }
    }

    /// Calls that did not end in the right answer; more than none and the figures mean nothing.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.cases.iter().flat_map(|case| &case.peers).map(|result| result.errors).sum()
    }

    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "quick": self.quick,
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get),
            "rounds": self.pace.rounds,
            "measured_ms": u64::try_from(self.pace.measured.as_millis()).unwrap_or(u64::MAX),
            "errors": self.errors(),
            "left_out": self.left_out,
            "flush_ns": self.flush_ns,
            "marks": marks::all(&self.cases, self.flush_ns).iter().map(mark_to_json).collect::<Vec<_>>(),
            "cases": self.cases.iter().map(case_to_json).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn mark_to_json(mark: &Mark) -> Value {
    let (kind, bound) = match mark.bound {
        Bound::AtLeast(bound) => ("at_least", bound),
        Bound::AtMost(bound) => ("at_most", bound),
    };
    json!({ "mark": mark.what, "unit": mark.unit, kind: bound, "measured": mark.measured, "verdict": mark.verdict() })
}

fn case_to_json(case: &CaseResult) -> Value {
    let peers: Vec<Value> = case.peers.iter().map(|result| peer_to_json(case, result)).collect();
    json!({ "case": case.name, "connections": case.connections, "peers": peers })
}

fn peer_to_json(case: &CaseResult, result: &PeerResult) -> Value {
    let (figures, ratios) = (result.median(), case.ratios(result));
    let rounds = result.samples.iter();
    json!({
        "peer": result.peer,
        "requests_per_second": figures.requests_per_second,
        "requests_per_second_by_round": rounds.map(|sample| sample.requests_per_second).collect::<Vec<_>>(),
        "p50_ns": figures.p50_ns,
        "p90_ns": figures.p90_ns,
        "p99_ns": figures.p99_ns,
        "cpu_ns_per_request": figures.cpu_ns_per_request,
        "errors": result.errors,
        "first_error": result.first_error,
        "percent_of_hyper": {
            "throughput": ratios.throughput,
            "cpu_per_request": ratios.cpu,
            "added_p50": ratios.added_p50,
        },
        "percent_of_direct": { "throughput": ratios.throughput_of_direct },
    })
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.pace.measured.as_secs_f64();
        writeln!(out, "{} rounds of {seconds} s; medians. Ratios are to the {HYPER} proxy.", self.pace.rounds)?;
        for case in &self.cases {
            write_case(out, case)?;
        }
        writeln!(out, "\none small append made durable: {} µs", microseconds(self.flush_ns))?;
        for mark in marks::all(&self.cases, self.flush_ns) {
            write_mark(out, &mark)?;
        }
        for reason in &self.left_out {
            writeln!(out, "left out: {reason}")?;
        }
        write!(out, "errors: {}", self.errors())?;
        if self.quick {
            write!(out, "\nThis was a quick look, too short to quote.")?;
        }
        Ok(())
    }
}

fn write_case(out: &mut fmt::Formatter<'_>, case: &CaseResult) -> fmt::Result {
    writeln!(out, "\n{:<52}{:>27}", case.name, "---- beside the proxy ----")?;
    writeln!(
        out,
        "{:<9}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}",
        "", "req/s", "p50 µs", "p90 µs", "p99 µs", "cpu µs", "req/s", "cpu", "+p50"
    )?;
    for result in &case.peers {
        let (figures, ratios) = (result.median(), case.ratios(result));
        writeln!(
            out,
            "{:<9}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>9}",
            result.peer,
            figures.requests_per_second,
            microseconds(figures.p50_ns),
            microseconds(figures.p90_ns),
            microseconds(figures.p99_ns),
            figures.cpu_ns_per_request.map_or_else(|| "-".into(), microseconds),
            times(ratios.throughput),
            times(ratios.cpu),
            times(ratios.added_p50),
        )?;
        if let Some(error) = &result.first_error {
            writeln!(out, "         {} errors, the first: {error}", result.errors)?;
        }
    }
    Ok(())
}

pub(super) fn write_mark(out: &mut fmt::Formatter<'_>, mark: &Mark) -> fmt::Result {
    let (sign, bound) = match mark.bound {
        Bound::AtLeast(bound) => (">=", bound),
        Bound::AtMost(bound) => ("<=", bound),
    };
    let measured = mark.measured.map_or_else(|| "-".into(), |value| value.to_string());
    writeln!(out, "{:<6} {:<58}{measured:>5} {sign}{bound:>5}{}", mark.verdict(), mark.what, mark.unit)
}

fn microseconds(ns: u64) -> String {
    format!("{}.{}", ns / 1_000, ns % 1_000 / 100)
}

fn times(hundredths: Option<u64>) -> String {
    hundredths.map_or_else(|| "-".into(), |value| format!("{}.{:02}", value / 100, value % 100))
}

#[cfg(test)]
mod tests {
    use super::{Pace, Report};
    use crate::bench::rounds::{CaseResult, PeerResult, Sample};

    fn report() -> Report {
        let figures = Sample {
            requests_per_second: 48_123,
            p50_ns: 650_400,
            p90_ns: 1_200_000,
            p99_ns: 99_999_900,
            cpu_ns_per_request: Some(31_250),
        };
        let peer = |peer, errors: u64| PeerResult {
            peer,
            errors,
            first_error: (errors > 0).then(|| "status 502".into()),
            samples: vec![figures],
        };
        let peers = vec![peer("direct", 0), peer("hyper", 0), peer("forbear", 2)];
        let case = CaseResult { name: "streams of 200 events, 8 connections", connections: 8, peers };
        Report::new(true, Pace::QUICK, vec![case], vec!["nginx is not installed".into()], 180_400)
    }

    #[test]
    fn the_table_fits_eighty_columns_and_says_errors() {
        let text = report().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "48123    650.4   1200.0  99999.9     31.2",
            "2 errors, the first: status 502",
            "nginx is not",
            "errors: 2",
            "made durable: 180.4 µs",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn the_document_has_what_the_table_has() {
        let document = report().to_json();
        assert_eq!(document["errors"], 2);
        assert_eq!(document["cases"][0]["peers"][2]["percent_of_hyper"]["throughput"], 100);
        assert_eq!(document["cases"][0]["peers"][2]["cpu_ns_per_request"], 31_250);
    }
}
