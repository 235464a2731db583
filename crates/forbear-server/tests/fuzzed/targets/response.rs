//! How an answer is read, head and body, by the contract that it names.

use forbear_core::classify::{Classification, Kind, classify, classify_event};
use forbear_core::contract::{Contract, RetryAfterUnit};
use forbear_core::policy::Rank;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

use super::recorded::{Recorded, facts};
use super::{NOW, held};

/// Windows that each kind of field is read for.
const WINDOWS_MAX: usize = 32;
/// From here on a number is an instant.
const DELTA_DIGITS_MAX: usize = 9;

pub(super) fn check(data: &[u8]) {
    if let Some(answer) = Recorded::parse(data) {
        check_answer(&answer);
    }
}

/// The status line, and behind it nothing but a JSON body.
pub(super) fn check_body(data: &[u8]) {
    let line = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let Some(mut answer) = Recorded::parse(&data[..line]) else { return };
    answer.body = data.get(line + 1..).unwrap_or_default().to_vec();
    answer.fields = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    check_answer(&answer);
}

fn check_answer(answer: &Recorded) {
    let (contract, headers, reordered) = (answer.contract(), answer.headers(), answer.headers_reordered());
    for rank in Rank::ALL {
        let read = classify(contract, rank, &facts(answer.status, &headers, Some(&answer.body)));
        holds(&read);
        asks_for_no_less(&read, contract, &headers);
        only_a_refusal_is_before_work(&read, contract, answer.status);
        let other = classify(contract, rank, &facts(answer.status, &reordered, Some(&answer.body)));
        // Beyond their bound the first windows are kept, whichever they are.
        if answer.fields.len() <= WINDOWS_MAX {
            assert_eq!(decision(&read), decision(&other), "the order of fields decided");
        }
        holds(&classify(contract, rank, &facts(answer.status, &headers, None)));
        if rank == Rank::Read {
            held::check(answer.status, &read);
        }
    }
    holds(&classify_event(contract, &facts(answer.status, &headers, Some(&answer.body))));
}

/// What holds of every reading.
pub(super) fn holds(read: &Classification) {
    assert!(read.malformed.len() <= 16 && read.contradictions.len() <= 16 && read.windows.len() <= 64, "{read:?}");
    assert!(read.code.as_ref().is_none_or(|code| code.len() <= 64), "{read:?}");
    if let Some(boundary) = &read.boundary {
        assert_eq!(boundary.until, NOW.wall.plus_ms(boundary.wait_ms));
        assert!(boundary.until >= NOW.wall);
        assert!(boundary.raw.len() <= 1_024 && boundary.reading.len() <= 1_024, "{boundary:?}");
    }
    let text = serde_json::to_string(read).unwrap();
    assert!(text.len() <= 64 * 1024, "a record of {} bytes", text.len());
    assert_eq!(&serde_json::from_str::<Classification>(&text).unwrap(), read);
    let mut withheld = read.clone();
    withheld.withhold(|_| true);
    let text = serde_json::to_string(&withheld).unwrap();
    let shown = read.boundary.iter().map(|b| &b.raw).chain(&read.malformed).chain(&read.code);
    // A short text may stand in a key of the record.
    for shown in shown.filter(|shown| shown.len() > 40) {
        assert!(!text.contains(serde_json::to_string(shown).unwrap().trim_matches('"')), "{text}");
    }
}

/// A plain `Retry-After` is a floor, whatever else the answer says.
fn asks_for_no_less(read: &Classification, contract: &Contract, headers: &HeaderMap) {
    let mut lines = headers.get_all(RETRY_AFTER).iter();
    let (Some(line), None) = (lines.next().and_then(|line| line.to_str().ok()), lines.next()) else { return };
    let digits = !line.is_empty() && line.len() <= DELTA_DIGITS_MAX && line.bytes().all(|b| b.is_ascii_digit());
    if !digits || read.kind == Kind::Success || contract.retry_after_unit != RetryAfterUnit::Seconds {
        return;
    }
    let asked_ms = line.parse::<u64>().unwrap() * 1_000;
    assert!(read.boundary.as_ref().is_some_and(|b| b.wait_ms >= asked_ms), "{line}: {read:?}");
}

/// A write is sent again on this word alone.
fn only_a_refusal_is_before_work(read: &Classification, contract: &Contract, status: u16) {
    let by_contract = contract.codes.iter().any(|rule| rule.before_work == Some(true));
    let refused = (400..500).contains(&status) && !matches!(status, 408 | 409 | 425);
    assert!(!read.before_work || refused || by_contract, "{status}: {read:?}");
}

/// All of a reading that something is decided by.
fn decision(read: &Classification) -> impl PartialEq + std::fmt::Debug {
    let boundary = read.boundary.as_ref().map(|b| (b.wait_ms, b.source));
    (read.kind, read.before_work, boundary, read.should_retry, read.code.clone())
}
