//! Group C: the same status means many things, and a code, a reason or a sentence says which.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::rig::{Got, Rig};
use crate::told::{QUICK, QUICK_FIRST_MAX, closed_row, journal, understood};

/// The provider `p`, which extends `extends`, with more keys of its own and few patience.
fn policy(extends: &str, more: &str) -> String {
    format!(
        "{QUICK}request_classes: {{read: {{max_wait_seconds: 5}}, inference: {{max_wait_seconds: 5}}}}\nproviders:\n  p:\n    \
         extends: {extends}\n    base_url: $BASE\n{more}"
    )
}

/// One answer, and a good one after it.
fn once(answer: &Value) -> String {
    json!({"routes": [{"match": "* /{rest...}", "then": [answer, {"body": {"fine": true}}]}]}).to_string()
}

async fn post(rig: &Rig, path: &str, body: &str) -> Got {
    rig.call("POST", path, &[("authorization", "Bearer k1"), ("content-type", "application/json")], body).await
}

fn is_closed(rig: &Rig) -> bool {
    rig.running.shard().scopes(1).iter().any(|row| row.next_allowed_at.is_some())
}

/// A client that repeats what it is told not to repeat gets the same word, and nothing leaves for it.
#[tokio::test]
async fn fb_043_a_spent_quota_costs_one_send_however_often_it_is_posted() {
    let refusal =
        json!({"status": 429, "body": {"error": {"type": "usage_limit_reached", "resets_in_seconds": 133_107}}});
    let rig = Rig::new(&once(&refusal), &policy("openai", "")).await;
    let turn = json!({"model": "m", "input": "x".repeat(1_128_388)}).to_string();
    assert_eq!(turn.len(), 1_128_412);
    let first = post(&rig, "/p/v1/responses", &turn).await;
    assert_eq!((first.status, first.header("forbear-outcome")), (429, "rejected"), "{first:?}");
    assert_eq!(first.json()["error"]["type"], "usage_limit_reached");
    let boundary = closed_row(&rig).await.next_allowed_at;
    let mut told = Vec::new();
    for _ in 0..8 {
        let got = post(&rig, "/p/v1/responses", &turn).await;
        assert_eq!((got.status, got.header("forbear-outcome")), (429, "deferred"), "{got:?}");
        let seconds: u64 = got.header("retry-after").parse().unwrap();
        assert!((133_100..=133_108).contains(&seconds), "{seconds}");
        told.push(got.json()["next_allowed_at"].clone());
        assert_eq!(rig.running.shard().scopes(1)[0].next_allowed_at, boundary);
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    let arrivals = rig.provider.arrivals();
    assert_eq!((arrivals.len(), arrivals[0].body_bytes), (1, 1_128_412));
}

/// Everybody is told of the whole wait, and nobody is sent. That none is in ten minutes either is in forbear-core's tests;
/// the case that is opened for so long a wait comes later.
async fn check_prose(error: Value, seconds: u64, outcome: &str, first_words: &str) {
    let rig = Rig::new(&once(&json!({"status": 429, "body": {"error": error}})), &policy("openai", "")).await;
    let got = post(&rig, "/p/v1/responses", "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, outcome), "{got:?}");
    let row = closed_row(&rig).await;
    assert_eq!((row.source.as_deref(), row.raw.as_deref()), (Some("body"), Some(first_words)));
    assert!((seconds - 5..=seconds + 1).contains(&row.reset_after_seconds.unwrap()), "{row:?}");
    for got in join_all((0..5).map(|_| post(&rig, "/p/v1/responses", "{}"))).await {
        assert_eq!((got.status, got.header("forbear-outcome")), (429, "deferred"), "{got:?}");
    }
    assert_eq!(rig.provider.arrivals().len(), 1);
    let reading = understood(&journal(rig).await)[0].boundary.clone().unwrap().reading;
    assert_eq!(reading, "error.message, duration in prose");
}

#[tokio::test]
async fn fb_044_a_reset_that_stands_only_in_prose_closes_the_scope_for_all_of_it() {
    let error = json!({"message": "<quota reached> Resets in 164h27m24s."});
    check_prose(error, 592_044, "budget_exhausted", "resets in 164h27m24s").await;
}

#[tokio::test]
async fn fb_045_a_duration_of_two_parts_is_read_whole() {
    let error = json!({"type": "GoUsageLimitError", "message": "... Resets in 4hr 59min"});
    check_prose(error, 17_940, "rejected", "resets in 4hr 59min").await;
}

#[tokio::test]
async fn fb_048_reasons_of_a_403_are_told_apart() {
    let of = |reason: &'static str| async move {
        let error = json!({"code": 403, "errors": [{"domain": "usageLimits", "reason": reason}]});
        let rig =
            Rig::new(&once(&json!({"status": 403, "body": {"error": error}})), &policy("google_workspace", "")).await;
        let path = "/p/calendar/v3/calendars/c/events/e";
        if reason.ends_with("ateLimitExceeded") {
            let (got, row) = tokio::join!(rig.get(path), closed_row(&rig));
            assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{reason}: {got:?}");
            assert_eq!((row.source.as_deref(), row.retries_last_minute), (Some("uncertain_boundary"), 1), "{reason}");
            let gap = rig.gap(1, 2);
            assert!(gap >= Duration::from_millis(200) && gap < QUICK_FIRST_MAX, "{reason}: {gap:?}");
        } else {
            let got = rig.get(path).await;
            assert_eq!((got.status, got.header("forbear-outcome")), (403, "rejected"), "{reason}: {got:?}");
            assert_eq!(got.json()["error"]["errors"][0]["reason"], reason);
            // The day's reset is not said: unknown, and no instant of our own in its place.
            assert!(!is_closed(&rig), "{reason}");
        }
        assert_eq!(rig.provider.arrivals().len(), if reason.ends_with("ateLimitExceeded") { 2 } else { 1 }, "{reason}");
        let kind = understood(&journal(rig).await)[0].kind;
        serde_json::to_value(kind).unwrap()
    };
    let reasons = ["rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "forbidden"];
    assert_eq!(join_all(reasons.map(of)).await, ["throttled", "throttled", "exhausted", "rejected"]);
}

/// The minute between the two sends is in forbear-core's tests.
#[tokio::test]
async fn fb_049_a_secondary_limit_is_no_permission_error() {
    let limit = json!({
        "message": "You have exceeded a secondary rate limit. Please wait.",
        "documentation_url": "https://docs.example/rest#secondary-rate-limits",
    });
    let rig = Rig::new(&once(&json!({"status": 403, "body": limit})), &policy("github", "")).await;
    let got = rig.get("/p/repos/o/r").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (403, "budget_exhausted"), "{got:?}");
    let row = closed_row(&rig).await;
    assert_eq!(row.source.as_deref(), Some("contract"));
    assert!((55..=61).contains(&row.reset_after_seconds.unwrap()), "{row:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);

    let refused = json!({"status": 403, "body": {"message": "Resource not accessible"}});
    let rig = Rig::new(&once(&refused), &policy("github", "")).await;
    let got = rig.get("/p/repos/o/r").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (403, "rejected"), "{got:?}");
    assert_eq!((rig.provider.arrivals().len(), is_closed(&rig)), (1, false));
}

/// With the provider's rule it is a limit. That the number of open calls is lowered, and the retry waits for a place instead
/// of the backoff, comes with limits that are learned.
#[tokio::test]
async fn fb_051_a_limit_in_a_400_needs_its_rule() {
    let refusal = json!({"status": 400, "body": {"error": {"type": "rate_limit", "message": "5 concurrent"}}});
    let rule = "    codes: [{at: 'body:error.type', is: rate_limit, statuses: [400], means: throttled}]\n";
    let rig = Rig::new(&once(&refusal), &policy("openai", rule)).await;
    let (got, row) = tokio::join!(post(&rig, "/p/v1/responses", "{}"), closed_row(&rig));
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
    assert_eq!((row.source.as_deref(), row.in_flight), (Some("uncertain_boundary"), 0), "it holds no place meanwhile");
    assert!(rig.gap(1, 2) >= Duration::from_millis(200), "{:?}", rig.gap(1, 2));

    let rig = Rig::new(&once(&refusal), &policy("openai", "")).await;
    let got = post(&rig, "/p/v1/responses", "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (400, "rejected"), "{got:?}");
    assert_eq!((rig.provider.arrivals().len(), is_closed(&rig)), (1, false));
}

#[tokio::test]
async fn fb_052_a_throttle_in_a_200_is_told_by_its_code_alone() {
    const GRAPHQL: &str = "/p/admin/api/2026-01/graphql.json";
    let throttled = json!({"body": {"errors": [{"message": "x", "extensions": {"code": "THROTTLED"}}]}});
    let quotes = json!({"body": {"errors": [{"message": "Throttled valve missing"}]}});
    let query = "    routes: [{match: 'POST /admin/api/{version}/graphql.json', class: read, disguised: true}]\n";
    let rig = Rig::new(&once(&throttled), &policy("shopify", query)).await;
    let (got, row) = tokio::join!(post(&rig, GRAPHQL, "{}"), closed_row(&rig));
    assert_eq!((got.json()["fine"].as_bool(), got.header("forbear-attempts")), (Some(true), "2"), "{got:?}");
    assert_eq!(row.retries_last_minute, 1, "charged to its scope");
    let gap = rig.gap(1, 2);
    assert!(gap >= Duration::from_millis(200) && gap < QUICK_FIRST_MAX, "{gap:?}");

    // A mutation: again only where the rule says that it was not executed.
    let twice = "request_classes: {uncertain_write: {max_attempts: 2, max_wait_seconds: 5, retry_statuses: [429]}}";
    let unsure = "    codes: [{at: 'body:errors.extensions.code', is: THROTTLED, statuses: [200], means: throttled}]\n";
    for (rule, status, outcome, sends) in [("", 200, "succeeded", 2), (unsure, 422, "outcome_unknown", 1)] {
        let policy = policy("shopify", rule);
        let classes = policy.lines().find(|line| line.starts_with("request_classes")).unwrap();
        let rig = Rig::new(&once(&throttled), &policy.replace(classes, twice)).await;
        let got = post(&rig, GRAPHQL, "{}").await;
        assert_eq!((got.status, got.header("forbear-outcome")), (status, outcome), "{got:?}");
        assert_eq!(rig.provider.arrivals().len(), sends);
    }

    let rig = Rig::new(&once(&quotes), &policy("shopify", query)).await;
    let got = post(&rig, GRAPHQL, "{}").await;
    assert_eq!((got.json(), got.header("forbear-outcome")), (quotes["body"].clone(), "succeeded"));
    assert_eq!((rig.provider.arrivals().len(), is_closed(&rig)), (1, false));
}
