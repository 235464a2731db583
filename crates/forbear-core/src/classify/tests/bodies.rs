//! What a look into an error's body decides.

use std::io::Write;

use serde_json::json;

use super::*;

#[test]
fn problem_types_of_the_draft() {
    let problem = |fragment: &str| {
        json!({"type": format!("https://iana.org/assignments/http-problem-types#{fragment}"),
            "title": "Over quota", "violated-policies": ["daily"]})
    };
    let daily = [("ratelimit-policy", r#""burst";q=9;w=60, "daily";q=1000;w=86400"#)];
    assert_eq!(with_body(429, &[], &json!({})).kind, Kind::Throttled);
    assert_eq!(with_body(429, &[], &problem("quota-exceeded")).kind, Kind::Throttled);
    let answer = with_body(429, &daily, &problem("quota-exceeded"));
    assert_eq!((answer.kind, answer.code.as_deref()), (Kind::Exhausted, Some("Over quota")));
    assert_eq!(with_body(503, &[], &problem("temporary-reduced-capacity")).kind, Kind::Unavailable);
    assert_eq!(with_body(429, &[], &problem("abnormal-usage-detected")).kind, Kind::Rejected);
    assert_eq!(with_body(429, &[], &json!({"status": "429"})).kind, Kind::Throttled);
}

#[test]
fn a_violated_policy_decides_although_others_are_later() {
    let problem = json!({"type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "violated-policies": ["burst"]});
    let fields = [("ratelimit", r#""burst";r=2;t=7, "hourly";r=50;t=900"#)];
    let answer = with_body(429, &fields, &problem);
    assert_eq!((wait(&answer), answer.contradictions.len()), (Some(7_000), 0));
}

#[test]
fn spent_quotas_are_known_on_any_provider() {
    for (body, kind) in [
        (json!({"error": {"code": "insufficient_quota"}}), Kind::Exhausted),
        (json!({"error": {"type": "insufficient_quota", "code": null}}), Kind::Exhausted),
        (json!({"error": {"code": "billing_hard_limit_reached"}}), Kind::Exhausted),
        (json!({"error": {"code": "project_spend_limit_exceeded"}}), Kind::Exhausted),
        (json!({"error": {"code": "organization_usage_limit_exceeded"}}), Kind::Exhausted),
        (json!({"error": {"code": "rate_limit_exceeded"}}), Kind::Throttled),
        (json!({"error": {"message": "insufficient_quota"}}), Kind::Throttled),
        (json!({"error": "insufficient_quota"}), Kind::Throttled),
        (json!([1, 2]), Kind::Throttled),
    ] {
        assert_eq!(with_body(429, &[], &body).kind, kind, "{body}");
    }
    let elsewhere = json!({"error": {"code": "insufficient_quota"}});
    assert_eq!(with_body(400, &[], &elsewhere).kind, Kind::Rejected);
}

#[test]
fn a_contracts_rule_comes_first() {
    let contract = codes(vec![
        CodeRule { statuses: vec![200], ..code("body:errors.extensions.code", "THROTTLED", CodeMeaning::Throttled) },
        CodeRule { statuses: vec![200], ..code("body:ok", "false", CodeMeaning::Rejected) },
        code("body:error.errors[].reason", "dailyLimitExceeded", CodeMeaning::Exhausted),
        code("body:error.code", "7", CodeMeaning::Unavailable),
        code("header:Stripe-Rate-Limited-Reason", "global-concurrency", CodeMeaning::Throttled),
        CodeRule { before_work: Some(true), ..code("body:code", "overloaded", CodeMeaning::Transient) },
        code("body:code", "in_progress", CodeMeaning::InProgress),
        code("body:code", "mismatch", CodeMeaning::KeyMismatch),
    ]);
    let of = |status, body: &Value| {
        let answer = ask(&contract, status, &[], &body.to_string());
        (answer.kind, answer.rule.into_owned(), answer.before_work)
    };
    let rule = |kind, rule: &str, before_work| (kind, rule.to_owned(), before_work);
    assert_eq!(
        of(200, &json!({"errors": [{"extensions": {"code": "THROTTLED"}}]})),
        rule(Kind::Throttled, "code errors.extensions.code=THROTTLED", false)
    );
    assert_eq!(of(200, &json!({"errors": [{"message": "THROTTLED"}]})), rule(Kind::Success, "status 200", false));
    assert_eq!(of(200, &json!({"ok": false})), rule(Kind::Disguised, "code ok=false", false));
    assert_eq!(
        of(403, &json!({"error": {"errors": [{"reason": "x"}, {"reason": "dailyLimitExceeded"}]}})),
        rule(Kind::Exhausted, "code error.errors[].reason=dailyLimitExceeded", true)
    );
    assert_eq!(of(500, &json!({"error": {"code": 7}})), rule(Kind::Unavailable, "code error.code=7", false));
    assert_eq!(of(500, &json!({"code": "overloaded"})), rule(Kind::Transient, "code code=overloaded", true));
    assert_eq!(of(409, &json!({"code": "in_progress"})), rule(Kind::InProgress, "code code=in_progress", false));
    assert_eq!(of(400, &json!({"code": "mismatch"})), rule(Kind::Rejected, "code code=mismatch", false));
    let by_header = ask(&contract, 429, &[("stripe-rate-limited-reason", "global-concurrency")], "");
    assert_eq!(by_header.rule, "code header:Stripe-Rate-Limited-Reason=global-concurrency");
}

#[test]
fn a_rule_doubts_a_success_only_where_it_names_its_status() {
    let quoted = r#"{"error": {"code": "slow_down"}}"#;
    let anywhere = code("body:error.code", "slow_down", CodeMeaning::Throttled);
    assert_eq!(ask(&codes(vec![anywhere.clone()]), 200, &[], quoted), generic(200, &[]));
    let by_header = code("header:x-code", "slow_down", CodeMeaning::Throttled);
    assert_eq!(ask(&codes(vec![by_header]), 200, &[("x-code", "slow_down")], ""), generic(200, &[]));
    let named = codes(vec![CodeRule { statuses: vec![200], ..anywhere }]);
    let answer = ask(&named, 200, &[("retry-after", "7")], quoted);
    assert_eq!((answer.kind, wait(&answer), answer.before_work), (Kind::Throttled, Some(7_000), false));
    assert_eq!(answer.code.as_deref(), Some("slow_down"));
}

#[test]
fn the_code_is_the_most_specific_text() {
    for (body, expect) in [
        (json!({"error": {"code": "a", "type": "b"}, "title": "c"}), Some("a")),
        (json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}), Some("RESOURCE_EXHAUSTED")),
        (json!({"type": "error", "error": {"type": "overloaded_error"}}), Some("overloaded_error")),
        (json!({"code": 30}), Some("30")),
        (json!({"title": "Out"}), Some("Out")),
        (json!({"message": "m"}), None),
    ] {
        assert_eq!(with_body(500, &[], &body).code.as_deref(), expect, "{body}");
    }
    let long = with_body(500, &[], &json!({"code": "ä".repeat(90)}));
    assert_eq!(long.code.unwrap().len(), 64);
}

#[test]
fn compressed_bodies_are_read_on_a_copy() {
    let body = json!({"error": {"code": "insufficient_quota"}}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(body.as_bytes()).unwrap();
    let mut bare = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    bare.write_all(body.as_bytes()).unwrap();
    let (gzip, zlib, bare) = (gzip.finish().unwrap(), zlib.finish().unwrap(), bare.finish().unwrap());
    for (coding, bytes, kind) in [
        ("gzip", &gzip[..], Kind::Exhausted),
        ("X-GZIP", &gzip[..], Kind::Exhausted),
        ("deflate", &zlib[..], Kind::Exhausted),
        ("deflate", &bare[..], Kind::Exhausted),
        ("identity", body.as_bytes(), Kind::Exhausted),
        ("br", &gzip[..], Kind::Throttled),
        ("gzip", &gzip[..gzip.len() / 2], Kind::Throttled),
        ("gzip", body.as_bytes(), Kind::Throttled),
    ] {
        let headers = headers(&[("content-encoding", coding)]);
        let facts = ResponseFacts { status: 429, headers: &headers, body: Some(bytes), received: at(0) };
        assert_eq!(classify(&Contract::default(), Rank::Read, &facts).kind, kind, "{coding}");
    }
}

#[test]
fn a_small_body_cannot_grow_without_bound() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 30 * BODY_BYTES_MAX]).unwrap();
    bomb.write_all(br#"{"error":{"code":"insufficient_quota"}}"#).unwrap();
    let bomb = bomb.finish().unwrap();
    let headers = headers(&[("content-encoding", "gzip")]);
    let facts = ResponseFacts { status: 429, headers: &headers, body: Some(&bomb), received: at(0) };
    assert_eq!(classify(&Contract::default(), Rank::Read, &facts).kind, Kind::Throttled);
    let deep = "[".repeat(60_000);
    assert_eq!(ask(&Contract::default(), 429, &[], &deep).kind, Kind::Throttled);
}

#[test]
fn waits_in_members_and_in_prose() {
    for (body, expect) in [
        (json!({"error": {"resets_in_seconds": 133_107}}), Some(133_107_000)),
        (json!({"error": {"resets_at": 1_796_000_000}}), Some(1_011_888_253_000)),
        (json!({"retry_after": 0.503, "global": false}), Some(503)),
        (json!({"retry_after": "5"}), Some(5_000)),
        (json!({"parameters": {"retry_after": 35}}), Some(35_000)),
        (
            json!({"error": {"details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "600.5s"}]}}),
            Some(600_500),
        ),
        (json!({"error": {"message": "Please retry in 10h17m5.7s."}}), Some(37_025_700)),
        (json!({"message": "Try again in 3 minutes"}), Some(180_000)),
        (json!({"detail": "retry after 37 seconds"}), Some(37_000)),
        (json!({"error": "retry after 37 seconds"}), Some(37_000)),
        (json!({"retry_after": 5, "message": "retry after 37 seconds"}), Some(5_000)),
        (json!({"error": {"user": "retry after 37 seconds"}}), None),
        (json!({"retry_after": null}), None),
    ] {
        let answer = with_body(429, &[], &body);
        assert_eq!(wait(&answer), expect, "{body}");
        if let Some(boundary) = answer.boundary {
            assert_eq!(boundary.source, BoundarySource::Body);
        }
        assert_eq!(wait(&with_body(404, &[], &body)), None, "{body}");
    }
    let bad = with_body(429, &[], &json!({"error": {"resets_in_seconds": -1}}));
    assert_eq!((wait(&bad), bad.malformed), (None, vec!["body error.resets_in_seconds: -1".to_owned()]));
}

#[test]
fn a_rule_takes_one_of_several_words_and_names_the_one_it_met() {
    let contract = codes(vec![
        CodeRule {
            is: None,
            is_any: vec!["DAILY".into(), "MONTHLY".into()],
            ..code("body:policyName", "", CodeMeaning::Exhausted)
        },
        CodeRule {
            is: None,
            contains_any: vec!["Throttl".into(), "SlowDown".into()],
            ..code("header:x-amzn-errortype", "", CodeMeaning::Throttled)
        },
        CodeRule { is: None, statuses: vec![477], ..code("", "", CodeMeaning::Unavailable) },
    ]);
    for (status, fields, body, expect) in [
        (429, vec![], json!({"policyName": "MONTHLY"}), (Kind::Exhausted, "code policyName=MONTHLY")),
        (429, vec![], json!({"policyName": "SECONDLY"}), (Kind::Throttled, "status 429")),
        (429, vec![], json!({"policyName": ["DAILY"]}), (Kind::Throttled, "status 429")),
        (
            400,
            vec![("x-amzn-errortype", "ThrottlingException:http://x")],
            json!({}),
            (Kind::Throttled, "code header:x-amzn-errortype~Throttl"),
        ),
        (477, vec![], json!({}), (Kind::Unavailable, "contract status 477")),
        (478, vec![], json!({}), (Kind::Rejected, "status 478")),
    ] {
        let answer = ask(&contract, status, &fields, &body.to_string());
        assert_eq!((answer.kind, answer.rule.as_ref()), expect, "{status} {body}");
    }
}

#[test]
fn text_that_is_no_json_is_read_where_a_rule_asks_for_it() {
    let contract = codes(vec![
        CodeRule {
            is: None,
            contains: Some("<Code>SlowDown</Code>".into()),
            ..code("text", "", CodeMeaning::Throttled)
        },
        CodeRule { is: None, contains: Some("Retry later".into()), ..code("text", "", CodeMeaning::Throttled) },
    ]);
    let kind = |body: &str| ask(&contract, 503, &[], body).kind;
    assert_eq!(kind("<Error><Code>SlowDown</Code></Error>"), Kind::Throttled);
    assert_eq!(kind("Retry later\n"), Kind::Throttled);
    assert_eq!(kind("Retry later \u{fffd}"), Kind::Throttled);
    // Text inside JSON is somebody's words.
    assert_eq!(kind(r#"{"message": "Retry later"}"#), Kind::Unavailable);
    assert_eq!(kind("<Code>Other</Code>"), Kind::Unavailable);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(b"<Code>SlowDown</Code>").unwrap();
    let (packed, fields) = (gzip.finish().unwrap(), headers(&[("content-encoding", "gzip")]));
    let facts = ResponseFacts { status: 503, headers: &fields, body: Some(&packed), received: at(SERVER_MS) };
    assert_eq!(classify(&contract, Rank::Read, &facts).kind, Kind::Throttled);
    let cut = ResponseFacts { body: Some(b"Retry later \xff"), headers: &headers(&[]), ..facts };
    assert_eq!(classify(&contract, Rank::Read, &cut).rule, "code text~Retry later");
}

#[test]
fn a_contract_names_members_that_say_when() {
    let wait_rule = |at: &str, format, has: Option<&str>, per_second: Option<&str>| WaitRule {
        at: at.into(),
        format,
        has: has.map(Into::into),
        per_second: per_second.map(Into::into),
    };
    let contract = Contract {
        waits: vec![
            wait_rule("error.limit.reset", ValueFormat::EpochS, None, None),
            wait_rule("json.errors.[].1", ValueFormat::Prose, None, None),
            wait_rule("cost.needs", ValueFormat::Auto, Some("cost.has"), Some("cost.rate")),
        ],
        ..codes(vec![CodeRule { statuses: vec![200], ..code("body:errors.code", "THROTTLED", CodeMeaning::Throttled) }])
    };
    for (status, body, expect) in [
        (429, json!({"error": {"limit": {"reset": 784_111_777}}}), Some(30_000)),
        (429, json!({"json": {"errors": [["RATELIMIT", "Take a break for 3 minutes", "ratelimit"]]}}), Some(180_000)),
        (429, json!({"cost": {"needs": 252, "has": 52.9, "rate": 100.0}}), Some(2_000)),
        (429, json!({"cost": {"needs": 253.5, "has": 52.9, "rate": 100}}), Some(2_020)),
        (429, json!({"cost": {"needs": 5, "has": 52, "rate": 100}}), Some(0)),
        (429, json!({"cost": {"needs": 5, "has": 2, "rate": 0}}), None),
        (429, json!({"cost": {"needs": 5, "has": 2}}), None),
        (200, json!({"errors": [{"code": "THROTTLED"}], "cost": {"needs": 3, "has": 1, "rate": 1}}), Some(2_000)),
        (200, json!({"cost": {"needs": 3, "has": 1, "rate": 1}}), None),
    ] {
        assert_eq!(wait(&ask(&contract, status, &[], &body.to_string())), expect, "{status} {body}");
    }
}
