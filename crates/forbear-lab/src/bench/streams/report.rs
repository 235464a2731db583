//! What the streams took, as a few lines a shape or as one JSON document.

use std::fmt;

use serde_json::{Value, json};

use super::Found;
use crate::bench::marks::{Bound, Mark};
use crate::bench::report::{mark_to_json, write_mark};

/// The mark is of so many streams; fewer prove nothing.
const MARK_STREAMS: usize = 10_000;
const MARK_MB: u64 = 600;

#[derive(Debug)]
pub struct Report {
    streams: usize,
    shapes: Vec<Found>,
}

impl Report {
    pub(super) const fn new(streams: usize, shapes: Vec<Found>) -> Self {
        Self { streams, shapes }
    }

    /// Streams that did not open or did not end whole; more than none and the figures mean nothing.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.shapes.iter().map(|found| self.streams - found.whole).sum()
    }

    #[must_use]
    pub fn to_json(&self) -> Value {
        let shapes: Vec<Value> = self.shapes.iter().map(|found| self.shape_to_json(found)).collect();
        json!({ "streams": self.streams, "errors": self.errors(), "shapes": shapes })
    }

    fn shape_to_json(&self, found: &Found) -> Value {
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        json!({
            "shape": found.shape,
            "providers": found.providers,
            "opened": found.opened,
            "whole": found.whole,
            "first_error": found.first_error,
            "resident_bytes": {
                "before": found.before.resident_bytes,
                "open": found.open.resident_bytes,
                "after": found.after.resident_bytes,
                "peak": found.after.peak_bytes,
            },
            "bytes_per_stream": found.bytes_per_stream(),
            "opening_ms": ms(found.opening),
            "ending_ms": ms(found.ending),
            "held_cpu_us_per_second": found.held_cpu_us,
            "mark": mark_to_json(&self.mark(found)),
        })
    }

    /// Judged by the most that it ever was, opening and ending included.
    fn mark(&self, found: &Found) -> Mark {
        let is_proof = self.streams >= MARK_STREAMS && found.whole == self.streams;
        Mark {
            what: format!("memory with {MARK_STREAMS} open streams at most"),
            unit: "MB",
            bound: Bound::AtMost(MARK_MB),
            measured: is_proof.then(|| megabytes(found.after.peak_bytes)),
        }
    }
}

impl Found {
    fn bytes_per_stream(&self) -> Option<u64> {
        let grown = self.open.resident_bytes.saturating_sub(self.before.resident_bytes);
        grown.checked_div(u64::try_from(self.opened).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} streams, each held between its first event and its last.", self.streams)?;
        for found in &self.shapes {
            let (opening, ending) = (found.opening.as_secs_f64(), found.ending.as_secs_f64());
            let memory = [
                found.before.resident_bytes,
                found.open.resident_bytes,
                found.after.peak_bytes,
                found.after.resident_bytes,
            ]
            .map(megabytes);
            let [before, open, peak, after] = memory;
            writeln!(out, "\n{} ({} of them)", found.shape, found.providers)?;
            writeln!(out, "  all had their first event after {opening:.1} s, their end {ending:.1} s after its word")?;
            writeln!(out, "  whole: {} of {}", found.whole, self.streams)?;
            if let Some(error) = &found.first_error {
                writeln!(out, "  the first error: {error}")?;
            }
            writeln!(out, "  MB before {before}, all open {open}, at most {peak}, after {after}")?;
            let bytes = found.bytes_per_stream().map_or_else(|| "-".into(), |bytes| bytes.to_string());
            writeln!(out, "  bytes a stream: {bytes}")?;
            writeln!(out, "  cpu with all open and nothing to do: {} ms a second", found.held_cpu_us / 1_000)?;
            write_mark(out, &self.mark(found))?;
        }
        write!(out, "errors: {}", self.errors())
    }
}

/// Rounded up, so that a mark is not held by a fraction.
const fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Found, Memory};
    use super::Report;

    fn report(streams: usize, whole: usize, peak_bytes: u64) -> Report {
        let memory = |resident_bytes| Memory { resident_bytes, peak_bytes };
        let found = Found {
            shape: "agents over HTTP/1.1, providers over HTTP/2",
            providers: 10,
            opened: streams,
            whole,
            first_error: (whole < streams).then(|| "status 429".into()),
            before: memory(25_000_000),
            open: memory(425_000_000),
            after: memory(300_000_000),
            opening: Duration::from_millis(3_200),
            ending: Duration::from_millis(1_100),
            held_cpu_us: 12_000,
        };
        Report::new(streams, vec![found])
    }

    #[test]
    fn the_mark_is_judged_by_the_peak_of_enough_whole_streams() {
        let verdict = |report: &Report| report.mark(&report.shapes[0]).verdict();
        assert_eq!(verdict(&report(10_000, 10_000, 600_000_000)), "held");
        assert_eq!(verdict(&report(10_000, 10_000, 600_000_001)), "missed");
        assert_eq!(verdict(&report(10_000, 9_999, 1)), "absent");
        assert_eq!(verdict(&report(9_999, 9_999, 1)), "absent");
    }

    #[test]
    fn the_lines_say_what_the_document_says() {
        let report = report(10_000, 9_998, 430_000_000);
        let (text, document) = (report.to_string(), report.to_json());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["whole: 9998 of 10000", "the first error: status 429", "bytes a stream: 40000", "errors: 2"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(document["errors"], 2);
        assert_eq!(document["shapes"][0]["bytes_per_stream"], 40_000);
        assert_eq!(document["shapes"][0]["mark"]["verdict"], "absent");
    }
}
