//! A scope closes with a refusal's head: what its body says comes later, and nobody is to run into what is known by then.

use std::time::Duration;

use futures_util::future::join_all;

use crate::rig::Rig;

const CALLS: usize = 24;
const SLOTS: usize = 4;
/// Of the refusal, whose body takes most of it.
const CLOSED: Duration = Duration::from_secs(2);
/// From the head's being written to its being read and heeded, on a busy machine.
const ON_THE_WIRE: Duration = Duration::from_millis(150);

/// The calls beside the refused one end while its body is still coming: their slots are free for others.
const SLOW_REFUSAL: &str = "
routes:
  - match: 'GET /x'
    then:
      - {status: 429, delay_ms: 100, headers: {Retry-After: '2'}, bytes: 60, framing: chunked, chunk_bytes: 10, chunk_gap_ms: 250}
      - {times: 3, body: {ok: true}, delay_ms: 400}
      - {body: {ok: true}}
";

#[tokio::test]
async fn nobody_leaves_into_a_scope_whose_refusal_has_begun() {
    let rig = Rig::new(SLOW_REFUSAL, &format!("shared_scope: {{max_concurrent_requests: {SLOTS}}}\n")).await;
    let answers = join_all((0..CALLS).map(|_| rig.get("/p/x"))).await;
    assert!(answers.iter().all(|got| got.status == 200), "{answers:?}");
    let arrivals = rig.provider.arrivals();
    // Everybody once, and the refused one again.
    assert_eq!(arrivals.len(), CALLS + 1);
    let refused = arrivals.iter().find(|a| a.status == Some(429)).expect("one was refused");
    let since_head = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(refused.head_written_at_ns.unwrap()));
    assert!(since_head(refused.finished_at_ns.unwrap()) > Duration::from_secs(1), "its body was slow");
    let after: Vec<_> = arrivals.iter().map(|a| since_head(a.at_ns)).filter(|after| !after.is_zero()).collect();
    let on_the_wire = after.iter().filter(|after| **after < ON_THE_WIRE).count();
    assert!(on_the_wire < SLOTS, "{on_the_wire} came right after the head: {after:?}");
    let early: Vec<_> = after.iter().filter(|after| (ON_THE_WIRE..CLOSED).contains(*after)).collect();
    assert!(early.is_empty(), "came while the scope was closed: {early:?}");
    assert!(after.iter().filter(|after| **after >= CLOSED).count() > CALLS - SLOTS, "{after:?}");
}
