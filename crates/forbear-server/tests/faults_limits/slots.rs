//! Slots are held on the wire only, and come back on every path.

use std::time::Duration;

use crate::rig::Rig;
use crate::told::{SOON, until};

const OTHER: [(&str, &str); 1] = [("authorization", "Bearer k2")];

fn row(rig: &Rig) -> Option<forbear_core::view::ScopeView> {
    rig.running.shard().scopes(100).into_iter().find(|row| row.next_allowed_at.is_some())
}

#[tokio::test]
async fn fb_034_calls_that_wait_hold_no_slot() {
    let scenario = "
routes:
  - match: 'GET /x'
    per: credential
    when: {headers: {closed: 'yes'}}
    respond: {status: 429, headers: {Retry-After: '60'}, body: {}, delay_ms: 100}
  - match: 'GET /x'
    respond: {body: {ok: true}}
";
    let rig = Rig::new(scenario, "shared_scope: {max_concurrent_requests: 2}\n").await;
    let closed = [("authorization", "Bearer k1"), ("closed", "yes")];
    let first = rig.call("GET", "/p/x", &closed, "");
    let second = rig.call("GET", "/p/x", &closed, "");
    let other = async {
        let waiting = until(|| row(&rig).filter(|row| row.delayed == 2)).await;
        assert_eq!(waiting.in_flight, 0);
        tokio::time::timeout(Duration::from_secs(1), rig.call("GET", "/p/x", &OTHER, ""))
            .await
            .expect("it is sent at once")
    };
    let got = tokio::select! {
        got = other => got,
        got = first => panic!("a minute is not over: {got:?}"),
        got = second => panic!("a minute is not over: {got:?}"),
    };
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 3);
    // Both agents are gone now: nothing of theirs is left in line.
    until(|| row(&rig).filter(|row| (row.in_flight, row.delayed) == (0, 0))).await;
}

/// What an agent claims beyond its policy moves nobody, and neither does a field that is not Forbear's. Its own never reach
/// the provider.
#[tokio::test]
async fn fb_040_a_claim_beyond_the_policy_moves_nobody() {
    let targets = claims("shared_scope: {max_concurrent_requests: 1}\nfairness: {claim_max: normal}\n").await;
    assert_eq!(targets, ["/slow", "/plain", "/claiming"]);
}

#[tokio::test]
async fn who_may_claim_goes_first() {
    let targets = claims("shared_scope: {max_concurrent_requests: 1}\n").await;
    assert_eq!(targets, ["/slow", "/claiming", "/plain"]);
}

/// One call on the wire, one in line, and one that comes last and claims to be interactive.
async fn claims(configuration: &str) -> Vec<String> {
    let scenario = "
routes:
  - match: 'GET /slow'
    respond: {body: {ok: true}, delay_ms: 500}
  - match: 'GET /{name}'
    respond: {body: {ok: true}}
";
    let rig = Rig::new(scenario, configuration).await;
    let first = async {
        rig.provider.wait_for_arrivals(1, SOON).await.unwrap();
        rig.get("/p/plain").await
    };
    let claims = [("authorization", "Bearer k1"), ("x-priority", "high"), ("forbear-priority", "interactive")];
    let second = async {
        until(in_line(&rig, 1)).await;
        rig.call("GET", "/p/claiming", &claims, "").await
    };
    let (slow, first, second) = tokio::join!(rig.get("/p/slow"), first, second);
    assert_eq!((slow.status, first.status, second.status), (200, 200, 200));
    let arrivals = rig.provider.arrivals();
    let claiming = arrivals.iter().find(|a| a.target == "/claiming").unwrap();
    assert_eq!((claiming.header("x-priority"), claiming.header("forbear-priority")), (Some("high"), None));
    arrivals.iter().map(|a| a.target.clone()).collect()
}

/// Ready when so many wait.
fn in_line(rig: &Rig, delayed: u32) -> impl FnMut() -> Option<()> {
    move || rig.running.shard().scopes(1).first().filter(|row| row.delayed == delayed).map(|_| ())
}

#[tokio::test]
async fn fb_035_a_call_that_hung_up_in_line_is_never_sent() {
    let scenario = "
routes:
  - match: 'GET /slow'
    respond: {body: {ok: true}, delay_ms: 1500}
  - match: 'GET /{name}'
    respond: {body: {ok: true}}
";
    let rig = Rig::new(scenario, "shared_scope: {max_concurrent_requests: 1}\n").await;
    let slow = rig.get("/p/slow");
    let last = async {
        rig.provider.wait_for_arrivals(1, SOON).await.unwrap();
        let gone = rig.get("/p/gone");
        tokio::select! {
            got = gone => panic!("the slot is taken: {got:?}"),
            () = until(in_line(&rig, 1)) => {}
        }
        // Its connection is closed here.
        until(in_line(&rig, 0)).await;
        rig.get("/p/last").await
    };
    let (slow, last) = tokio::join!(slow, last);
    assert_eq!((slow.status, last.status), (200, 200));
    let arrivals = rig.provider.arrivals();
    let targets: Vec<_> = arrivals.iter().map(|a| a.target.as_str()).collect();
    assert_eq!(targets, ["/slow", "/last"]);
    let after = Duration::from_nanos(arrivals[1].at_ns - arrivals[0].finished_at_ns.unwrap());
    assert!(after < Duration::from_millis(200), "{after:?}");
    let row = until(|| rig.running.shard().scopes(1).into_iter().next().filter(|row| row.in_flight == 0)).await;
    assert_eq!(row.delayed, 0);
}
