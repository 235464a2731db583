//! An instant as it is written on the wire: RFC 3339 in UTC, with milliseconds.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch, written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(pub i64);

impl At {
    /// Milliseconds from here until `later`, below zero when it is past.
    #[must_use]
    pub const fn ms_until(self, later: Self) -> i64 {
        later.0.saturating_sub(self.0)
    }

    /// The time of day alone, for lists whose day is said once: `14:03:07.120`.
    #[must_use]
    pub fn time_of_day(self) -> String {
        let text = self.to_string();
        text.split_once('T').map_or(text.clone(), |(_, time)| time.trim_end_matches('Z').to_owned())
    }

    /// The day alone: `2026-11-30`.
    #[must_use]
    pub fn day(self) -> String {
        let text = self.to_string();
        text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Timestamp::from_millisecond(self.0);
        // Out of what a calendar can say: the nearest that it can.
        let clamped = whole.unwrap_or(if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX });
        write!(f, "{clamped:.3}")
    }
}

/// The text was not an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instant is written as RFC 3339, for example 2026-11-30T14:03:07.120Z")]
pub struct NotAnInstant;

impl FromStr for At {
    type Err = NotAnInstant;

    fn from_str(s: &str) -> Result<Self, NotAnInstant> {
        s.parse::<Timestamp>().map(|t| Self(t.as_millisecond())).map_err(|_| NotAnInstant)
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_and_read_back() {
        let at = At(1_795_960_987_120);
        assert_eq!(at.to_string(), "2026-11-29T14:03:07.120Z");
        assert_eq!(at.to_string().parse(), Ok(at));
        assert_eq!((at.day().as_str(), at.time_of_day().as_str()), ("2026-11-29", "14:03:07.120"));
        assert_eq!(At(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!("2026-11-29T15:03:07.12+01:00".parse(), Ok(at));
        assert_eq!("soon".parse::<At>(), Err(NotAnInstant));
    }

    #[test]
    fn what_no_calendar_can_say_is_still_written() {
        assert!(At(i64::MAX).to_string().starts_with("9999-"));
        assert!(At(i64::MIN).to_string().starts_with('-'));
    }
}
