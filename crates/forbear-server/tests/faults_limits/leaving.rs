//! Calls that are cancelled while they wait, and a clock that was set back.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forbear_core::ids::TaskId;
use forbear_core::input::Whose;
use forbear_core::time::Wall;
use forbear_lab::provider::{Options, Provider, Scenario};
use forbear_server::clock::Clock;
use forbear_server::outside::Outside;
use forbear_server::serve::start_in;
use tokio::net::TcpListener;

use crate::rig::{Rig, loaded};
use crate::told::until;

#[tokio::test]
async fn fb_125_a_cancelled_wait_ends_at_once() {
    let scenario = "routes:\n  - match: 'GET /x'\n    then: [{status: 429, headers: {Retry-After: '3'}}, {body: {}}]\n";
    for agent_hangs_up in [false, true] {
        let rig = Rig::new(scenario, "").await;
        let waiting = || rig.running.shard().scopes(9).iter().map(|s| s.delayed).sum::<u32>();
        let fields = [("authorization", "Bearer k"), ("forbear-task", "t")];
        let mut call = Box::pin(rig.call("GET", "/p/x", &fields, ""));
        tokio::select! {
            got = &mut call => panic!("three seconds are not over: {got:?}"),
            () = until(|| (waiting() == 1).then_some(())) => {}
        }
        let began = Instant::now();
        if agent_hangs_up {
            drop(call);
        } else {
            rig.running.shard().cancel(Whose::Task(TaskId::new("t")), "test".into());
            let got = call.await;
            assert_eq!((got.status, got.header("forbear-outcome")), (410, "cancelled"), "{got:?}");
        }
        until(|| (waiting() == 0).then_some(())).await;
        assert!(began.elapsed() <= Duration::from_millis(200), "{:?}", began.elapsed());
        assert!(rig.running.shard().scopes(9).iter().all(|s| s.in_flight == 0));
        // sleep: past the instant at which it would have been sent.
        tokio::time::sleep(Duration::from_millis(3_300)).await;
        assert_eq!(rig.provider.arrivals().len(), 1);
    }
}

/// The cancel comes when the wait is just over, before and after: what was not sent by then is not sent.
#[tokio::test]
async fn fb_126_a_cancel_at_the_instant_of_waking_lets_nothing_out_afterwards() {
    const TRIALS: i64 = 500;
    const AT_ONCE: i64 = 25;
    const WAIT_MS: i64 = 120;
    /// What a byte that was given to the kernel before may take to be read by the provider, on a busy machine.
    const ON_THE_WIRE_NS: u64 = 60_000_000;
    let scenario = "routes:\n  - match: 'GET /x'\n    per: credential\n    then: [{status: 429}, {body: {}}]\n";
    // No boundary is told and the backoff is at its floor: each wait ends on the millisecond.
    let policy = format!(
        "backoff: {{base_ms: 1, cap_ms: {WAIT_MS}, floor_ms: {WAIT_MS}}}\npacing: {{release_gap_ms: 0, jitter_ms: 0}}\n"
    );
    let rig = Rig::new(scenario, &policy).await;
    let (mut sent_again, mut cancelled) = (0, 0);
    for first in (0..TRIALS).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let trials = (first..first + AT_ONCE).map(|n| {
            let rig = &rig;
            async move {
                let (key, task) = (format!("Bearer k{n}"), format!("t{n}"));
                let fields =
                    [("authorization", key.as_str()), ("forbear-task", task.as_str()), ("x-trial", task.as_str())];
                let of_trial = || {
                    let arrivals = rig.provider.arrivals().into_iter();
                    arrivals.filter(|a| a.header("x-trial") == Some(task.as_str())).collect::<Vec<_>>()
                };
                let call = rig.call("GET", "/p/x", &fields, "");
                let cancel = async {
                    let refused_at = until(|| of_trial().first().and_then(|a| a.head_written_at_ns)).await;
                    let offset_ms = n % 11 - 5;
                    let at = refused_at + u64::try_from((WAIT_MS + offset_ms) * 1_000_000).unwrap();
                    // sleep: to the instant of waking, give or take five milliseconds.
                    tokio::time::sleep(Duration::from_nanos(at.saturating_sub(rig.provider.now_ns()))).await;
                    rig.running.shard().cancel(Whose::Task(TaskId::new(&task)), "test".into());
                    rig.provider.now_ns()
                };
                let (got, acknowledged_at) = tokio::join!(call, cancel);
                (of_trial(), got, acknowledged_at)
            }
        });
        for (arrivals, got, acknowledged_at) in futures_util::future::join_all(trials).await {
            let attempts = got.header("forbear-attempts").parse::<usize>().unwrap();
            assert!(arrivals.len() <= attempts, "{} arrivals, {got:?}", arrivals.len());
            if let Some(second) = arrivals.get(1) {
                sent_again += 1;
                let after = second.at_ns.saturating_sub(acknowledged_at);
                assert!(after <= ON_THE_WIRE_NS, "sent {after} ns after the cancel was acknowledged: {got:?}");
            } else {
                cancelled += 1;
                assert_eq!(got.header("forbear-outcome"), "cancelled", "{got:?}");
            }
        }
    }
    // Both sides of the instant were met, or nothing was tried.
    assert!(sent_again > 0 && cancelled > 0, "{sent_again} sent again, {cancelled} cancelled");
}

#[tokio::test]
async fn fb_132_a_clock_that_was_set_back_keeps_a_scope_no_longer_than_it_was_told() {
    let scenario = Scenario::from_yaml(
        "routes:\n  - match: 'GET /x'\n    then: [{status: 429, headers: {Retry-After: '4'}}, {body: {}}]\n",
    );
    let mut provider = Provider::start(scenario.unwrap(), Options::default()).await.unwrap();
    let mut dir = tempfile::tempdir().unwrap();
    let policy = "request_classes: {read: {max_wait_seconds: 1}}\n";
    let wall_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mut told = Vec::new();
    // An hour ahead; then right, which is an hour back.
    for clock in [Clock::of_runtime(Wall(wall_ms + 3_600_000)), Clock::default()] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outside = Outside { clock, ..Outside::real(listener) };
        let running = start_in(outside, loaded(&provider.base_url(), policy, &dir)).await.unwrap();
        let rig = Rig { provider, running, dir };
        let began = Instant::now();
        let got = rig.get("/p/x").await;
        told.push((got.status, got.header("forbear-outcome").to_owned(), began.elapsed()));
        if told.len() == 2 {
            let rows = rig.running.shard().scopes(9);
            let events = crate::told::journal(rig).await;
            let reasons = crate::told::register_reasons(&events);
            assert!(reasons.iter().any(|r| r.contains("clock")), "the journal says so: {reasons:?} {rows:?}");
            break;
        }
        rig.running.stop().await;
        (provider, dir) = (rig.provider, rig.dir);
    }
    assert_eq!((told[0].0, told[0].1.as_str()), (429, "budget_exhausted"), "{told:?}");
    assert_eq!((told[1].0, told[1].1.as_str()), (200, "succeeded"), "{told:?}");
    assert!(told[1].2 <= Duration::from_secs(5), "{told:?}");
}
