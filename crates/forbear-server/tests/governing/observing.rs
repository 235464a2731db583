//! Providers that are only watched: each call reaches them once, as it came, and the record says what would have been
//! decided of it.

use std::time::Duration;

use forbear_core::event::{Fact, Joined, Outcome, Refused, Would};
use forbear_core::ids::Seq;
use forbear_store::Reader;

use crate::rig::Rig;

const K: (&str, &str) = ("authorization", "k");
const OBSERVE: &str = "mode: observe";

/// Stops the server, so that all is written; then what it would have decided, in that order.
async fn observed(rig: Rig) -> (Reader, Vec<Would>) {
    rig.running.stop().await;
    let reader = Reader::open(&rig.dir.path().join("data")).unwrap();
    let would = reader.events(Seq(1), 10_000).unwrap().into_iter().filter_map(|event| match event.fact {
        Fact::DecisionObserved { would } => Some(would),
        _ => None,
    });
    let would = would.collect();
    (reader, would)
}

const SPENT: &str = "
routes:
  - match: 'GET /things'
    respond: {status: 429, headers: {Retry-After: '3'}, body: {error: slow}}
";

#[tokio::test]
async fn a_refusal_is_passed_on_at_once_and_what_comes_after_it_goes_all_the_same() {
    let rig = Rig::new(SPENT, OBSERVE).await;
    let got = rig.get("/p/things").await;
    assert_eq!((got.status, got.header("retry-after")), (429, "3"), "{got:?}");
    assert_eq!((got.header("forbear-outcome"), got.header("forbear-attempts")), ("rejected", "1"));
    assert_eq!(got.header("x-should-retry"), "", "its clients are told nothing that the provider did not say");
    assert_eq!(rig.get("/p/things").await.status, 429);
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 2, "one send a call");
    assert!(rig.gap(1, 2) < Duration::from_secs(2), "the closed scope held nothing: {:?}", rig.gap(1, 2));
    let (_, would) = observed(rig).await;
    let [Would::Retry { wait_ms, .. }, Would::Hold { hold_ms: Some(hold_ms), reason }, Would::Retry { .. }] =
        &would[..]
    else {
        panic!("{would:?}");
    };
    assert!((3_000..3_200).contains(wait_ms), "{wait_ms}");
    assert!((1_000..=3_200).contains(hold_ms) && reason == "boundary", "{would:?}");
}

const SLOW: &str = "
routes:
  - match: 'POST /things'
    respond: {effect: {name: thing}, delay_ms: 400, status: 201, body: {id: 7}}
";

#[tokio::test]
async fn equal_writes_are_each_sent_and_the_record_says_which_would_not_have_been() {
    let rig = Rig::new(SLOW, OBSERVE).await;
    let post = |key: &'static str, body: &'static str| {
        let fields = [K, ("idempotency-key", key)];
        let rig = &rig;
        async move { rig.call("POST", "/p/things", &fields, body).await }
    };
    let (a, b) = tokio::join!(post("k-1", "1"), post("k-1", "1"));
    let (c, d) = (post("k-1", "1").await, post("k-1", "2").await);
    for got in [&a, &b, &c, &d] {
        assert_eq!((got.status, got.header("forbear-joined")), (201, ""), "{got:?}");
    }
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (4, 4));
    let (_, would) = observed(rig).await;
    assert_eq!(would.len(), 3, "{would:?}");
    assert!(matches!(would[0], Would::Join { how: Joined::SameKey, .. }), "{would:?}");
    assert!(matches!(would[1], Would::Refuse { why: Refused::AlreadyDone, .. }), "{would:?}");
    assert!(matches!(would[2], Would::Refuse { why: Refused::KeyMismatch, .. }), "{would:?}");
}

const LEFT_OPEN: &str = "
routes:
  - match: 'POST /things'
    respond: {effect: {name: thing}, status: 500, body: {error: oops}}
";

#[tokio::test]
async fn an_answer_that_leaves_a_write_open_is_passed_on_and_the_write_stands_open() {
    let rig = Rig::new(LEFT_OPEN, OBSERVE).await;
    let first = rig.call("POST", "/p/things", &[K], "1").await;
    assert_eq!((first.status, first.header("forbear-outcome")), (500, "outcome_unknown"), "{first:?}");
    assert_eq!(first.json()["error"], "oops", "the provider's own words");
    let again = rig.call("POST", "/p/things", &[K], "1").await;
    assert_eq!((again.status, rig.provider.arrivals().len()), (500, 2));
    let action = first.header("forbear-action").parse().unwrap();
    let (reader, would) = observed(rig).await;
    let row = reader.action(action).unwrap().expect("it is on record").action;
    assert_eq!((row.outcome.as_deref(), row.effect.as_deref()), (Some("outcome_unknown"), Some("unknown")));
    assert_eq!(row.finished_at, None);
    assert!(matches!(would[0], Would::End { outcome: Outcome::OutcomeUnknown, .. }), "{would:?}");
    assert!(matches!(would[1], Would::Refuse { why: Refused::Open, .. }), "{would:?}");
    assert_eq!(would.len(), 2, "what would not have been sent has no answer to decide on: {would:?}");
}

const BOTH: &str = "
mode: observe
providers:
  p:
    base_url: $BASE
    routes:
      - {match: 'POST /things', class: idempotent_write, idempotency_header: Idempotency-Key}
  q:
    extends: p
    mode: enforce
    base_url: $BASE
";

#[tokio::test]
async fn a_provider_may_be_decided_on_while_the_others_are_watched() {
    let rig = Rig::new(SLOW, BOTH).await;
    for path in ["/p/things", "/q/things"] {
        assert_eq!(rig.call("POST", path, &[K], "1").await.status, 201);
    }
    let arrivals = rig.provider.arrivals();
    let keys: Vec<usize> = arrivals
        .iter()
        .map(|a| a.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("idempotency-key")).count())
        .collect();
    assert_eq!(keys, [0, 1], "no key is added where calls are watched");
}

/// What would be refused here is the provider's to refuse.
#[tokio::test]
async fn what_forbear_would_not_take_goes_to_the_provider() {
    let rig = Rig::new(SLOW, OBSERVE).await;
    let malformed = [K, ("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(rig.call("POST", "/p/things", &malformed, "1").await.status, 201);
    let late = [K, ("forbear-deadline", "-5s")];
    assert_eq!(rig.call("POST", "/p/things", &late, "2").await.status, 201);
    assert_eq!(rig.provider.arrivals().len(), 2);
    let (_, would) = observed(rig).await;
    assert!(matches!(would[..], [Would::End { outcome: Outcome::DeadlineExhausted, .. }]), "{would:?}");
}
