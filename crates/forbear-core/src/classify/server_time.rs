//! The server's clock as one answer shows it. Instants that a provider names are on its clock, so they are measured
//! against the answer's own `Date`; ours may be off by minutes. A cached answer's `Date` is old, so ours is used then.

use http::HeaderMap;
use http::header::{AGE, DATE};

use super::http_date;
use super::number;
use super::raw;
use super::values::{Reading, When};
use crate::time::{Now, Wall};

/// Read once an answer, and only where it carries a signal.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerTime {
    /// What the server's clock showed.
    at: Wall,
    by_date: bool,
    /// `Age` above zero: the answer says how things were, not how they are.
    pub(super) cached: bool,
    /// For two-digit years.
    pub(super) ours: Wall,
}

impl ServerTime {
    pub(super) fn read(headers: &HeaderMap, received: Now) -> Self {
        let ours = received.wall;
        let cached = headers
            .get_all(AGE)
            .iter()
            .take(raw::FIELD_LINES_MAX)
            .any(|age| raw::text(age).and_then(number::digits).is_some_and(|age| age > 0));
        let date = if cached { None } else { headers.get(DATE).and_then(raw::text) };
        let date = date.and_then(|date| http_date::parse(date, ours)).map(Wall);
        Self { at: date.unwrap_or(ours), by_date: date.is_some(), cached, ours }
    }

    /// What is left to wait; an instant that is past leaves nothing.
    pub(super) const fn wait_ms(&self, when: When) -> u64 {
        match when {
            When::AfterMs(ms) => ms,
            When::AtMs(at) => self.at.ms_until(Wall(at)),
        }
    }

    /// How far the server's clock is ahead of ours, as far as its answer shows it.
    pub(super) const fn ahead_ms(&self) -> i64 {
        self.at.0.saturating_sub(self.ours.0)
    }

    /// How a value was read, for people: an instant says against which clock.
    pub(super) fn words(&self, reading: Reading) -> String {
        match reading.when {
            When::AfterMs(_) => reading.words.to_owned(),
            When::AtMs(_) if self.by_date => format!("{} against Date", reading.words),
            When::AtMs(_) => format!("{} against our clock", reading.words),
        }
    }
}
