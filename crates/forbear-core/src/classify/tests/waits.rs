//! `Retry-After` and its siblings: RFC 9110, and how servers really write it.

use super::*;
use crate::contract::RetryAfterUnit;

/// All lines in one answer with the sample `Date`.
fn check(lines: &[&str], expect: Option<u64>) {
    let mut fields: Vec<_> = lines.iter().map(|line| ("retry-after", *line)).collect();
    fields.push(DATE);
    let answer = generic(429, &fields);
    assert_eq!(wait(&answer), expect, "{lines:?}");
    assert_eq!(answer.kind, Kind::Throttled);
    assert_eq!(answer.malformed.is_empty(), expect.is_some() || lines == [""], "{lines:?} {:?}", answer.malformed);
    if let Some(boundary) = answer.boundary {
        assert_eq!(boundary.source, BoundarySource::RetryAfter);
        assert_eq!(boundary.until, Wall(SERVER_MS).plus_ms(boundary.wait_ms));
    }
}

#[test]
fn the_vectors_of_the_standard() {
    check(&["120"], Some(120_000));
    check(&["Sun, 06 Nov 1994 08:49:37 GMT"], Some(30_000));
    check(&["Sunday, 06-Nov-94 08:49:37 GMT"], Some(30_000));
    check(&["Sun Nov  6 08:49:37 1994"], Some(30_000));
    check(&["2.0"], Some(2_000));
    check(&["-1"], None);
    check(&["99999999999999999999999999"], Some(u64::MAX));
    check(&["\t 007 "], Some(7_000));
    check(&["10", "30"], Some(30_000));
    check(&["30", "10"], Some(30_000));
    check(&["Sun, 06 Nov 1994 08:48:00 GMT"], Some(0));
    check(&["sun, 06 nov 1994 08:49:37 gmt"], Some(30_000));
}

#[test]
fn the_edges_of_the_standard() {
    check(&["-5"], None);
    check(&["+5"], None);
    check(&["1.5"], Some(1_500));
    check(&["1.0001"], Some(1_001));
    for junk in ["1e3", "NaN", "inf", "120s", "1m", "6m0s", "1 20", "120junk", "\"120\"", "\u{661}\u{662}", "soon"] {
        check(&[junk], None);
    }
    check(&["0"], Some(0));
    check(&[""], None);
    check(&["120, 60"], Some(120_000));
    check(&["60,120"], Some(120_000));
    check(&["120, junk"], None);
    check(&["120,"], None);
    check(&["1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"], Some(16_000));
    check(&["1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"], None);
    check(&["Sun, 06 Nov 1994 08:49:37 UTC"], None);
}

#[test]
fn one_valid_line_among_others_is_kept() {
    let answer = generic(429, &[("retry-after", "7"), ("retry-after", "junk")]);
    assert_eq!((wait(&answer), answer.malformed), (Some(7_000), vec!["retry-after: junk".to_owned()]));
    assert_eq!(answer.boundary.unwrap().raw, "7, junk");
}

#[test]
fn an_epoch_is_not_a_wait_of_decades() {
    let answer = generic(429, &[("retry-after", "784111777"), DATE]);
    assert_eq!(wait(&answer), Some(784_111_777_000), "below 10^9 nothing is guessed");
    let fields = [("retry-after", "1796000030"), ("date", "Mon, 30 Nov 2026 00:53:20 GMT")];
    let boundary = generic(429, &fields).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.reading.as_str()), (30_000, "epoch seconds against Date"));
    let boundary = ask_at(1_796_000_000_000, &[("retry-after", "1796000030000")]).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.reading.as_str()), (30_000, "epoch milliseconds against our clock"));
}

#[test]
fn instants_are_measured_on_the_servers_clock() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for skew_ms in [-90_000, 0, 90_000] {
        let boundary = ask_at(SERVER_MS + skew_ms, &[("retry-after", date), DATE]).boundary.unwrap();
        assert_eq!(boundary.reading, "http-date against Date");
        assert_eq!((boundary.wait_ms, boundary.until), (30_000, Wall(SERVER_MS + skew_ms + 30_000)));
    }
    for (fields, expect) in [
        (vec![("retry-after", date)], 20_000),
        (vec![("retry-after", date), ("date", "yesterday")], 20_000),
        // A cached answer's Date is as old as the answer.
        (vec![("retry-after", date), DATE, ("age", "40")], 20_000),
        (vec![("retry-after", date), DATE, ("age", "0")], 30_000),
        (vec![("retry-after", date), DATE, ("age", "old")], 30_000),
    ] {
        assert_eq!(wait(&ask_at(SERVER_MS + 10_000, &fields)), Some(expect), "{fields:?}");
    }
}

fn ask_at(wall_ms: i64, fields: &[(&str, &str)]) -> Classification {
    let headers = headers(fields);
    let facts = ResponseFacts { status: 429, headers: &headers, body: None, received: at(wall_ms) };
    classify(&Contract::default(), Rank::Read, &facts)
}

#[test]
fn the_longer_of_two_precisions_holds() {
    for (seconds, ms, expect, source) in [
        ("2", "1520", 2_000, BoundarySource::RetryAfter),
        ("1", "1520", 1_520, BoundarySource::RetryAfterMs),
        ("1", "1520.5", 1_521, BoundarySource::RetryAfterMs),
        ("2", "2000", 2_000, BoundarySource::RetryAfter),
        ("junk", "20", 20, BoundarySource::RetryAfterMs),
        ("3", "-1", 3_000, BoundarySource::RetryAfter),
    ] {
        let boundary = generic(429, &[("retry-after-ms", ms), ("retry-after", seconds)]).boundary.unwrap();
        assert_eq!((boundary.wait_ms, boundary.source), (expect, source), "{seconds} {ms}");
    }
    assert_eq!(wait(&generic(429, &[("x-amz-retry-after", "700")])), Some(700));
    assert_eq!(wait(&generic(429, &[("x-ms-retry-after-ms", "700")])), Some(700));
}

#[test]
fn the_contract_may_say_milliseconds() {
    let contract = Contract { retry_after_unit: RetryAfterUnit::Milliseconds, ..Contract::default() };
    let boundary = ask(&contract, 429, &[("retry-after", "555")], r#"{"retry_after": 555}"#).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.reading.as_str()), (555, "delta milliseconds, by the contract"));
    let by_body = ask(&contract, 429, &[], r#"{"retry_after": 555}"#);
    assert_eq!(wait(&by_body), Some(555));
    assert_eq!(wait(&ask(&contract, 429, &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), DATE], "")), Some(30_000));
}

#[test]
fn a_redirect_or_a_job_to_poll_closes_no_scope() {
    for status in [202, 301, 303] {
        assert_eq!(generic(status, &[("retry-after", "60")]).boundary, None, "{status}");
    }
    for status in [413, 429, 500, 503] {
        assert_eq!(wait(&generic(status, &[("retry-after", "60")])), Some(60_000), "{status}");
    }
}

#[test]
fn raw_values_are_kept_short_and_printable() {
    let long = "9".repeat(500);
    assert_eq!(generic(429, &[("retry-after", &long)]).boundary.unwrap().raw.len(), 128);
    let odd = generic(429, &[("retry-after", "sóon")]);
    assert_eq!(odd.malformed, [r"retry-after: s\xc3\xb3on"]);
    let many: Vec<_> = (0..90).map(|_| ("retry-after", "junk")).collect();
    assert_eq!(generic(429, &many).malformed.len(), 16);
}
