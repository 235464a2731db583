//! Agents that leave: when it is noticed, and what becomes of their calls.
//!
//! What is in line goes and gives its place back; a read on the wire is cancelled at the provider; a write on the wire is
//! followed to its end, unless its own body broke off. Each within a tenth of a second of the leaving, or of the end that was
//! followed, whatever else the agent had sent.

use std::time::{Duration, Instant};

use forbear_server::serve::Running;
use forbear_store::{ActionFilter, Reader};

use crate::agent::PATIENCE;
use crate::leaver::{Leaver, Leaves, Watched, watching};
use crate::peer::{Peer, Reads};
use crate::table::gateway;

/// From the leaving to its effect.
/// Of so many tries each.
const ROUNDS: usize = 3;
const NOTICED_MAX: Duration = Duration::from_millis(100);
/// Times each is tried. The slowest of them is not asked about: one hiccup of a busy machine is no slowness.
const TRIES: usize = 3;

const BEHIND: &str = "POST /p/read HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
const ALL: usize = 2;
/// Above the cap of kept bodies, so that it is streamed.
const LONG: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Queued,
    BeforeHead,
    MidStream,
    /// Half of the body has come, and is on its way.
    HalfBody,
    /// Bytes behind the request that nobody wants yet, before and inside the answer.
    BehindBeforeHead,
    BehindMidStream,
}

use When::{BeforeHead, BehindBeforeHead, BehindMidStream, HalfBody, MidStream, Queued};

/// One leaving; gives how long its effect took.
async fn leave(when: When, agent_http2: bool, peer_http2: bool, path: &str, how: Leaves) -> Duration {
    let watched = Watched::default();
    let begins = matches!(when, MidStream | BehindMidStream);
    let reads = if when == HalfBody { Reads::Head } else { Reads::Whole };
    let peer = Peer::start(watching(&watched, peer_http2, reads, begins)).await;
    let dir = tempfile::tempdir().unwrap();
    let keys = format!(
        "base_url: http://{}\n    http2_prior_knowledge: {peer_http2}\n    scope: {{max_delayed_requests: 9, \
         max_concurrent_requests: 1, max_retries_per_minute: 9}}",
        peer.address
    );
    let running = gateway([("p".to_owned(), keys)], "", &dir).await;
    let target = format!("/p/{path}");

    // Whoever holds the only slot.
    let mut first = Leaver::connect(running.addr(), false).await;
    if when == Queued {
        first.ask("/p/read", ALL, ALL, "").await;
        watched.arrived.acquire().await.unwrap().forget();
    }
    let mut agent = Leaver::connect(running.addr(), agent_http2).await;
    let (declared, sent) = if when == HalfBody { (LONG, LONG / 2) } else { (ALL, ALL) };
    let behind = if matches!(when, BehindBeforeHead | BehindMidStream) { BEHIND } else { "" };
    agent.ask(&target, declared, sent, behind).await;
    if when == Queued {
        until(|| delayed(&running) == 1).await;
    } else {
        watched.arrived.acquire().await.unwrap().forget();
    }
    if begins {
        agent.first_piece().await;
    }
    let (left_at, kept) = agent.leave(how).await;

    let took = match (when, path) {
        (Queued, _) => {
            until(|| delayed(&running) == 0).await;
            let took = left_at.elapsed();
            watched.finish.add_permits(1);
            until(|| running.shard().live_actions() == 0).await;
            assert_eq!(peer.counts.seen().1, 1, "what left in line was sent");
            took
        }
        (HalfBody, _) | (_, "read") => {
            until(|| watched.left_at.lock().unwrap().is_some() && running.shard().live_actions() == 0).await;
            left_at.elapsed()
        }
        // A write is not cut off. When its agent's leaving was surely seen, the provider ends it.
        _ => {
            // sleep: nothing is to happen in this time, which is longer than anything here takes to be noticed.
            tokio::time::sleep(NOTICED_MAX * 2).await;
            assert!(watched.left_at.lock().unwrap().is_none(), "a write was cut off at the provider");
            assert_eq!(running.shard().live_actions(), 1);
            let finished_at = Instant::now();
            watched.finish.add_permits(1);
            until(|| running.shard().live_actions() == 0).await;
            finished_at.elapsed()
        }
    };
    assert!(running.shard().scopes(9).iter().all(|s| s.in_flight == 0 && s.delayed == 0));
    assert_eq!(peer.counts.seen().1, 1, "one request, whoever left");
    let outcome = match (when, path) {
        (HalfBody, "uncertain") => "outcome_unknown",
        (Queued, _) | (_, "read") => "cancelled",
        _ => "succeeded",
    };
    // Its connection would be waited for.
    drop(kept);
    running.stop().await;
    let reader = Reader::open(&dir.path().join("data")).unwrap();
    let actions = reader.actions(&ActionFilter::default(), 9, None).unwrap().actions;
    let of_agent = actions.iter().find(|a| a.route.contains(path) && a.outcome.as_deref() == Some(outcome));
    assert!(of_agent.is_some(), "{when:?} {path} {how:?}: no {outcome} in {actions:?}");
    took
}

/// What a write held while its agent was there is given back when it ends without one.
#[tokio::test]
async fn a_write_whose_agent_left_leaves_nothing_behind() {
    const BODY: usize = 2_000;
    let watched = Watched::default();
    let peer = Peer::start(watching(&watched, false, Reads::Whole, false)).await;
    let dir = tempfile::tempdir().unwrap();
    let keys = format!(
        "base_url: http://{}\n    scope: {{max_delayed_requests: 9, max_concurrent_requests: 1, max_retries_per_minute: 9}}",
        peer.address
    );
    // Room for five such bodies at once.
    let running = gateway([("p".to_owned(), keys)], "replay_bytes_total_max: 10000\n", &dir).await;
    let mut first = Leaver::connect(running.addr(), false).await;
    first.ask("/p/read", ALL, ALL, "").await;
    watched.arrived.acquire().await.unwrap().forget();
    for n in 0..8 {
        let mut agent = Leaver::connect(running.addr(), false).await;
        agent.ask(&format!("/p/uncertain?{n}"), BODY, BODY, "").await;
        until(|| delayed(&running) == 1).await;
        agent.leave(Leaves::Fin).await;
        until(|| delayed(&running) == 0).await;
    }
    watched.finish.add_permits(2);
    let mut last = Leaver::connect(running.addr(), false).await;
    last.ask("/p/uncertain", BODY, BODY, "").await;
    last.first_piece().await;
    running.stop().await;
}

/// A provider that never answers holds a slot for as long as the request is open there, but not for ever.
#[tokio::test]
async fn a_write_without_an_answer_is_followed_for_a_minute_after_its_agent_left() {
    for (begins, outcome, open) in [(false, "outcome_unknown", true), (true, "outcome_unknown", true)] {
        let watched = Watched::default();
        let peer = Peer::start(watching(&watched, false, Reads::Whole, begins)).await;
        let dir = tempfile::tempdir().unwrap();
        let running = gateway([("p".to_owned(), format!("base_url: http://{}", peer.address))], "", &dir).await;
        let mut agent = Leaver::connect(running.addr(), false).await;
        agent.ask("/p/uncertain", ALL, ALL, "").await;
        watched.arrived.acquire().await.unwrap().forget();
        if begins {
            agent.first_piece().await;
        }
        agent.leave(Leaves::Fin).await;
        // sleep: real time for the leaving to be noticed, before a minute passes at once.
        tokio::time::sleep(NOTICED_MAX).await;
        for (seconds, is_over) in [(55, false), (6, true)] {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            tokio::time::resume();
            if is_over {
                until(|| watched.left_at.lock().unwrap().is_some() && running.shard().live_actions() == 0).await;
            } else {
                // sleep: as above; nothing is to happen.
                tokio::time::sleep(NOTICED_MAX).await;
                assert_eq!((running.shard().live_actions(), peer.counts.seen()), (1, (1, 1, 1)));
            }
        }
        running.stop().await;
        let reader = Reader::open(&dir.path().join("data")).unwrap();
        let actions = reader.actions(&ActionFilter { open, ..ActionFilter::default() }, 9, None).unwrap().actions;
        let seen: Vec<_> = actions.iter().map(|a| (a.outcome.as_deref(), a.effect.as_deref(), a.attempts)).collect();
        assert_eq!(seen, [(Some(outcome), Some("unknown"), 1)], "begun: {begins}");
    }
}

async fn until(is_so: impl Fn() -> bool) {
    crate::agent::eventually("the effect of leaving", PATIENCE, is_so).await;
}

fn delayed(running: &Running) -> u32 {
    running.shard().scopes(9).iter().map(|s| s.delayed).sum()
}

/// Every way of leaving at this moment, for agents of one protocol.
async fn check(agent_http2: bool, moments: &[When]) {
    let ways: &[Leaves] =
        if agent_http2 { &[Leaves::Fin, Leaves::Rst, Leaves::Stream] } else { &[Leaves::Fin, Leaves::Rst] };
    let mut slow = Vec::new();
    for when in moments {
        for peer_http2 in [false, true] {
            for path in ["read", "uncertain"] {
                for how in ways {
                    let row = format!("agent h2 {agent_http2}, provider h2 {peer_http2}, {when:?}, {path}, {how:?}");
                    // A machine that is late for everybody is so for a while: what is slow is slow each time.
                    for round in 1..=ROUNDS {
                        let mut took = Vec::new();
                        for _ in 0..TRIES {
                            took.push(leave(*when, agent_http2, peer_http2, path, *how).await);
                        }
                        took.sort_unstable();
                        let (asked, most) = (took[TRIES - 2], took[TRIES - 1]);
                        println!("{:>7.1} ms at most, median {:>5.1}: {row}", ms(most), ms(took[TRIES / 2]));
                        if asked <= NOTICED_MAX {
                            break;
                        }
                        if round == ROUNDS {
                            slow.push(format!("{row}: {took:?}"));
                        }
                    }
                }
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

fn ms(of: Duration) -> f64 {
    of.as_secs_f64() * 1e3
}

#[tokio::test]
async fn an_agent_that_leaves_before_the_answer_is_noticed() {
    check(false, &[Queued, BeforeHead, BehindBeforeHead]).await;
}

#[tokio::test]
async fn an_agent_that_leaves_inside_an_answer_or_its_own_body_is_noticed() {
    check(false, &[MidStream, BehindMidStream, HalfBody]).await;
}

#[tokio::test]
async fn an_http2_agent_that_leaves_before_the_answer_is_noticed() {
    check(true, &[Queued, BeforeHead]).await;
}

#[tokio::test]
async fn an_http2_agent_that_leaves_inside_an_answer_or_its_own_body_is_noticed() {
    check(true, &[MidStream, HalfBody]).await;
}
