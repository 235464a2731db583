//! Limit windows: the RateLimit fields of every draft, the `x-ratelimit-*` families and the contract's headers.

use super::*;
use crate::contract::{LimitHeader, LimitPart, ValueFormat};

type Told<'a> = (&'a str, Option<u64>, Option<u64>, Option<u64>, Option<u64>);

fn told(answer: &Classification) -> Vec<Told<'_>> {
    answer.windows.iter().map(|w| (w.name.as_str(), w.limit, w.remaining, w.reset_ms, w.window_ms)).collect()
}

fn check(fields: &[(&str, &str)], windows: &[Told<'_>], malformed: &[&str]) {
    let answer = generic(200, fields);
    assert_eq!(told(&answer), windows, "{fields:?}");
    assert_eq!(answer.malformed, malformed, "{fields:?}");
}

#[test]
fn drafts_to_06_have_three_fields() {
    check(
        &[("ratelimit-limit", "100"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "50")],
        &[("default", Some(100), Some(0), Some(50_000), None)],
        &[],
    );
    check(
        &[("ratelimit-limit", "100, 100;w=60, 1000;w=3600")],
        &[
            ("default", Some(100), None, None, Some(60_000)),
            ("100;w=60", Some(100), None, None, Some(60_000)),
            ("1000;w=3600", Some(1_000), None, None, Some(3_600_000)),
        ],
        &[],
    );
    check(
        &[("ratelimit-limit", "100"), ("ratelimit-policy", r#"100;w=60;comment="sliding""#)],
        &[("default", Some(100), None, None, Some(60_000))],
        &[],
    );
    check(
        &[("ratelimit-remaining", "-1"), ("ratelimit-reset", "soon"), ("ratelimit-limit", "many")],
        &[],
        &["ratelimit-limit: many", "ratelimit-remaining: -1", "ratelimit-reset: soon"],
    );
}

#[test]
fn the_size_of_a_reset_tells_a_delta_from_an_epoch() {
    let fields = |reset| [("ratelimit-reset", reset), ("date", "Mon, 30 Nov 2026 00:53:20 GMT")];
    for (reset, expect) in [("41", 41_000), ("1796000041", 41_000), ("1796000041000", 41_000), ("1795999999", 0)] {
        check(&fields(reset), &[("default", None, None, Some(expect), None)], &[]);
    }
    let gitlab = [
        ("ratelimit-name", "throttle_authenticated_web"),
        ("ratelimit-observed", "67"),
        ("ratelimit-resettime", "Mon, 30 Nov 2026 00:54:01 GMT"),
        ("date", "Mon, 30 Nov 2026 00:53:20 GMT"),
    ];
    check(&gitlab, &[("throttle_authenticated_web", None, None, Some(41_000), None)], &[]);
}

#[test]
fn draft_07_is_a_dictionary() {
    let window = [("default", Some(100), Some(50), Some(5_000), None)];
    check(&[("ratelimit", "limit=100, remaining=50, reset=5")], &window, &[]);
    check(&[("ratelimit", "limit=100, reset=5, remaining=50;x=1, extra=?1")], &window, &[]);
    check(&[("ratelimit", "limit=100, remaining=50"), ("ratelimit", "reset=5")], &window, &[]);
    check(&[("ratelimit", "limit=100, reset=5")], &[("default", Some(100), None, Some(5_000), None)], &[]);
    for bad in
        ["limit=100", "limit=-1, reset=5", "limit=100, reset=5, remaining=x", "limit=100, reset=1.5", "reset=(5)"]
    {
        check(&[("ratelimit", bad)], &[], &[&format!("ratelimit: {bad}")]);
    }
}

#[test]
fn from_draft_08_on_there_are_named_policies() {
    check(&[("ratelimit", r#""default";r=50;t=30"#)], &[("default", None, Some(50), Some(30_000), None)], &[]);
    check(
        &[("ratelimit-policy", r#""burst";q=100;w=60,"daily";q=1000;w=86400"#)],
        &[("burst", Some(100), None, None, Some(60_000)), ("daily", Some(1_000), None, None, Some(86_400_000))],
        &[],
    );
    check(
        &[("ratelimit", r#""a";r=0;t=10;pk=:YQ==:, "b";r=5;note=x"#), ("ratelimit-policy", r#""a";q=9;w=60"#)],
        &[("a", Some(9), Some(0), Some(10_000), Some(60_000)), ("b", None, Some(5), None, None)],
        &[],
    );
    for bad in [r#""default";r=-1"#, r#""default";t=5"#, "default;r=1;t=5", r#""a";r=1;pk=7"#, r#"("a");r=1"#, "7;r=1"]
    {
        check(&[("ratelimit", bad)], &[], &[&format!("ratelimit: {bad}")]);
    }
}

#[test]
fn a_broken_policy_leaves_the_other_field() {
    let policy = r#""fixed window";"api";q=500;w=300"#;
    check(
        &[("ratelimit-policy", policy), ("ratelimit", r#""api";r=0;t=55"#)],
        &[("api", None, Some(0), Some(55_000), None)],
        &[&format!("ratelimit-policy: {policy}")],
    );
    for bad in [r#""a";w=60"#, r#""a";q=1;w=0"#, r#""a";q=-1"#, "a;q=1", r#""a";q=1;qu=7"#] {
        check(&[("ratelimit-policy", bad)], &[], &[&format!("ratelimit-policy: {bad}")]);
    }
}

#[test]
fn a_field_over_its_bound_is_not_read_in_part() {
    let long = format!(r#""a";r=0;t=10{}"#, ", \"b\";r=0;t=12345".repeat(300));
    let answer = generic(429, &[("ratelimit", &long)]);
    assert_eq!((answer.boundary, answer.windows, answer.malformed.len()), (None, vec![], 1));
}

#[test]
fn retry_after_wins_over_all_windows() {
    let fields =
        [("ratelimit", r#""a";r=0;t=10, "b";r=5"#), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")];
    let with_retry_after = [&fields[..], &[("retry-after", "3")]].concat();
    let source = |answer: Classification| answer.boundary.map(|b| (b.wait_ms, b.source));
    assert_eq!(source(generic(429, &with_retry_after)), Some((3_000, BoundarySource::RetryAfter)));
    assert_eq!(source(generic(429, &fields)), Some((10_000, BoundarySource::RateLimit)));
    assert_eq!(source(generic(429, &fields[1..])), Some((20_000, BoundarySource::LimitHeader)));
}

#[test]
fn a_success_that_spent_the_window_has_a_boundary() {
    let fields = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20")];
    assert_eq!((generic(200, &fields).kind, wait(&generic(200, &fields))), (Kind::Success, Some(20_000)));
    assert_eq!(wait(&generic(200, &[("x-ratelimit-remaining", "1"), fields[1]])), None);
    assert_eq!(wait(&generic(200, &[fields[1]])), None, "a reset alone says nothing on a success");
    assert_eq!(wait(&generic(429, &[fields[1]])), Some(20_000));
}

#[test]
fn a_cached_answer_tells_nothing_of_the_quota() {
    let fields =
        [("ratelimit", r#""a";r=0;t=10"#), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "20"), ("age", "3")];
    for status in [200, 403, 429] {
        let answer = generic(status, &fields);
        assert_eq!((answer.boundary, answer.windows), (None, vec![]), "{status}");
    }
    assert_eq!(wait(&generic(503, &[("retry-after", "9"), ("age", "3")])), Some(9_000));
}

#[test]
fn generic_families_have_their_window_in_the_name() {
    for (name, window) in [
        ("x-ratelimit-remaining", "default"),
        ("x-rate-limit-remaining", "default"),
        ("x-ratelimit-remaining-tokens", "tokens"),
        ("x-ratelimit-remaining-project-tokens", "project-tokens"),
        ("x-ratelimit-remaining-requests-day", "requests-day"),
        ("x-ratelimit-complexity-remaining", "complexity"),
        ("x-ratelimit-endpoint-requests-remaining", "endpoint-requests"),
    ] {
        check(&[(name, "7")], &[(window, None, Some(7), None, None)], &[]);
    }
    for name in
        ["x-ratelimit-used", "x-ratelimit-scope", "x-ratelimit-bucket", "x-ratelimitbysize-remaining", "x-ratelimited"]
    {
        check(&[(name, "0")], &[], &[]);
    }
    check(
        &[("x-rate-limit", "700"), ("x-rate-limit-remaining", "699")],
        &[("default", Some(700), Some(699), None, None)],
        &[],
    );
    check(
        &[("x-ratelimit-resource", "core"), ("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "59")],
        &[("core", Some(60), Some(59), None, None)],
        &[],
    );
}

#[test]
fn of_several_values_the_stricter_counts() {
    check(
        &[
            ("x-ratelimit-remaining", "5"),
            ("x-ratelimit-remaining", "3, 100"),
            ("x-ratelimit-reset", "7"),
            ("x-ratelimit-reset", "3, 9"),
            ("x-ratelimit-limit", "100, 100;w=60"),
        ],
        &[("default", Some(100), Some(3), Some(9_000), None)],
        &[],
    );
    check(
        &[("x-ratelimit-reset", "784111750.5"), ("x-ratelimit-reset-after", "64.57")],
        &[("default", None, None, Some(784_111_750_500), None)],
        &[],
    );
    check(&[("x-ratelimit-remaining", "64.57")], &[("default", None, Some(64), None, None)], &[]);
    check(
        &[("x-ratelimit-remaining", "-1"), ("x-ratelimit-reset", "1e9"), ("x-ratelimit-limit", "")],
        &[],
        &["x-ratelimit-remaining: -1", "x-ratelimit-reset: 1e9"],
    );
}

#[test]
fn windows_have_a_bound() {
    let names: Vec<_> = (0..90).map(|at| format!("x-ratelimit-remaining-{at}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let answer = generic(200, &fields);
    assert_eq!((answer.windows.len(), answer.malformed.len()), (32, 16));
}

#[test]
fn the_contract_explains_its_own_headers() {
    let header = |name: &str, reads, window: &str, format| LimitHeader {
        name: name.into(),
        reads,
        window: window.into(),
        format,
    };
    let contract = Contract {
        limit_headers: vec![
            header("Anthropic-RateLimit-*-Remaining", LimitPart::Remaining, "*", ValueFormat::Auto),
            header("anthropic-ratelimit-*-reset", LimitPart::Reset, "*", ValueFormat::Rfc3339),
            header("X-Shopify-Shop-Api-Call-Limit", LimitPart::Remaining, "calls", ValueFormat::Fraction),
            header("zendesk-ratelimit-tickets-index", LimitPart::Limit, "tickets", ValueFormat::Fraction),
            header("x-ratelimit-reset", LimitPart::Reset, "calls", ValueFormat::DeltaMsInt),
        ],
        ..Contract::default()
    };
    let answer = ask(
        &contract,
        429,
        &[
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            ("anthropic-ratelimit-input-tokens-reset", "1994-11-06T08:49:37Z"),
            ("anthropic-ratelimit-requests-remaining", "40"),
            ("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:08Z"),
            ("x-shopify-shop-api-call-limit", "32/40"),
            ("zendesk-ratelimit-tickets-index", "total=100; remaining=99; resets=41"),
            ("x-ratelimit-reset", "1520"),
            DATE,
        ],
        "",
    );
    let expect = [
        ("input-tokens", None, Some(0), Some(30_000), None),
        ("requests", None, Some(40), Some(1_000), None),
        ("calls", Some(40), Some(8), Some(1_520), None),
        ("tickets", Some(100), Some(99), Some(41_000), None),
    ];
    let mut windows = told(&answer);
    windows.sort_unstable();
    let mut expect = expect.to_vec();
    expect.sort_unstable();
    assert_eq!(windows, expect);
    let boundary = answer.boundary.unwrap();
    assert_eq!((boundary.wait_ms, boundary.source), (30_000, BoundarySource::LimitHeader));
    assert_eq!(boundary.reading, "reset of input-tokens, RFC 3339 date against Date");
    assert_eq!(boundary.raw, "1994-11-06T08:49:37Z");
}

#[test]
fn instants_that_speak_against_each_other_are_named() {
    let at_reset = |wall_ms: i64, fields: &[(&str, &str)]| {
        let headers = headers(fields);
        let facts = ResponseFacts { status: 429, headers: &headers, body: None, received: at(wall_ms) };
        classify(&Contract::default(), Rank::Read, &facts)
    };
    let past = [DATE, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-06T08:48:20Z")];
    let answer = at_reset(SERVER_MS, &past);
    assert_eq!(wait(&answer), Some(0));
    assert_eq!(answer.contradictions, ["nothing is left of default, and its reset is past"]);

    let skewed = [DATE, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-06T08:49:37Z")];
    for (off_s, expect) in [
        (0, None),
        (29, None),
        (-90, Some("the provider's clock is 90 s ahead of ours")),
        (90, Some("the provider's clock is 90 s behind ours")),
    ] {
        let answer = at_reset(SERVER_MS + off_s * 1_000, &skewed);
        assert_eq!(wait(&answer), Some(30_000), "{off_s}");
        assert_eq!(answer.contradictions.first().map(String::as_str), expect, "{off_s}");
    }

    let two = [("retry-after", "3"), ("ratelimit", r#""a";r=0;t=10, "b";r=5;t=900"#)];
    let answer = at_reset(SERVER_MS, &two);
    assert_eq!(wait(&answer), Some(3_000));
    assert_eq!(answer.contradictions, ["a wait of 3000 ms is asked for, and a opens in 10000 ms"]);
}
