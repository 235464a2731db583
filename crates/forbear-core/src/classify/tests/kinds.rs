//! From statuses, codes and verdicts to kinds.

use serde_json::json;

use super::*;
use crate::effect::{Answer, Effect, Evidence, effect};

#[test]
fn a_bare_status_has_its_kind() {
    for (status, kind) in [
        (100, Kind::Success),
        (200, Kind::Success),
        (204, Kind::Success),
        (301, Kind::Success),
        (304, Kind::Success),
        (400, Kind::Rejected),
        (401, Kind::Rejected),
        (402, Kind::Rejected),
        (403, Kind::Rejected),
        (404, Kind::Rejected),
        (408, Kind::Transient),
        (409, Kind::Conflict),
        (412, Kind::Rejected),
        (422, Kind::Rejected),
        (425, Kind::Transient),
        (428, Kind::Rejected),
        (429, Kind::Throttled),
        (431, Kind::Rejected),
        (500, Kind::Transient),
        (501, Kind::Rejected),
        (502, Kind::Transient),
        (503, Kind::Unavailable),
        (504, Kind::Transient),
        (505, Kind::Rejected),
        (511, Kind::Rejected),
        (529, Kind::Unavailable),
        (599, Kind::Transient),
    ] {
        let answer = generic(status, &[]);
        assert_eq!(answer.kind, kind, "{status}");
        assert!(answer.rule.starts_with(&format!("status {status}")), "{}", answer.rule);
        assert_eq!(answer.boundary, None, "{status}");
    }
}

#[test]
fn a_plain_success_says_nothing_and_allocates_no_rule() {
    let answer = generic(200, &[("content-type", "text/plain"), ("date", "nonsense"), ("age", "7")]);
    let expect = Classification {
        kind: Kind::Success,
        rule: Cow::Borrowed("status 200"),
        closes: Closes::Narrowest,
        before_work: false,
        boundary: None,
        windows: Vec::new(),
        should_retry: None,
        malformed: Vec::new(),
        contradictions: Vec::new(),
        below: None,
        code: None,
    };
    assert_eq!(answer, expect);
    assert!(matches!(answer.rule, Cow::Borrowed(_)));
}

#[test]
fn a_success_quoting_an_error_is_a_success() {
    let quoted = json!({"error": {"code": "insufficient_quota", "message": "retry in 5s"}});
    assert_eq!(with_body(200, &[], &quoted), generic(200, &[]));
}

#[test]
fn a_404_on_a_read_is_told_apart() {
    let headers = HeaderMap::new();
    let facts = ResponseFacts { status: 404, headers: &headers, body: None, received: at(0) };
    let rule = |rank| classify(&Contract::default(), rank, &facts).rule;
    assert_eq!(rule(Rank::Read), "status 404 on a read");
    assert_eq!(rule(Rank::UncertainWrite), "status 404");
}

#[test]
fn a_429_is_decided_before_work_where_the_contract_says_so() {
    for throttled_before_work in [true, false] {
        let contract = Contract { throttled_before_work, ..Contract::default() };
        assert_eq!(ask(&contract, 429, &[], "").before_work, throttled_before_work);
    }
    assert!(!generic(503, &[]).before_work);
    assert!(!generic(403, &[]).before_work);
}

#[test]
fn reading_a_refusal_better_never_makes_its_effect_unknown() {
    let facts = [
        generic(403, &[]),
        generic(403, &[("x-ratelimit-remaining", "0")]),
        ask(
            &codes(vec![code("body:type", "rate_limit", CodeMeaning::Throttled)]),
            400,
            &[],
            r#"{"type":"rate_limit"}"#,
        ),
    ];
    for answer in facts {
        let told = Answer { status: 403, kind: answer.kind, before_work: answer.before_work, resent_below: false };
        assert_eq!(effect(Evidence::Answered, Some(told)), Effect::NotApplied, "{answer:?}");
    }
}

#[test]
fn a_403_without_quota_is_throttled() {
    let spent = generic(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3")]);
    assert_eq!((spent.kind, wait(&spent)), (Kind::Throttled, Some(3_000)));
    let asked = generic(403, &[("retry-after", "60")]);
    assert_eq!((asked.kind, wait(&asked)), (Kind::Throttled, Some(60_000)));
    assert_eq!(generic(403, &[("x-ratelimit-remaining", "7")]).kind, Kind::Rejected);
    assert_eq!(generic(403, &[("retry-after", "soon")]).kind, Kind::Rejected);
}

#[test]
fn the_providers_verdict_is_read_exactly() {
    for (fields, expect, malformed, contradictions) in [
        (vec![("x-should-retry", "true")], Some(true), 0, 0),
        (vec![("x-should-retry", " FALSE ")], Some(false), 0, 0),
        (vec![("x-should-retry", "1")], None, 1, 0),
        (vec![("x-should-retry", "")], None, 1, 0),
        (vec![("x-should-retry", "true"), ("x-should-retry", "false")], Some(false), 0, 1),
        (vec![("x-should-retry", "false"), ("x-should-retry", "true")], Some(false), 0, 1),
        (vec![("stripe-should-retry", "true")], None, 0, 0),
    ] {
        let answer = generic(500, &fields);
        assert_eq!(answer.should_retry, expect, "{fields:?}");
        assert_eq!((answer.malformed.len(), answer.contradictions.len()), (malformed, contradictions), "{fields:?}");
        assert_eq!(answer.kind, Kind::Transient);
    }
}

#[test]
fn a_contract_may_want_every_throttle_to_name_its_wait() {
    let contract = Contract { throttle_needs_retry_after: true, ..Contract::default() };
    let of = |fields: &[(&str, &str)]| {
        let answer = ask(&contract, 429, fields, "");
        (answer.kind, answer.rule.into_owned(), answer.before_work)
    };
    assert_eq!(of(&[]), (Kind::Exhausted, "status 429 without retry-after".to_owned(), true));
    assert_eq!(of(&[("retry-after", "7")]).0, Kind::Throttled);
    assert_eq!(of(&[("retry-after-ms", "7")]).0, Kind::Throttled);
    // It is there, though nobody can read it.
    assert_eq!(of(&[("retry-after", "soon")]).0, Kind::Throttled);
    assert_eq!(ask(&contract, 503, &[], "").kind, Kind::Unavailable);
}

#[test]
fn an_error_event_is_told_by_its_code() {
    let anywhere = "body:error.metadata.provider_name";
    let contract = codes(vec![
        CodeRule { is: None, statuses: vec![429], ..code(anywhere, "", CodeMeaning::Throttled) },
        CodeRule { statuses: vec![503], ..code("body:error.code", "busy", CodeMeaning::Unavailable) },
        CodeRule { statuses: vec![403], ..code("body:error.code", "both", CodeMeaning::Rejected) },
        CodeRule { statuses: vec![200], ..code("body:error.code", "both", CodeMeaning::Throttled) },
        CodeRule { statuses: vec![500], ..code("body:error.code", "broke", CodeMeaning::Transient) },
    ]);
    for (data, kind, rule) in [
        (r#"{"error": {"code": "busy"}}"#, Kind::Unavailable, "error event, code error.code=busy"),
        (r#"{"error": {"code": "both"}}"#, Kind::Throttled, "error event, code error.code=both"),
        (r#"{"error": {"code": "broke"}}"#, Kind::Disguised, "error event, code error.code=broke"),
        (r#"{"error": {"code": "billing_off"}}"#, Kind::Exhausted, "error event, code error.code=billing_off"),
        // That a member is there says something of the statuses that its rule names, and nothing here.
        (r#"{"error": {"metadata": {"provider_name": "x"}}}"#, Kind::Disguised, "error event"),
        ("not json", Kind::Disguised, "error event"),
    ] {
        let facts =
            ResponseFacts { status: 200, headers: &HeaderMap::new(), body: Some(data.as_bytes()), received: at(0) };
        let read = classify_event(&contract, &facts);
        assert_eq!((read.kind, read.rule.as_ref(), read.before_work), (kind, rule, false), "{data}");
    }
}
