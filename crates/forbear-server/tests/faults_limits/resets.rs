//! Reset fields: instants and waits, several windows, counters of another limit.

use std::time::Duration;

use forbear_api::client::TOKEN_FILE;
use futures_util::future::join_all;

use crate::rig::Rig;
use crate::told::{QUICK, QUICK_FIRST_MAX, closed_row, journal, register_reasons, understood};

const SLACK: Duration = Duration::from_millis(900);

fn refused_once(status: u16, fields: &str) -> String {
    format!(
        "routes:\n  - match: 'GET /x'\n    then:\n      - {{status: {status}, headers: {fields}, body: {{}}}}\n      - {{body: {{ok: true}}}}\n"
    )
}

/// The call ends at once, nothing of its scope is sent, and everybody is told until when.
async fn check_closed(fields: &str, seconds: u64) -> Rig {
    let rig = Rig::new(&refused_once(429, fields), QUICK).await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{fields}: {got:?}");
    let row = closed_row(&rig).await;
    let left = row.reset_after_seconds.unwrap();
    assert!((seconds - 3..=seconds + 1).contains(&left), "{fields}: {left}");
    for _ in 0..5 {
        let got = rig.get("/p/x").await;
        assert_eq!((got.status, got.header("forbear-outcome")), (429, "deferred"), "{fields}: {got:?}");
        let told = got.header("retry-after").parse::<u64>().unwrap();
        assert!((seconds - 3..=seconds + 1).contains(&told), "{fields}: {told}");
    }
    assert_eq!(rig.provider.arrivals().len(), 1, "{fields}");
    rig
}

#[tokio::test]
async fn fb_013_a_reset_that_is_past_is_neither_a_maximum_nor_zero() {
    let checks = ["{{epoch -2s}}", "{{epoch -300s}}", "{{epoch}}", "0"].map(|reset| async move {
        let fields = format!("{{X-RateLimit-Remaining: '0', X-RateLimit-Reset: '{reset}'}}");
        let rig = Rig::new(&refused_once(403, &fields), "").await;
        let got = rig.get("/p/x").await;
        assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{reset}: {got:?}");
        let gap = rig.gap(1, 2);
        assert!(gap >= Duration::from_secs(1) && gap < Duration::from_secs(1) + SLACK, "{reset}: {gap:?}");
    });
    join_all(checks).await;
}

#[tokio::test]
async fn fb_016_durations_are_read_whole() {
    let waited = [("17ms", 200), ("1.5s", 1_500), ("0h0m1.2s", 1_200)].map(|(value, wait_ms)| async move {
        let rig = Rig::new(&refused_once(429, &format!("{{x-ratelimit-reset-requests: {value}}}")), QUICK).await;
        assert_eq!(rig.get("/p/x").await.status, 200, "{value}");
        let (gap, wait) = (rig.gap(1, 2), Duration::from_millis(wait_ms));
        assert!(gap >= wait && gap < wait + SLACK, "{value}: {gap:?}");
    });
    let closed = [("6m0s", 360), ("23h47m36.648s", 85_657)].map(|(value, seconds)| async move {
        check_closed(&format!("{{x-ratelimit-reset-requests: {value}}}"), seconds).await;
    });
    tokio::join!(join_all(waited), join_all(closed));
}

#[tokio::test]
async fn fb_016_what_cannot_be_read_is_unknown_and_never_zero() {
    let rig = Rig::new(&refused_once(429, "{x-ratelimit-reset-requests: 23h47q}"), QUICK).await;
    let (got, row) = tokio::join!(rig.get("/p/x"), closed_row(&rig));
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(row.source.as_deref(), Some("malformed"));
    let gap = rig.gap(1, 2);
    assert!(gap >= Duration::from_millis(200) && gap < QUICK_FIRST_MAX, "{gap:?}");
    let events = journal(rig).await;
    assert_eq!(understood(&events)[0].malformed, ["x-ratelimit-reset-requests: 23h47q"]);
    assert!(register_reasons(&events)[0].contains("uncertain_boundary"));
}

#[tokio::test]
async fn fb_018_a_short_window_does_not_hide_the_long_one() {
    let fields = "{x-ratelimit-remaining-requests: '4999', x-ratelimit-reset-requests: 120ms, \
                  x-ratelimit-remaining-tokens: '0', x-ratelimit-reset-tokens: 6m0s}";
    let rig = check_closed(fields, 360).await;
    let row = closed_row(&rig).await;
    assert_eq!((row.remaining, row.source.as_deref()), (Some(0), Some("limit_header")));
    let tokens = row.windows.iter().find(|window| window.name == "tokens").unwrap();
    assert_eq!(tokens.remaining, Some(0));
    let requests = row.windows.iter().find(|window| window.name == "requests").unwrap();
    assert_eq!(requests.remaining, Some(4_999));

    // The same where people and programs read it.
    let token = std::fs::read_to_string(rig.running.data_dir().join(TOKEN_FILE)).unwrap();
    let request = http::Request::get("/-/v1/scopes")
        .header("host", rig.running.addr().to_string())
        .header("authorization", format!("Bearer {}", token.trim()));
    let rows = rig.send(request.body(http_body_util::Full::default()).unwrap()).await.json();
    let shown = &rows["items"][0];
    assert_eq!((&shown["remaining"], &shown["source"]), (&0.into(), &"limit_header".into()), "{rows}");
    let left = shown["reset_after_seconds"].as_u64().unwrap();
    assert!((355..=360).contains(&left), "{rows}");
    assert!(shown["next_allowed_at"].is_string(), "{rows}");
}

#[tokio::test]
async fn fb_020_counters_of_a_limit_that_passed_are_not_believed() {
    let scenario = "routes:\n  - match: 'GET /x'\n    respond: {status: 429, headers: {X-RateLimit-Limit: '60', \
                    X-RateLimit-Remaining: '56', X-RateLimit-Reset: '12'}, body: {}}\n";
    let rig = Rig::new(scenario, QUICK).await;
    let (got, row) = tokio::join!(rig.get("/p/x"), closed_row(&rig));
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
    assert_eq!((row.source.as_deref(), row.remaining), (Some("uncertain_boundary"), Some(56)));
    assert_eq!(rig.provider.arrivals().len(), 4);
    for n in 1..4 {
        // Under a ceiling that doubles, not the 12 s of another limit.
        let most = Duration::from_millis((200u64 << n).min(1_000) + 100) + SLACK;
        assert!(rig.gap(n, n + 1) >= Duration::from_millis(200) && rig.gap(n, n + 1) < most, "{:?}", rig.gap(n, n + 1));
    }
    let events = journal(rig).await;
    for answer in understood(&events) {
        assert_eq!(answer.contradictions, ["429 with quota left: default has 56"]);
    }
    assert!(register_reasons(&events).iter().all(|reason| reason.contains("uncertain_boundary")));
}
