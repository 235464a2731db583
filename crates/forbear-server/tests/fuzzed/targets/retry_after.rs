//! `Retry-After`, one line of the field a line of the input, beside a second reader of numbers and of dates.

use std::time::{Duration, UNIX_EPOCH};

use forbear_core::classify::{BoundarySource, classify};
use forbear_core::contract::Contract;
use forbear_core::policy::Rank;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};

use super::NOW;
use super::recorded::facts;
use super::response::holds;

/// Lines of one field that are read.
const LINES_MAX: usize = 16;
const EPOCH_S_MIN: u64 = 1_000_000_000;

pub(super) fn check(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(32) {
        if let Ok(value) = HeaderValue::from_bytes(line.trim_ascii()) {
            headers.append(RETRY_AFTER, value);
        }
    }
    let read = classify(&Contract::default(), Rank::Read, &facts(503, &headers, None));
    holds(&read);
    let lines = headers.get_all(RETRY_AFTER).iter().take(LINES_MAX);
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    let waits: Vec<u64> = lines.iter().filter_map(|line| wait_ms(line)).collect();
    let got = read.boundary.as_ref().map(|b| b.wait_ms);
    // It may read more than the second reader does, and then waits longer: never shorter.
    if let Some(longest) = waits.iter().max() {
        assert!(got.is_some_and(|got| got >= *longest), "{lines:?}: {got:?}");
        if headers.len() == 1 {
            assert_eq!(got, Some(*longest), "{lines:?}");
        }
    }
    assert!(read.boundary.is_none_or(|b| b.source == BoundarySource::RetryAfter));
}

/// By the letter of RFC 9110, and numbers too large to be a wait as instants.
fn wait_ms(line: &str) -> Option<u64> {
    let now = UNIX_EPOCH + Duration::from_millis(NOW.wall.0.unsigned_abs());
    if !line.is_empty() && line.len() < 19 && line.bytes().all(|b| b.is_ascii_digit()) {
        let number: u64 = line.parse().ok()?;
        return (number < EPOCH_S_MIN).then(|| number * 1_000);
    }
    // A year of two digits is read by the present, which the second reader does not know.
    if line.contains('-') {
        return None;
    }
    let at = httpdate::parse_http_date(line).ok()?;
    Some(at.duration_since(now).map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}
