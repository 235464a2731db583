//! Reset values in every format met in the wild: what was said becomes either a wait or an instant, with the words for
//! how it was read. A value that does not have its format is `None`, never zero.

use super::duration;
use super::http_date;
use super::number::{self, Decimal};
use crate::contract::ValueFormat;
use crate::time::Wall;

/// Whole numbers from here on are epoch seconds where the format is not known: as a wait they would be 31 years.
pub(super) const EPOCH_S_MIN: u64 = 1_000_000_000;
/// Whole numbers from here on are epoch milliseconds where the format is not known.
pub(super) const EPOCH_MS_MIN: u64 = 1_000_000_000_000;
/// And from here on they are no date at all (the year 33658).
const EPOCH_MS_END: u64 = 1_000_000_000_000_000;
/// Longest date that is tried.
const DATE_BYTES_MAX: usize = 64;

/// What a value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// From the receipt of the head.
    AfterMs(u64),
    /// Since the epoch, on the server's clock.
    AtMs(i64),
}

/// A value and how it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) when: When,
    pub(super) words: &'static str,
}

const fn reading(when: When, words: &'static str) -> Reading {
    Reading { when, words }
}

/// Reads `text`, trimmed already. `now` is for two-digit years alone.
pub(super) fn read(format: ValueFormat, text: &str, now: Wall) -> Option<Reading> {
    let decimal = || Decimal::parse(text);
    let integer = || number::digits(text);
    Some(match format {
        ValueFormat::Auto => return by_shape(text, now),
        ValueFormat::DeltaSInt => reading(When::AfterMs(integer()?.saturating_mul(1_000)), "delta seconds"),
        ValueFormat::DeltaSFloat => reading(When::AfterMs(decimal()?.times_ceil(1_000)), "delta seconds"),
        ValueFormat::DeltaMsInt => reading(When::AfterMs(decimal()?.times_ceil(1)), "delta milliseconds"),
        ValueFormat::EpochS => reading(at(integer()?.saturating_mul(1_000)), "epoch seconds"),
        ValueFormat::EpochSFloat => reading(at(decimal()?.times_ceil(1_000)), "epoch seconds"),
        ValueFormat::EpochMs => reading(at(integer()?), "epoch milliseconds"),
        ValueFormat::Rfc3339 => reading(When::AtMs(rfc3339_ms(text)?), "RFC 3339 date"),
        ValueFormat::GoDuration => reading(When::AfterMs(duration::go_ms(text)?), "Go duration"),
        ValueFormat::ProtoDuration => reading(When::AfterMs(duration::proto_ms(text)?), "protobuf duration"),
        ValueFormat::HttpDate => reading(When::AtMs(http_date::parse(text, now)?), "http-date"),
        ValueFormat::Fraction => {
            let reset_s = Quota::parse(text)?.reset_s?;
            reading(When::AfterMs(reset_s.saturating_mul(1_000)), "delta seconds of a fraction")
        }
        ValueFormat::Prose => reading(When::AfterMs(duration::prose(text)?.0), "duration in prose"),
    })
}

/// A plain number of which the format is not known.
pub(super) fn number_by_size(number: Decimal) -> Reading {
    match number.whole {
        EPOCH_MS_MIN..EPOCH_MS_END if number.is_integer => reading(at(number.whole), "epoch milliseconds"),
        EPOCH_S_MIN..EPOCH_MS_MIN => reading(at(number.times_ceil(1_000)), "epoch seconds"),
        _ => reading(When::AfterMs(number.times_ceil(1_000)), "delta seconds"),
    }
}

fn by_shape(text: &str, now: Wall) -> Option<Reading> {
    if let Some(number) = Decimal::parse(text) {
        return Some(number_by_size(number));
    }
    [ValueFormat::GoDuration, ValueFormat::Rfc3339, ValueFormat::HttpDate]
        .into_iter()
        .find_map(|format| read(format, text, now))
}

fn at(ms: u64) -> When {
    When::AtMs(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Also without seconds, as Jira writes it.
fn rfc3339_ms(text: &str) -> Option<i64> {
    if text.len() > DATE_BYTES_MAX || !text.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    let at: jiff::Timestamp = text.parse().ok()?;
    // Up to the next millisecond: never early.
    let beyond = i64::from(at.subsec_nanosecond() % 1_000_000 > 0);
    at.as_millisecond().checked_add(beyond)
}

/// The parts of a quota that one value tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Quota {
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) reset_s: Option<u64>,
}

/// Pieces of one fraction value that are looked at.
const PIECES_MAX: usize = 16;

impl Quota {
    /// `32/40` and `api-usage=18/5000` say used and limit (of several the fullest counts);
    /// `total=100; remaining=99; resets=41` says all three.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.contains(';') { Self::parse_members(text) } else { Self::parse_fractions(text) }
    }

    fn parse_fractions(text: &str) -> Option<Self> {
        let mut fullest = None::<Self>;
        for piece in text.split(',').take(PIECES_MAX) {
            let piece = piece.split_once('=').map_or(piece, |(_, fraction)| fraction);
            let piece = piece.split_once('(').map_or(piece, |(fraction, _)| fraction);
            let (used, limit) = piece.split_once('/')?;
            let (used, limit) = (Decimal::parse(used.trim())?.times_ceil(1), number::digits(limit.trim())?);
            let remaining = limit.saturating_sub(used);
            if fullest.and_then(|quota| quota.remaining).is_none_or(|least| remaining < least) {
                fullest = Some(Self { limit: Some(limit), remaining: Some(remaining), reset_s: None });
            }
        }
        fullest
    }

    fn parse_members(text: &str) -> Option<Self> {
        let mut quota = Self::default();
        for piece in text.split(';').take(PIECES_MAX).filter(|piece| !piece.trim().is_empty()) {
            let (name, value) = piece.split_once('=')?;
            let value = number::digits(value.trim())?;
            match name.trim() {
                "total" | "limit" => quota.limit = Some(value),
                "remaining" => quota.remaining = Some(value),
                "resets" | "reset" => quota.reset_s = Some(value),
                _ => {}
            }
        }
        (quota != Self::default()).then_some(quota)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Wall = Wall(1_796_000_000_000);

    fn check(format: ValueFormat, text: &str, expect: Option<When>) {
        assert_eq!(read(format, text, NOW).map(|reading| reading.when), expect, "{format:?} {text}");
    }

    #[test]
    fn every_format_has_its_samples() {
        use ValueFormat as F;
        use When::{AfterMs, AtMs};
        for (format, text, expect) in [
            (F::DeltaSInt, "30", Some(AfterMs(30_000))),
            (F::DeltaSInt, "2.0", None),
            (F::DeltaSInt, "99999999999999999999999999", Some(AfterMs(u64::MAX))),
            (F::DeltaSFloat, "2.0", Some(AfterMs(2_000))),
            (F::DeltaSFloat, "0.35", Some(AfterMs(350))),
            (F::DeltaSFloat, "64.57", Some(AfterMs(64_570))),
            (F::DeltaMsInt, "1520", Some(AfterMs(1_520))),
            (F::DeltaMsInt, "1520.2", Some(AfterMs(1_521))),
            (F::EpochS, "1372700873", Some(AtMs(1_372_700_873_000))),
            (F::EpochS, "99999999999999999999", Some(AtMs(i64::MAX))),
            (F::EpochSFloat, "1470173023.123", Some(AtMs(1_470_173_023_123))),
            (F::EpochMs, "1741305600000", Some(AtMs(1_741_305_600_000))),
            (F::Rfc3339, "2025-08-21T12:40:59Z", Some(AtMs(1_755_780_059_000))),
            (F::Rfc3339, "2025-08-21T14:40:59.0001+02:00", Some(AtMs(1_755_780_059_001))),
            (F::Rfc3339, "2026-03-02T10:15Z", Some(AtMs(1_772_446_500_000))),
            (F::Rfc3339, "2026-03-02", None),
            (F::Rfc3339, "2026-13-02T10:15:00Z", None),
            (F::GoDuration, "1s", Some(AfterMs(1_000))),
            (F::GoDuration, "2m59.56s", Some(AfterMs(179_560))),
            (F::GoDuration, "60", None),
            (F::ProtoDuration, "18s", Some(AfterMs(18_000))),
            (F::ProtoDuration, "600.5s", Some(AfterMs(600_500))),
            (F::HttpDate, "Thu, 01 Jan 2026 00:00:00 GMT", Some(AtMs(1_767_225_600_000))),
            (F::HttpDate, "Wed, 01 Jan 2026 00:00:00 GMT", Some(AtMs(1_767_225_600_000))),
            (F::Fraction, "total=100; remaining=99; resets=41", Some(AfterMs(41_000))),
            (F::Fraction, "32/40", None),
            (F::Prose, "Please retry in 10h17m5.7s", Some(AfterMs(37_025_700))),
            (F::Prose, "retry after 37 seconds", Some(AfterMs(37_000))),
            (F::Prose, "Try again in 3 minutes", Some(AfterMs(180_000))),
        ] {
            check(format, text, expect);
        }
    }

    #[test]
    fn auto_goes_by_the_shape() {
        use When::{AfterMs, AtMs};
        for (text, expect) in [
            ("30", Some(AfterMs(30_000))),
            ("0", Some(AfterMs(0))),
            ("0.35", Some(AfterMs(350))),
            ("999999999", Some(AfterMs(999_999_999_000))),
            ("1000000000", Some(AtMs(1_000_000_000_000))),
            ("1372700873", Some(AtMs(1_372_700_873_000))),
            ("1470173023.123", Some(AtMs(1_470_173_023_123))),
            ("1741305600000", Some(AtMs(1_741_305_600_000))),
            ("99999999999999999999999999", Some(AfterMs(u64::MAX))),
            ("6m0s", Some(AfterMs(360_000))),
            ("2025-08-21T12:40:59Z", Some(AtMs(1_755_780_059_000))),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(AtMs(784_111_777_000))),
            ("Sun Nov  6 08:49:37 1994", Some(AtMs(784_111_777_000))),
            ("-1", None),
            ("soon", None),
            ("", None),
            ("120junk", None),
            ("32/40", None),
        ] {
            check(ValueFormat::Auto, text, expect);
        }
    }

    #[test]
    fn fractions_tell_what_is_used() {
        let quota = |limit, remaining, reset_s| Some(Quota { limit, remaining, reset_s });
        for (text, expect) in [
            ("32/40", quota(Some(40), Some(8), None)),
            ("32.5/40", quota(Some(40), Some(7), None)),
            ("40/40", quota(Some(40), Some(0), None)),
            ("41/40", quota(Some(40), Some(0), None)),
            ("api-usage=18/5000", quota(Some(5_000), Some(4_982), None)),
            ("api-usage=25/5000, per-app-api-usage=17/250(appName=sample)", quota(Some(250), Some(233), None)),
            ("total=100; remaining=99; resets=41", quota(Some(100), Some(99), Some(41))),
            ("total=100; remaining=x; resets=41", None),
            ("5/", None),
            ("/", None),
            ("", None),
            (";", None),
        ] {
            assert_eq!(Quota::parse(text), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", now in any::<i64>()) {
            use ValueFormat as F;
            for format in [
                F::Auto, F::DeltaSInt, F::DeltaSFloat, F::DeltaMsInt, F::EpochS, F::EpochSFloat, F::EpochMs,
                F::Rfc3339, F::GoDuration, F::ProtoDuration, F::HttpDate, F::Fraction, F::Prose,
            ] {
                let _ = read(format, &text, Wall(now));
            }
            let _ = Quota::parse(&text);
        }
    }
}
