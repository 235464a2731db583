//! The boundary holds for everyone who shares the quota, and ends when it said.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use crate::rig::Rig;
use crate::told::{SOON, closed_row};

/// A release's jitter at most (`pacing.jitter_ms`).
const JITTER_NS: u64 = 100_000_000;
const SECOND_NS: u64 = 1_000_000_000;

#[tokio::test]
async fn fb_023_no_retry_is_before_its_boundary() {
    let scenario = "
routes:
  - match: 'GET /x'
    per: credential
    then:
      - {status: 429, headers: {Retry-After: '1'}, body: {}}
      - {body: {ok: true}}
";
    let rig = Rig::new(scenario, "").await;
    let keys: Vec<String> = (0..40).map(|n| format!("Bearer k{n}")).collect();
    let calls = keys.iter().map(|key| async {
        let fields = [("authorization", key.as_str())];
        rig.call("GET", "/p/x", &fields, "").await.status
    });
    assert!(join_all(calls).await.iter().all(|status| *status == 200));
    let arrivals = rig.provider.arrivals();
    let mut gaps_ns = Vec::new();
    for refused in arrivals.iter().filter(|a| a.status == Some(429)) {
        let retry = arrivals.iter().find(|a| a.credential == refused.credential && a.status == Some(200)).unwrap();
        gaps_ns.push(retry.at_ns - refused.head_written_at_ns.unwrap());
    }
    assert_eq!(gaps_ns.len(), 40);
    gaps_ns.sort_unstable();
    assert!(gaps_ns[0] >= SECOND_NS, "{gaps_ns:?}");
    assert!(gaps_ns[39] < SECOND_NS + JITTER_NS + 900_000_000, "{gaps_ns:?}");
    assert!(gaps_ns[39] - gaps_ns[0] > 30_000_000, "spread: {gaps_ns:?}");
}

#[tokio::test]
async fn fb_028_a_clock_that_is_off_moves_no_boundary() {
    let checks = ["+0s", "+90s", "-90s"].map(|skew| async move {
        // The provider's clock is off by so much, and it names its own second.
        let scenario = format!(
            "
routes:
  - match: 'GET /x'
    then:
      - status: 403
        headers:
          Date: '{{{{http_date {skew}}}}}'
          X-RateLimit-Remaining: '0'
          X-RateLimit-Reset: '{{{{epoch {skew}}}}}'
        body: {{}}
        for_ms: 999
      - {{body: {{ok: true}}}}
"
        );
        let rig = Rig::new(&scenario, "").await;
        let got = rig.get("/p/x").await;
        assert_eq!(got.status, 200, "{skew}: {got:?}");
        assert!(rig.provider.arrivals().len() <= 3, "{skew}");
        let gap = rig.gap(1, 2);
        assert!(gap >= Duration::from_secs(1) && gap < Duration::from_secs(2), "{skew}: {gap:?}");
    });
    join_all(checks).await;
}

#[tokio::test]
async fn fb_029_the_longer_boundary_holds() {
    let scenario = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, headers: {Retry-After: '1'}, body: {}, delay_ms: 50}
      - {status: 429, headers: {Retry-After: '3'}, body: {}, delay_ms: 100}
      - {status: 429, body: {}, delay_ms: 150}
      - {status: 429, body: {}, delay_ms: 200}
      - {body: {ok: true}}
";
    let rig = Rig::new(scenario, "").await;
    let calls = join_all((0..4).map(|_| rig.get("/p/x")));
    let mut instants = Vec::new();
    let watched = async {
        loop {
            let row = rig.running.shard().scopes(1).into_iter().next();
            instants.extend(row.and_then(|row| row.next_allowed_at));
            // sleep: the register is sampled while the calls run; nothing tells of its movements
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let got = tokio::select! {
        got = calls => got,
        () = watched => unreachable!("it never ends"),
    };
    assert!(got.iter().all(|got| got.status == 200), "{got:?}");
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 8);
    let longest = arrivals.iter().find_map(|a| (a.n == 2).then_some(a.head_written_at_ns?)).unwrap();
    for later in &arrivals[4..] {
        assert!(later.at_ns >= longest + 3 * SECOND_NS, "{}", later.at_ns - longest);
    }
    assert!(instants.is_sorted(), "the register never moved back");
}

#[tokio::test]
async fn fb_031_what_is_refused_here_does_not_extend_the_boundary() {
    let scenario = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, headers: {Retry-After: '3'}, body: {}}
      - {body: {ok: true}}
";
    // Nobody waits longer than a second, so that calls are refused here.
    let policy = "request_classes: {read: {max_wait_seconds: 1, max_queue_seconds: 1}}\n";
    let rig = Rig::new(scenario, policy).await;
    assert_eq!(rig.get("/p/x").await.header("forbear-outcome"), "budget_exhausted");
    let closed = closed_row(&rig).await.next_allowed_at;
    let (mut refused, mut waiting) = (0, Vec::new());
    let sent_again = || rig.provider.arrivals().len() > 1;
    while !sent_again() {
        let call = rig.get("/p/x");
        tokio::pin!(call);
        tokio::select! {
            biased;
            got = &mut call => {
                if got.header("forbear-outcome") == "deferred" {
                    refused += 1;
                    let shard = rig.running.shard();
                    let row = &shard.scopes(1)[0];
                    // It passes sooner or later, perhaps right after the refusal.
                    let passed = shard.clock().now().wall >= closed.unwrap();
                    assert!(row.next_allowed_at == closed || passed, "a call that was refused here moved it");
                }
                waiting.push(got.status);
                // sleep: the agent of the case asks again and again; the time between is part of it
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // sleep: the bound on what is awaited beside it
            () = tokio::time::sleep(Duration::from_millis(1_500)) => panic!("neither refused nor sent"),
        }
    }
    assert!(refused >= 20, "{refused}");
    let gap = rig.gap(1, 2);
    assert!(gap >= Duration::from_secs(3) && gap < Duration::from_millis(4_100), "{gap:?}");
}

#[tokio::test]
async fn fb_033_nobody_sends_into_a_closed_scope() {
    let scenario = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, headers: {Retry-After: '2'}, body: {}, delay_ms: 30}
      - {body: {ok: true}, delay_ms: 30}
";
    let rig = Rig::new(scenario, "").await;
    let over = AtomicBool::new(false);
    // Agents that call without pause, each over connections of its own.
    let agents = join_all((0..6).map(|_| async {
        while !over.load(Ordering::Relaxed) {
            assert_eq!(rig.get("/p/x").await.status, 200);
        }
    }));
    let clock = async {
        rig.provider.wait_for_arrivals(12, SOON).await.unwrap();
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(agents, clock);
    let arrivals = rig.provider.arrivals();
    let head_ns = arrivals[0].head_written_at_ns.unwrap();
    let early: Vec<_> = arrivals.iter().map(|a| a.at_ns).filter(|at| *at > head_ns + 50_000_000).collect();
    assert!(early.iter().all(|at| *at >= head_ns + 2 * SECOND_NS), "{early:?}");
    // They came apart, not all at the same instant.
    let mut after: Vec<u64> = early.into_iter().take(4).collect();
    after.sort_unstable();
    assert!(after.windows(2).all(|pair| pair[1] - pair[0] >= 90_000_000), "{after:?}");
}

/// What is remembered is also not read late after a restart.
#[tokio::test]
async fn fb_033_a_closed_scope_stays_closed_over_a_restart() {
    let scenario = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, headers: {Retry-After: '3'}, body: {}}
      - {body: {ok: true}}
";
    let policy = "request_classes: {read: {max_wait_seconds: 1}}\n";
    let rig = Rig::new(scenario, policy).await;
    assert_eq!(rig.get("/p/x").await.header("forbear-outcome"), "budget_exhausted");
    let before = closed_row(&rig).await;
    let rig = rig.restart(policy).await;
    let after = closed_row(&rig).await;
    assert_eq!((after.next_allowed_at, &after.source), (before.next_allowed_at, &before.source));
    let got = join_all((0..3).map(|_| rig.get("/p/x"))).await;
    assert!(got.iter().all(|got| got.status == 200), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 4);
    assert!(rig.gap(1, 2) >= Duration::from_secs(3), "{:?}", rig.gap(1, 2));
}

#[tokio::test]
async fn fb_041_equal_reads_are_not_merged() {
    let scenario = "
routes:
  - match: 'GET /me'
    respond: {body: {is: '{{credential}}'}, delay_ms: 200}
  - match: 'GET /balance'
    respond: {body: {n: '{{n}}'}, delay_ms: 200}
";
    let rig = Rig::new(scenario, "").await;
    let keys = ["Bearer a", "Bearer b", "Bearer c", "Bearer d", "Bearer e"];
    let me = join_all(keys.map(|key| {
        let rig = &rig;
        async move { rig.call("GET", "/p/me", &[("authorization", key)], "").await }
    }));
    let balance = join_all((0..2).map(|_| rig.get("/p/balance")));
    let (me, balance) = tokio::join!(me, balance);
    let mut answers: Vec<_> = me.iter().chain(&balance).map(|got| got.json().to_string()).collect();
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers.len(), 7, "each has its own answer");
    let arrivals = rig.provider.arrivals();
    let mut credentials: Vec<_> = arrivals.iter().filter(|a| a.target == "/me").map(|a| a.credential.clone()).collect();
    credentials.sort_unstable();
    credentials.dedup();
    assert_eq!((credentials.len(), arrivals.len()), (5, 7));
    // Each its own, not somebody else's.
    for (key, got) in keys.iter().zip(&me) {
        let own = forbear_lab::provider::credential_digest(key);
        assert_eq!(got.json()["is"], own, "{key}");
    }
}
