//! Faults reported elsewhere, as far as reading the answer rightly prevents them.

use serde_json::json;

use super::*;

const NOW_MS: i64 = 1_796_000_000_000;
const NOW_DATE: (&str, &str) = ("date", "Mon, 30 Nov 2026 00:53:20 GMT");

fn on_skewed_clock(status: u16, skew_ms: i64, fields: &[(&str, &str)]) -> Classification {
    let headers = headers(fields);
    let facts = ResponseFacts { status, headers: &headers, body: None, received: at(NOW_MS + skew_ms) };
    classify(&Contract::default(), Rank::Read, &facts)
}

#[test]
fn trailing_junk_is_no_prefix_of_a_delay() {
    let answer = generic(429, &[("retry-after", "120junk")]);
    assert_eq!((answer.boundary, answer.malformed), (None, vec!["retry-after: 120junk".to_owned()]));
}

#[test]
fn a_fraction_of_a_second_is_a_delay() {
    let boundary = generic(429, &[("retry-after", "0.503")]).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.raw.as_str()), (503, "0.503"));
}

#[test]
fn seconds_are_seconds() {
    assert_eq!(wait(&generic(429, &[("retry-after", "5")])), Some(5_000));
    assert_eq!(wait(&with_body(429, &[("retry-after", "555")], &json!({"retry_after": 555}))), Some(555_000));
}

#[test]
fn an_epoch_in_retry_after_is_read_as_one() {
    let fields = [("retry-after", "1796000030"), ("x-ratelimit-reset", "1796000030")];
    let boundary = on_skewed_clock(429, 0, &fields).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.reading.as_str()), (30_000, "epoch seconds against our clock"));
}

#[test]
fn of_two_lines_the_longer_counts_and_both_are_kept() {
    let boundary = generic(429, &[("retry-after", "1"), ("retry-after", "7")]).boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.raw.as_str()), (7_000, "1, 7"));
}

#[test]
fn a_reset_that_is_past_is_zero_not_a_maximum() {
    let fields = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1795999998")];
    let answer = on_skewed_clock(403, 0, &fields);
    assert_eq!((answer.kind, wait(&answer)), (Kind::Throttled, Some(0)));
}

#[test]
fn compound_durations_are_whole() {
    for (text, expect) in [("17ms", 17), ("1.5s", 1_500), ("6m0s", 360_000), ("23h47m36.648s", 85_656_648)] {
        assert_eq!(wait(&generic(429, &[("x-ratelimit-reset-requests", text)])), Some(expect), "{text}");
    }
    let broken = generic(429, &[("x-ratelimit-reset-requests", "23h47q")]);
    assert_eq!((broken.boundary, broken.malformed.len()), (None, 1));
}

#[test]
fn the_spent_window_is_not_hidden_by_a_shorter_one() {
    let answer = generic(
        429,
        &[
            ("x-ratelimit-remaining-requests", "4999"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ],
    );
    assert_eq!(wait(&answer), Some(360_000));
    let tokens = answer.windows.iter().find(|window| window.name == "tokens").unwrap();
    assert_eq!(tokens.remaining, Some(0));
    assert!(answer.contradictions.is_empty());
}

#[test]
fn counters_of_a_limit_that_passed_are_no_boundary() {
    let fields = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "56"), ("x-ratelimit-reset", "12")];
    let answer = generic(429, &fields);
    assert_eq!(answer.boundary, None);
    assert_eq!(answer.contradictions, ["429 with quota left: default has 56"]);
    assert!(generic(200, &fields).contradictions.is_empty());
}

#[test]
fn dates_count_from_the_servers_own() {
    let past = on_skewed_clock(429, 0, &[("retry-after", "Mon, 30 Nov 2026 00:51:50 GMT"), NOW_DATE]);
    assert_eq!(wait(&past), Some(0));
    let ahead = on_skewed_clock(429, 100_000, &[("retry-after", "Mon, 30 Nov 2026 00:53:30 GMT"), NOW_DATE]);
    assert_eq!(wait(&ahead), Some(10_000));
}

#[test]
fn all_layouts_of_a_date_are_known() {
    let now_ms = 1_956_528_000_000;
    for (date, expect) in [
        ("Thu, 01 Jan 2032 00:00:30 GMT", Some(30_000)),
        ("Thursday, 01-Jan-32 00:00:30 GMT", Some(30_000)),
        ("Thu Jan  1 00:00:30 2032", Some(30_000)),
        ("Thu, 01 Jan 2032 00:00:30 UTC", None),
    ] {
        assert_eq!(wait(&on_skewed_clock(429, now_ms - NOW_MS, &[("retry-after", date)])), expect, "{date}");
    }
}

#[test]
fn a_reset_in_the_same_second_is_zero_on_any_clock() {
    for skew_ms in [0, 90_000, -90_000] {
        let fields = [NOW_DATE, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1796000000")];
        let answer = on_skewed_clock(403, skew_ms, &fields);
        assert_eq!((answer.kind, wait(&answer)), (Kind::Throttled, Some(0)), "{skew_ms}");
        assert_eq!(answer.boundary.unwrap().until, Wall(NOW_MS + skew_ms));
    }
}

#[test]
fn a_spent_usage_limit_is_never_a_burst() {
    let body = json!({"error": {"type": "usage_limit_reached", "resets_in_seconds": 133_107}});
    for fields in [&[][..], &[("retry-after", "2")]] {
        let answer = with_body(429, fields, &body);
        assert_eq!((answer.kind, wait(&answer)), (Kind::Exhausted, Some(133_107_000)), "{fields:?}");
        assert_eq!(answer.rule, "code error.type=usage_limit_reached");
    }
}

#[test]
fn a_reset_that_stands_only_in_prose_is_found_whole() {
    let week = with_body(429, &[], &json!({"error": {"message": "<quota reached> Resets in 164h27m24s."}}));
    let boundary = week.boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.source), (592_044_000, BoundarySource::Body));
    assert_eq!(
        (boundary.reading.as_str(), boundary.raw.as_str()),
        ("error.message, duration in prose", "resets in 164h27m24s")
    );
    let body = json!({"error": {"type": "GoUsageLimitError", "message": "... Resets in 4hr 59min"}});
    let answer = with_body(429, &[], &body);
    assert_eq!((answer.kind, wait(&answer)), (Kind::Exhausted, Some(17_940_000)));
}

#[test]
fn reasons_of_a_403_are_told_apart() {
    let at = "body:error.errors.reason";
    let contract = codes(vec![
        code(at, "rateLimitExceeded", CodeMeaning::Throttled),
        code(at, "userRateLimitExceeded", CodeMeaning::Throttled),
        code(at, "dailyLimitExceeded", CodeMeaning::Exhausted),
    ]);
    for (reason, kind) in [
        ("rateLimitExceeded", Kind::Throttled),
        ("userRateLimitExceeded", Kind::Throttled),
        ("dailyLimitExceeded", Kind::Exhausted),
        ("forbidden", Kind::Rejected),
    ] {
        let body = json!({"error": {"code": 403, "errors": [{"domain": "usageLimits", "reason": reason}]}});
        let answer = ask(&contract, 403, &[], &body.to_string());
        assert_eq!((answer.kind, answer.boundary), (kind, None), "{reason}");
    }
}

#[test]
fn a_secondary_limit_is_known_by_its_text_alone() {
    let contract = codes(vec![CodeRule {
        is: None,
        contains: Some("secondary rate limit".into()),
        statuses: vec![403, 429],
        wait_seconds: Some(60),
        ..code("body:message", "", CodeMeaning::Throttled)
    }]);
    let with = |fields: &[_], message: &str| ask(&contract, 403, fields, &json!({"message": message}).to_string());
    let of = |message: &str| with(&[], message);
    let limited = of("You have exceeded a secondary rate limit. Please wait.");
    let boundary = limited.boundary.as_ref().unwrap();
    assert_eq!((boundary.wait_ms, boundary.source), (60_000, BoundarySource::Contract));
    let told = with(&[("retry-after", "7")], "a secondary rate limit");
    assert_eq!(wait(&told), Some(7_000), "what the answer says itself comes first");
    assert_eq!((limited.kind, limited.rule.as_ref()), (Kind::Throttled, "code message~secondary rate limit"));
    assert_eq!(of("Resource not accessible").kind, Kind::Rejected);
}

#[test]
fn a_concurrency_limit_in_a_400_needs_the_contract() {
    let body = json!({"error": {"type": "rate_limit", "message": "5 concurrent"}}).to_string();
    let contract =
        codes(vec![CodeRule { statuses: vec![400], ..code("body:error.type", "rate_limit", CodeMeaning::Throttled) }]);
    assert_eq!(ask(&contract, 400, &[], &body).kind, Kind::Throttled);
    assert_eq!(ask(&Contract::default(), 400, &[], &body).kind, Kind::Rejected);
}

#[test]
fn an_overload_notice_in_a_200_is_passed_on() {
    let notice = json!({"choices": [{"message": {"content": "Overloaded. Try again in 3 minutes"}}]});
    assert_eq!(with_body(200, &[], &notice).kind, Kind::Success);
}

#[test]
fn a_verdict_is_told_beside_the_kind() {
    let no = generic(429, &[("x-should-retry", "false")]);
    assert_eq!((no.kind, no.should_retry), (Kind::Throttled, Some(false)));
    let yes = generic(400, &[("x-should-retry", "true")]);
    assert_eq!((yes.kind, yes.should_retry), (Kind::Rejected, Some(true)));
}

#[test]
fn overload_is_not_a_429() {
    let answer = with_body(529, &[], &json!({"type": "error", "error": {"type": "overloaded_error"}}));
    assert_eq!((answer.kind, answer.rule.as_ref()), (Kind::Unavailable, "status 529"));
    assert_eq!(answer.code.as_deref(), Some("overloaded_error"));
}

#[test]
fn a_page_instead_of_json_is_opaque() {
    let fields = [("content-type", "text/html"), ("retry-after", "5")];
    let answer = ask(&Contract::default(), 429, &fields, "<!DOCTYPE html><p>retry in 1s</p>");
    assert_eq!((answer.kind, wait(&answer), answer.code), (Kind::Throttled, Some(5_000), None));
}
