//! `Retry-After` (RFC 9110 section 10.2.3) and its siblings in milliseconds, read the way real servers write them:
//! plain decimals are taken and rounded up, repeated lines and comma-joined numbers count as the largest of them, and a
//! whole number from 10^9 on is an instant, since as a wait it would be 31 years. Signs, exponents and units are
//! refused: a value that is not wholly understood is malformed and counts as absent.

use http::HeaderMap;
use http::header::RETRY_AFTER;

use super::BoundarySource;
use super::number::Decimal;
use super::raw::{self, Malformed};
use super::server_time::ServerTime;
use super::values::{self, EPOCH_MS_MIN, Reading, When};
use crate::contract::{RetryAfterUnit, ValueFormat};

/// Fields that say the same in milliseconds.
pub(super) const IN_MS: [&str; 3] = ["retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"];
/// Numbers in one comma-joined line.
const PIECES_MAX: usize = 16;

/// A wait that the provider asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) wait_ms: u64,
    pub(super) source: BoundarySource,
    pub(super) reading: String,
    pub(super) raw: String,
}

/// The longest wait of all that is valid. What is not is noted in `malformed`.
pub(super) fn read(
    headers: &HeaderMap,
    unit: RetryAfterUnit,
    time: &ServerTime,
    malformed: &mut Malformed,
) -> Option<Asked> {
    let plain = longest(headers, RETRY_AFTER.as_str(), time, malformed, |line| line_reading(line, unit, time));
    let plain = plain.map(|(wait_ms, reading)| Asked {
        wait_ms,
        source: BoundarySource::RetryAfter,
        reading: time.words(reading),
        raw: raw::shown_lines(headers, RETRY_AFTER.as_str()),
    });
    let precise = IN_MS.into_iter().filter_map(|name| {
        let in_ms = |line: &str| values::read(ValueFormat::DeltaMsInt, line, time.ours);
        longest(headers, name, time, malformed, in_ms).map(|(wait_ms, reading)| Asked {
            wait_ms,
            source: BoundarySource::RetryAfterMs,
            reading: time.words(reading),
            raw: raw::shown_lines(headers, name),
        })
    });
    // Two precisions of one wait: the longer is never early. Of equals the standard one is named.
    precise.chain(plain).max_by_key(|asked| asked.wait_ms)
}

fn longest(
    headers: &HeaderMap,
    name: &str,
    time: &ServerTime,
    malformed: &mut Malformed,
    read: impl Fn(&str) -> Option<Reading>,
) -> Option<(u64, Reading)> {
    let mut longest = None::<(u64, Reading)>;
    for line in headers.get_all(name).iter().take(raw::FIELD_LINES_MAX) {
        let text = raw::text(line);
        if text == Some("") {
            continue;
        }
        let Some(reading) = text.and_then(&read) else {
            malformed.note(name, line.as_bytes());
            continue;
        };
        let wait_ms = time.wait_ms(reading.when);
        if longest.is_none_or(|(most, _)| wait_ms > most) {
            longest = Some((wait_ms, reading));
        }
    }
    longest
}

fn line_reading(line: &str, unit: RetryAfterUnit, time: &ServerTime) -> Option<Reading> {
    if let Some(number) = Decimal::parse(line) {
        return Some(number_reading(number, unit));
    }
    if let Some(date) = values::read(ValueFormat::HttpDate, line, time.ours) {
        return Some(date);
    }
    if !line.contains(',') {
        return None;
    }
    let mut longest = None::<Reading>;
    for (at, piece) in line.split(',').enumerate() {
        let number = Decimal::parse(piece.trim()).filter(|_| at < PIECES_MAX)?;
        let reading = number_reading(number, unit);
        if longest.is_none_or(|most| time.wait_ms(reading.when) > time.wait_ms(most.when)) {
            longest = Some(reading);
        }
    }
    longest
}

fn number_reading(number: Decimal, unit: RetryAfterUnit) -> Reading {
    match unit {
        RetryAfterUnit::Seconds => values::number_by_size(number),
        RetryAfterUnit::Milliseconds if number.whole >= EPOCH_MS_MIN => values::number_by_size(number),
        RetryAfterUnit::Milliseconds => {
            Reading { when: When::AfterMs(number.times_ceil(1)), words: "delta milliseconds, by the contract" }
        }
    }
}
