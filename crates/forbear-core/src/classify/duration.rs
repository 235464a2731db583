//! Durations as text: Go's (`1h2m3s`), protobuf's (`600.5s`), and the ones in prose (`Resets in 4hr 59min`).
//! All come back as milliseconds, rounded up and saturated. Prose is read whole or not at all: the first half of a
//! two-part duration would open a scope too early.

use super::number::Decimal;

/// Bytes of prose that are looked at.
pub(super) const PROSE_BYTES_MAX: usize = 2_048;
/// Longest duration in words: one that is nearer to a cut may have lost its second half.
const SPOKEN_BYTES_MAX: usize = 64;
/// Phrases of one text that are looked at.
const PHRASES_MAX: usize = 16;
/// Parts of one duration (`1d 2h 3m 4s 5ms` has five).
const PARTS_MAX: usize = 8;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * S;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// What comes before a wait. A provider's words, not a user's: only error messages are read.
const PHRASES: [&str; 11] = [
    "retry in ",
    "retry after ",
    "try again in ",
    "try again after ",
    "resets in ",
    "reset in ",
    "resets after ",
    "reset after ",
    "available in ",
    "wait ",
    "break for ",
];

/// `6m0s`, `1.5h`, `100µs`, `0`; a negative one is over already.
pub(super) fn go_ms(text: &str) -> Option<u64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.contains(' ') {
        return None;
    }
    let mut total_ns = 0_u64;
    for _ in 0..PARTS_MAX {
        let (number, unit, after) = part(rest)?;
        let unit_ns = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => MS,
            "s" => S,
            "m" => MINUTE,
            "h" => HOUR,
            _ => return None,
        };
        total_ns = total_ns.saturating_add(number.times_ceil(unit_ns));
        rest = after;
        if rest.is_empty() {
            return Some(if negative { 0 } else { total_ns.div_ceil(MS) });
        }
    }
    None
}

/// `18s`, `600.5s`.
pub(super) fn proto_ms(text: &str) -> Option<u64> {
    match text.strip_suffix('s')? {
        negative if negative.starts_with('-') => Decimal::parse(negative.get(1..)?).map(|_| 0),
        seconds => Decimal::parse(seconds).map(|seconds| seconds.times_ceil(1_000)),
    }
}

/// The longest wait that the text names behind one of [`PHRASES`], in milliseconds, and the words that say it.
pub(super) fn prose(text: &str) -> Option<(u64, String)> {
    let mut end = text.len().min(PROSE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let cut = end < text.len();
    let text = text.get(..end)?.to_ascii_lowercase();
    let phrases = PHRASES.iter().flat_map(|phrase| text.match_indices(phrase).take(PHRASES_MAX));
    let said = phrases.filter_map(|(at, phrase)| {
        let duration = text.get(at + phrase.len()..).filter(|rest| !cut || rest.len() >= SPOKEN_BYTES_MAX)?;
        let (ms, rest) = spoken_ms(duration)?;
        text.get(at..text.len() - rest.len()).map(|words| (ms, words))
    });
    said.max_by_key(|(ms, _)| *ms).map(|(ms, words)| (ms, words.trim_end().to_owned()))
}

/// A duration at the start of lower-case text, and what follows it.
fn spoken_ms(text: &str) -> Option<(u64, &str)> {
    let mut rest = ["at least ", "about ", "approximately "]
        .iter()
        .fold(text.trim_start(), |rest, filler| rest.strip_prefix(filler).unwrap_or(rest));
    let mut total_ns = None::<u64>;
    let mut after = rest;
    for _ in 0..PARTS_MAX {
        let Some((number, unit, behind)) = part(rest) else {
            // A number whose unit is missing or unknown makes the whole uncertain.
            let another = rest.as_bytes().first().is_some_and(u8::is_ascii_digit);
            return if another { None } else { total_ns.map(|ns| (ns.div_ceil(MS), after)) };
        };
        let unit_ns = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => MS,
            "s" | "sec" | "secs" | "second" | "seconds" => S,
            "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
            "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
            "d" | "day" | "days" => DAY,
            "w" | "wk" | "wks" | "week" | "weeks" => 7 * DAY,
            _ => return None,
        };
        total_ns = Some(total_ns.unwrap_or(0).saturating_add(number.times_ceil(unit_ns)));
        after = behind;
        rest = joint(behind);
    }
    None
}

/// What may stand between two parts of one spoken duration.
fn joint(text: &str) -> &str {
    let text = text.trim_start();
    let text = text.strip_prefix(',').map_or(text, str::trim_start);
    text.strip_prefix("and ").map_or(text, str::trim_start)
}

/// A number, perhaps a space, a unit; and what follows.
fn part(text: &str) -> Option<(Decimal, &str, &str)> {
    let number_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = Decimal::parse(text.get(..number_end)?)?;
    let rest = text.get(number_end..)?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let unit_end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    if unit_end == 0 {
        return None;
    }
    Some((number, rest.get(..unit_end)?, rest.get(unit_end..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_durations() {
        for (text, expect) in [
            ("6m0s", Some(360_000)),
            ("20ms", Some(20)),
            ("2m59.56s", Some(179_560)),
            ("1h2m3s", Some(3_723_000)),
            ("0", Some(0)),
            ("60", None),
            ("-1s", Some(0)),
            ("+1s", Some(1_000)),
            ("1.5h", Some(5_400_000)),
            ("100µs", Some(1)),
            ("100μs", Some(1)),
            ("1ns", Some(1)),
            ("1s", Some(1_000)),
            ("17ms", Some(17)),
            ("1.5s", Some(1_500)),
            ("23h47m36.648s", Some(85_656_648)),
            ("", None),
            ("-", None),
            ("s", None),
            ("1", None),
            ("1d", None),
            ("1h 2m", None),
            ("1 h", None),
            ("1hjunk", None),
            ("1h2", None),
            ("99999999999999999999h", Some(u64::MAX.div_ceil(MS))),
            ("1s1s1s1s1s1s1s1s1s", None),
        ] {
            assert_eq!(go_ms(text), expect, "{text}");
        }
    }

    #[test]
    fn protobuf_durations() {
        for (text, expect) in [
            ("18s", Some(18_000)),
            ("600.5s", Some(600_500)),
            ("-3s", Some(0)),
            ("18", None),
            ("s", None),
            ("-s", None),
            ("1m", None),
        ] {
            assert_eq!(proto_ms(text), expect, "{text}");
        }
    }

    #[test]
    fn spoken_durations() {
        for (text, expect) in [
            ("Please retry in 10h17m5.7s", Some(37_025_700)),
            ("Please retry in 10h17m5.7s.", Some(37_025_700)),
            ("Please retry after 37 seconds.", Some(37_000)),
            ("retry after 37 seconds. 5 requests remain", Some(37_000)),
            ("Try again in 3 minutes", Some(180_000)),
            ("Quota reached. Resets in 164h27m24s.", Some(592_044_000)),
            ("... Resets in 4hr 59min", Some(17_940_000)),
            ("Resets in 4 hours and 59 minutes.", Some(17_940_000)),
            ("Resets in 4 hours, 59 minutes.", Some(17_940_000)),
            ("resets in 2 days 1 hour", Some(176_400_000)),
            ("Please try again in 20ms. Visit the page", Some(20)),
            ("Rate limit reached. Please try again in 1m26.4s.", Some(86_400)),
            ("please wait at least 5 seconds", Some(5_000)),
            ("retry in 1s, or rather: resets in 2h", Some(7_200_000)),
            ("Resets in 4hr 59 fortnights", None),
            ("Resets in 4hr 59", None),
            ("retry after 30", None),
            ("try again in a few minutes", None),
            ("Try again later", None),
            ("3 minutes", None),
            ("resets in 1 month", None),
            ("", None),
        ] {
            assert_eq!(prose(text).map(|(ms, _)| ms), expect, "{text}");
        }
    }

    #[test]
    fn only_the_words_that_say_it_are_kept() {
        let said = prose("User 7 is over quota. Resets in 4hr 59min. Call 555");
        assert_eq!(said, Some((17_940_000, "resets in 4hr 59min".to_owned())));
    }

    #[test]
    fn prose_is_looked_at_up_to_its_bound() {
        let far = format!("{}retry in 5s", "ü".repeat(PROSE_BYTES_MAX));
        assert_eq!(prose(&far), None);
        let mut cut = format!("{}retry in 1h", "x".repeat(PROSE_BYTES_MAX - 11));
        assert_eq!(prose(&cut).map(|(ms, _)| ms), Some(3_600_000));
        cut.push_str(" 59m");
        assert_eq!(prose(&cut), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", tail in "\\PC{0,30}") {
            let _ = (go_ms(&text), proto_ms(&text), prose(&text), prose(&format!("retry in {tail}")));
        }

        #[test]
        fn no_duration_overflows(text in "-?([0-9]{1,30}(\\.[0-9]{1,30})?(ns|us|ms|s|m|h)){1,9}") {
            let _ = (go_ms(&text), prose(&format!("retry in {text}")));
        }
    }
}
