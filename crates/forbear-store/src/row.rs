//! A journal row: the events of one commit as lines of JSON, deflated where that pays, with the chain's hash after them.
//!
//! A line is exactly the bytes that the chain covers. JSON escapes line breaks, so that a line is one event.

use std::borrow::Cow;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use forbear_audit::chain::{Broken, Entry, EntryHash, Head, Verifier};
use forbear_core::event::{EVENT_VERSION, Event};
use forbear_core::time::Wall;
use serde::Deserialize;

use crate::error::StoreError;
use crate::options::{EVENT_BYTES_MAX, ROW_BYTES_MAX};

const FORM_LINES: i64 = 0;
const FORM_DEFLATED: i64 = 1;
/// Below this, deflating costs more than it saves.
const DEFLATE_FROM_BYTES: usize = 256;
const DAY_MS: i64 = 86_400_000;

/// One row of the table `journal`.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) day: i64,
    pub(crate) form: i64,
    pub(crate) raw_bytes: usize,
    pub(crate) hash: EntryHash,
    pub(crate) events: Vec<u8>,
}

/// The columns that [`Row::read`] expects, in order.
pub(crate) const COLUMNS: &str = "first_seq, last_seq, day, form, raw_bytes, hash, events";

pub(crate) fn utc_day(at: Wall) -> i64 {
    at.0.div_euclid(DAY_MS)
}

impl Row {
    pub(crate) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            first_seq: row.get::<_, i64>(0)?.cast_unsigned(),
            last_seq: row.get::<_, i64>(1)?.cast_unsigned(),
            day: row.get(2)?,
            form: row.get(3)?,
            raw_bytes: usize::try_from(row.get::<_, i64>(4)?).unwrap_or(usize::MAX),
            hash: EntryHash(row.get(5)?),
            events: row.get(6)?,
        })
    }

    fn damaged(&self, what: &str) -> StoreError {
        StoreError::Damaged { message: format!("journal row {} to {}: {what}", self.first_seq, self.last_seq) }
    }

    /// The lines, one an event, each ended by a line feed.
    pub(crate) fn lines(&self) -> Result<Cow<'_, [u8]>, StoreError> {
        if self.raw_bytes > ROW_BYTES_MAX {
            return Err(self.damaged("it claims to be longer than any row may be"));
        }
        let lines = match self.form {
            FORM_LINES => Cow::Borrowed(self.events.as_slice()),
            FORM_DEFLATED => Cow::Owned(inflate(&self.events, self.raw_bytes).ok_or_else(|| self.damaged("inflate"))?),
            _ => return Err(self.damaged("unknown form")),
        };
        if lines.len() == self.raw_bytes && lines.ends_with(b"\n") { Ok(lines) } else { Err(self.damaged("length")) }
    }

    /// Checks the row against the chain that leads to it.
    pub(crate) fn verify(&self, verifier: &mut Verifier) -> Result<(), StoreError> {
        let changed = Broken::Changed { first_bad: self.first_seq, last_bad: self.last_seq };
        let lines = self.lines().map_err(|_| changed.clone())?;
        for (seq, bytes) in (self.first_seq..).zip(each(&lines)) {
            let recorded = (seq == self.last_seq).then_some(self.hash);
            verifier.push(&Entry { seq, bytes, recorded })?;
        }
        let whole = verifier.head().seq == self.last_seq && verifier.vouched_seq() == self.last_seq;
        if whole { Ok(()) } else { Err(changed.into()) }
    }

    pub(crate) fn events(&self) -> Result<Vec<Event>, StoreError> {
        let lines = self.lines()?;
        (self.first_seq..).zip(each(&lines)).map(|(seq, line)| parse(seq, line)).collect()
    }
}

fn each(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.strip_suffix(b"\n").unwrap_or(lines).split(|b| *b == b'\n')
}

/// Reads one event, of this version or an older one. Members that are not known are passed over.
pub(crate) fn parse(seq: u64, line: &[u8]) -> Result<Event, StoreError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u8,
    }
    let unreadable = |message: String| StoreError::Unreadable { seq, message };
    let Versioned { v } = serde_json::from_slice(line).map_err(|e| unreadable(e.to_string()))?;
    if v == 0 || v > EVENT_VERSION {
        return Err(unreadable(format!("it has version {v}, this program reads 1 to {EVENT_VERSION}")));
    }
    let event: Event = serde_json::from_slice(line).map_err(|e| unreadable(e.to_string()))?;
    if event.seq.0 == seq { Ok(event) } else { Err(unreadable(format!("it says to be event {}", event.seq.0))) }
}

/// Makes rows of events. Its buffers are kept from row to row.
pub(crate) struct Encoder {
    head: Head,
    row_bytes_max: usize,
    lines: Vec<u8>,
    deflate: Compress,
}

impl Encoder {
    pub(crate) fn new(head: Head, row_bytes_max: usize) -> Self {
        Self { head, row_bytes_max, lines: Vec::new(), deflate: Compress::new(Compression::fast(), false) }
    }

    /// The rows of a run of events: a new one with each UTC day and at the bound in bytes.
    pub(crate) fn rows<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::with_capacity(1);
        let (mut first_seq, mut day) = (0, 0);
        for event in events {
            let expected = self.head.seq.saturating_add(1);
            if event.seq.0 != expected {
                return Err(StoreError::OutOfOrder { expected, found: event.seq.0 });
            }
            let event_day = utc_day(event.at);
            if !self.lines.is_empty() && (event_day != day || self.lines.len() >= self.row_bytes_max) {
                rows.push(self.finish(first_seq, day));
            }
            if self.lines.is_empty() {
                (first_seq, day) = (event.seq.0, event_day);
            }
            self.line(event)?;
        }
        if !self.lines.is_empty() {
            rows.push(self.finish(first_seq, day));
        }
        Ok(rows)
    }

    fn line(&mut self, event: &Event) -> Result<(), StoreError> {
        let start = self.lines.len();
        serde_json::to_writer(&mut self.lines, event)
            .map_err(|e| StoreError::Unreadable { seq: event.seq.0, message: e.to_string() })?;
        let bytes = self.lines.len() - start;
        if bytes > EVENT_BYTES_MAX {
            return Err(StoreError::TooLarge { what: "an event", bytes, bytes_max: EVENT_BYTES_MAX });
        }
        self.head = self.head.then(&self.lines[start..]);
        self.lines.push(b'\n');
        Ok(())
    }

    fn finish(&mut self, first_seq: u64, day: i64) -> Row {
        let raw_bytes = self.lines.len();
        let deflated = if raw_bytes < DEFLATE_FROM_BYTES { None } else { deflate(&mut self.deflate, &self.lines) };
        let (form, events) = match deflated {
            Some(events) => (FORM_DEFLATED, events),
            None => (FORM_LINES, self.lines.clone()),
        };
        self.lines.clear();
        Row { first_seq, last_seq: self.head.seq, day, form, raw_bytes, hash: self.head.hash, events }
    }
}

/// None where it would not be shorter.
fn deflate(deflate: &mut Compress, lines: &[u8]) -> Option<Vec<u8>> {
    deflate.reset();
    let mut out = Vec::with_capacity(lines.len());
    let status = deflate.compress_vec(lines, &mut out, FlushCompress::Finish).ok()?;
    out.shrink_to_fit();
    (status == Status::StreamEnd).then_some(out)
}

fn inflate(deflated: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    // One byte more than told, so that a longer stream is seen.
    let mut out = Vec::with_capacity(raw_bytes + 1);
    let status = Decompress::new(false).decompress_vec(deflated, &mut out, FlushDecompress::Finish).ok()?;
    (status == Status::StreamEnd).then_some(out)
}
