//! `Retry-After` in every shape that was misread somewhere.

use std::time::Duration;

use forbear_core::classify::BoundarySource;
use futures_util::future::join_all;

use crate::rig::{Got, Rig};
use crate::told::{QUICK, QUICK_FIRST_MAX, closed_row, journal, register_reasons, understood};

/// Jitter, the way over loopback, and a busy machine.
const SLACK: Duration = Duration::from_millis(900);

/// `GET /x` is refused once with these fields (as YAML), then answered.
fn refused_once(status: u16, fields: &str) -> String {
    format!(
        "routes:\n  - match: 'GET /x'\n    then:\n      - {{status: {status}, headers: {fields}, body: {{}}}}\n      - {{body: {{ok: true}}}}\n"
    )
}

fn always(status: u16, fields: &str) -> String {
    format!("routes:\n  - match: 'GET /x'\n    respond: {{status: {status}, headers: {fields}, body: {{}}}}\n")
}

async fn get(fields: &str, policy: &str) -> (Rig, Got) {
    let rig = Rig::new(&refused_once(429, fields), policy).await;
    let got = rig.get("/p/x").await;
    (rig, got)
}

/// One refusal with these fields is waited for as long as they say, and the call succeeds.
async fn check_wait(fields: &str, policy: &str, wait_ms: u64) -> Rig {
    let (rig, got) = get(fields, policy).await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{fields}: {got:?}");
    let (gap, wait) = (rig.gap(1, 2), Duration::from_millis(wait_ms));
    assert!(gap >= wait && gap < wait + SLACK, "{fields}: {gap:?}");
    rig
}

/// What cannot be read is on record as it came, and the wait is our own.
async fn check_malformed(value: &str) {
    let rig = Rig::new(&refused_once(429, &format!("{{Retry-After: '{value}'}}")), QUICK).await;
    let (got, row) = tokio::join!(rig.get("/p/x"), closed_row(&rig));
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{value}: {got:?}");
    let raw = format!("retry-after: {value}");
    assert_eq!((row.source.as_deref(), row.raw.as_ref()), (Some("malformed"), Some(&raw)), "{value}");
    let gap = rig.gap(1, 2);
    assert!(gap >= Duration::from_millis(200) && gap < QUICK_FIRST_MAX, "{value}: {gap:?}");
    let events = journal(rig).await;
    let first = &understood(&events)[0];
    assert_eq!((first.boundary.as_ref(), &first.malformed), (None, &vec![raw]), "{value}");
    assert!(register_reasons(&events)[0].contains("uncertain_boundary"), "{value}");
}

#[tokio::test]
async fn fb_003_trailing_junk_is_not_cut_off_a_number() {
    join_all(["120junk", "120s", "1 20", "1e3", "+120", "0x10"].map(check_malformed)).await;
}

#[tokio::test]
async fn fb_004_a_fraction_of_a_second_is_waited_for() {
    let rig = check_wait("{Retry-After: '0.503'}", QUICK, 503).await;
    let first = understood(&journal(rig).await).remove(0);
    let boundary = first.boundary.unwrap();
    assert_eq!((boundary.raw.as_str(), boundary.wait_ms, boundary.source), ("0.503", 503, BoundarySource::RetryAfter));
}

#[tokio::test]
async fn fb_005_a_negative_number_loses_no_request() {
    join_all(["-1", "-0.5", "-99999999999999999999"].map(check_malformed)).await;
}

#[tokio::test]
async fn fb_007_an_epoch_is_waited_for_as_an_instant() {
    let fields = "{Retry-After: '{{epoch +2s}}', X-RateLimit-Reset: '{{epoch +2s}}'}";
    let (rig, got) = get(fields, QUICK).await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
    let second_ms = rig.provider.arrivals()[1].wall_ms;
    let events = journal(rig).await;
    let boundary = understood(&events)[0].boundary.clone().unwrap();
    let instant_ms = boundary.raw.parse::<u64>().unwrap() * 1_000;
    assert!(second_ms >= instant_ms && second_ms < instant_ms + 2_000, "{second_ms} {instant_ms}");
    assert_eq!(boundary.reading, "epoch seconds against Date");
    assert!(register_reasons(&events)[0].contains("epoch seconds against Date"));
}

#[tokio::test]
async fn fb_007_an_instant_years_away_ends_the_call_at_once() {
    for value in ["4102444800", "4102444800000"] {
        let rig = Rig::new(&always(429, &format!("{{Retry-After: '{value}'}}")), QUICK).await;
        let got = tokio::time::timeout(Duration::from_secs(1), rig.get("/p/x")).await.expect("told within a second");
        assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
        // The provider's second began up to a second before ours.
        let told = got.json()["next_allowed_at"].as_str().unwrap().to_owned();
        assert!(told.starts_with("2100-01-01T00:00:0"), "{told}");
        assert_eq!(rig.provider.arrivals().len(), 1);
    }
}

#[tokio::test]
async fn fb_008_milliseconds_are_the_contracts_word() {
    let policy = format!("{QUICK}providers: {{p: {{base_url: $BASE, retry_after_unit: milliseconds}}}}\n");
    let scenario = "routes:\n  - match: 'GET /x'\n    then:\n      - {status: 429, headers: {Retry-After: '555'}, body: {retry_after: 555, global: false}}\n      - {}\n";
    let rig = Rig::new(scenario, &policy).await;
    assert_eq!(rig.get("/p/x").await.status, 200);
    let gap = rig.gap(1, 2);
    assert!(gap >= Duration::from_millis(555) && gap < Duration::from_secs(5), "{gap:?}");

    let rig = Rig::new(scenario, QUICK).await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
    let row = closed_row(&rig).await;
    let seconds = row.reset_after_seconds.unwrap();
    assert!((553..=555).contains(&seconds), "{row:?}");
    // Everything of the scope is held to it, and what cannot be held is told when.
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "deferred"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn fb_009_seconds_are_not_milliseconds() {
    check_wait("{Retry-After: '2'}", QUICK, 2_000).await;
}

#[tokio::test]
async fn fb_010_a_wait_that_was_rounded_down_costs_one_more_attempt() {
    // The window really ends 1.9 s after the first answer; it tells one.
    let scenario = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, headers: {Retry-After: '1'}, body: {}}
      - {status: 429, headers: {Retry-After: '0'}, body: {}}
      - {body: {ok: true}}
";
    let rig = Rig::new(scenario, "").await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "3"), "{got:?}");
    assert!(rig.gap(1, 2) >= Duration::from_secs(1), "{:?}", rig.gap(1, 2));
    assert!(rig.gap(2, 3) >= Duration::from_secs(1), "zero is the floor: {:?}", rig.gap(2, 3));
    assert_eq!(rig.running.shard().scopes(10)[0].retries_last_minute, 2, "each refusal is charged");
}

#[tokio::test]
async fn fb_011_zero_makes_no_loop() {
    let rig = Rig::new(&always(429, "{Retry-After: '0'}"), QUICK).await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
    assert_eq!((&got.json()["attempts"], got.header("forbear-attempts")), (&4.into(), "4"));
    assert_eq!(rig.provider.arrivals().len(), 4);
    for n in 1..4 {
        assert!(rig.gap(n, n + 1) >= Duration::from_millis(200), "{:?}", rig.gap(n, n + 1));
    }
}

#[tokio::test]
async fn fb_012_of_two_lines_the_longer_is_waited_for() {
    let cases = [
        ("[[Retry-After, '1'], [Retry-After, '2']]", "1, 2"),
        ("[[Retry-After, '2'], [retry-after, '1']]", "2, 1"),
        ("{Retry-After: '1, 2'}", "1, 2"),
    ];
    let checks = cases.map(|(fields, raw)| async move {
        let rig = check_wait(fields, QUICK, 2_000).await;
        let boundary = understood(&journal(rig).await)[0].boundary.clone().unwrap();
        assert_eq!((boundary.wait_ms, boundary.raw.as_str()), (2_000, raw), "{fields}");
    });
    join_all(checks).await;
}

#[tokio::test]
async fn fb_021_a_date_that_is_past_is_the_floor_not_zero() {
    let rig = Rig::new(&always(429, "{Retry-After: '{{http_date -90s}}'}"), QUICK).await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "budget_exhausted"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 4);
    for n in 1..4 {
        assert!(rig.gap(n, n + 1) >= Duration::from_millis(200), "{:?}", rig.gap(n, n + 1));
    }
}

#[tokio::test]
async fn fb_021_a_date_is_measured_against_the_servers_own() {
    let cases = [("-100s", "-98s"), ("+100s", "+102s"), ("+0s", "+2s")];
    let checks = cases.map(|(date, after)| async move {
        let fields = format!("{{Date: '{{{{http_date {date}}}}}', Retry-After: '{{{{http_date {after}}}}}'}}");
        check_wait(&fields, QUICK, 2_000).await;
    });
    join_all(checks).await;
}

#[tokio::test]
async fn fb_022_each_layout_of_a_date_is_waited_for() {
    let dates = ["http_date", "rfc850_date", "asctime_date"];
    let checks = dates.map(|form| async move {
        let fields = format!("{{Date: '{{{{http_date}}}}', Retry-After: '{{{{{form} +2s}}}}'}}");
        let rig = check_wait(&fields, QUICK, 2_000).await;
        let boundary = understood(&journal(rig).await)[0].boundary.clone().unwrap();
        assert_eq!(boundary.reading, "http-date against Date", "{form}");
    });
    join_all(checks).await;
    // Another zone than GMT is no date of HTTP: never zero.
    check_malformed("Thu, 01 Jan 2032 00:00:30 UTC").await;
}
