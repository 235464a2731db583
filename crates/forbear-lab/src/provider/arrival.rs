//! The record of what arrived: one entry a request, in the order of arrival, with what became of it.
//!
//! It is the measure that tests and drills go by, so it is taken at the socket and never inferred. A bounded ring is
//! kept; what falls out of it is counted and said.

use std::collections::VecDeque;
use std::io::Write;

use bytes::Bytes;
use serde::Serialize;

/// So many arrivals are kept for queries.
pub const ARRIVALS_KEPT_MAX: usize = 20_000;
/// So much of each body is kept.
pub const BODY_KEPT_BYTES_MAX: usize = 64 * 1024;

/// One request as the provider saw it. Times are nanoseconds of the provider's monotonic clock since its start.
#[derive(Debug, Clone, Serialize)]
pub struct Arrival {
    /// Counted from 1.
    pub n: u64,
    /// When the first byte of the request's head was read.
    pub at_ns: u64,
    pub wall_ms: u64,
    pub connection: u64,
    pub client_port: u16,
    pub version: &'static str,
    /// The HTTP/2 stream.
    pub stream: Option<u32>,
    pub method: String,
    /// The request target, byte for byte.
    pub target: String,
    /// In order and with their case; credentials are replaced by [`credential_digest`](super::credential_digest).
    pub headers: Vec<(String, String)>,
    pub trailers: Vec<(String, String)>,
    /// The digest of the first credential, or `anonymous`.
    pub credential: String,
    /// The pattern of the route that answered.
    pub route: Option<String>,
    pub idempotency_key: Option<String>,
    pub body_bytes: u64,
    pub body_sha256: String,
    /// The first [`BODY_KEPT_BYTES_MAX`] bytes of the body, once it was read.
    #[serde(skip)]
    pub body: Option<Bytes>,
    /// Whether the body was read to its end.
    pub body_complete: bool,
    pub refused_by_limit: bool,
    /// The limit that refused.
    pub limit: Option<String>,
    /// The effect this request had.
    pub effect: Option<String>,
    pub status: Option<u16>,
    /// Taken just before the first byte of the final response head was given to the kernel.
    pub head_written_at_ns: Option<u64>,
    pub finished_at_ns: Option<u64>,
    /// When the peer was seen to close, or to reset the stream, while the request was under way.
    pub peer_closed_at_ns: Option<u64>,
    pub fate: Fate,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Underway,
    Answered,
    RefusedByLimit,
    /// Answered again from an idempotency key.
    Replayed,
    KeyInProgress,
    KeyMismatch,
    KeyMissing,
    NoRoute,
    BadRequest,
    DroppedAfterHead,
    /// After the body was read, before anything was done.
    DroppedAfterBody,
    /// After the effect, before the answer.
    DroppedAfterCommit,
    DroppedMidHead,
    DroppedMidBody,
    DroppedMidStream,
    Stalled,
    StreamReset,
    Goaway,
    PeerClosed,
    /// The provider stopped or was reset first.
    Abandoned,
}

impl Arrival {
    /// A header's first value, by case-insensitive name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// One NDJSON line, without its newline; the body's text is added on request.
    #[must_use]
    pub fn to_line(&self, with_body: bool) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let serde_json::Value::Object(members) = &mut value {
            members.insert("line".to_owned(), "arrival".into());
            if with_body && let Some(body) = &self.body {
                members.insert("body_text".to_owned(), String::from_utf8_lossy(body).into());
            }
        }
        value.to_string()
    }
}

pub(crate) struct Log {
    kept: VecDeque<Arrival>,
    kept_max: usize,
    dropped: u64,
    /// Arrivals whose request was read, or given up.
    read: u64,
    out: Option<Box<dyn Write + Send>>,
}

impl Log {
    pub(crate) fn new(out: Option<Box<dyn Write + Send>>, kept_max: usize) -> Self {
        Self { kept: VecDeque::new(), kept_max, dropped: 0, read: 0, out }
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.dropped = 0;
        self.read = 0;
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.dropped + self.kept.len() as u64 + 1
    }

    pub(crate) fn add(&mut self, arrival: Arrival) {
        if self.kept.len() >= self.kept_max {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(arrival);
    }

    pub(crate) fn entry(&mut self, n: u64) -> Option<&mut Arrival> {
        let index = usize::try_from(n.checked_sub(self.dropped + 1)?).ok()?;
        self.kept.get_mut(index)
    }

    pub(crate) fn count_read(&mut self) {
        self.read += 1;
    }

    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.kept.iter().cloned().collect()
    }

    pub(crate) fn to_ndjson(&self, with_bodies: bool) -> String {
        let mut text = String::new();
        if self.dropped > 0 {
            text.push_str(&format!("{{\"line\":\"dropped\",\"arrivals\":{}}}\n", self.dropped));
        }
        for arrival in &self.kept {
            text.push_str(&arrival.to_line(with_bodies));
            text.push('\n');
        }
        text
    }

    /// Writes the line of a finished arrival.
    pub(crate) fn write_arrival(&mut self, n: u64) {
        if self.out.is_some()
            && let Some(line) = self.entry(n).map(|arrival| arrival.to_line(false))
        {
            self.write(&line);
        }
    }

    /// A failing log never stops the provider: the ring in memory is what tests read.
    pub(crate) fn write(&mut self, line: &str) {
        if let Some(out) = &mut self.out
            && writeln!(out, "{line}").and_then(|()| out.flush()).is_err()
        {
            self.out = None;
        }
    }
}
