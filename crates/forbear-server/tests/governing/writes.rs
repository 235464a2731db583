//! Writes: intent first, one effect, and the truth about what is unknown.

use crate::rig::Rig;

const LOST: &str = "
routes:
  - match: 'POST /charges'
    then:
      - {effect: {name: charge}, fault: {at: after_commit, end: rst}}
      - {effect: {name: charge}, body: {ok: true}}
";

const KEYED: &str = "
routes:
  - match: 'POST /charges'
    idempotency: {header: Idempotency-Key, retention_ms: 86400000}
    then:
      - {effect: {name: charge}, fault: {at: after_commit, end: rst}}
      - {effect: {name: charge}, body: {ok: true}}
";

const IDEMPOTENT: &str = "
backoff: {base_ms: 10, cap_ms: 50, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    routes:
      - {match: 'POST /charges', class: idempotent_write, idempotency_header: Idempotency-Key}
";

#[tokio::test]
async fn a_write_without_an_answer_is_never_sent_again() {
    let rig = Rig::new(LOST, "").await;
    let got = rig.call("POST", "/p/charges", &[("authorization", "k")], "{\"amount\":1}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (422, "outcome_unknown"), "{got:?}");
    let problem = got.json();
    assert_eq!(
        (&problem["sent"], &problem["answered"], &problem["effect"]),
        (&true.into(), &false.into(), &"unknown".into())
    );
    assert!(got.header("location").starts_with("/-/actions/act_"));
    // The same content again gets the open action instead of a send, also after a restart.
    let again = rig.call("POST", "/p/charges", &[("authorization", "k")], "{\"amount\":1}").await;
    assert_eq!((again.status, again.header("location")), (422, got.header("location")), "{again:?}");
    let rig = rig.restart("").await;
    let again = rig.call("POST", "/p/charges", &[("authorization", "k")], "{\"amount\":1}").await;
    assert_eq!((again.status, again.header("location")), (422, got.header("location")), "{again:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
    assert_eq!(rig.provider.effects().count, 1);
    // Other content is another action.
    let other = rig.call("POST", "/p/charges", &[("authorization", "k")], "{\"amount\":2}").await;
    assert_eq!(other.status, 200, "{other:?}");
}

#[tokio::test]
async fn a_keyed_write_is_sent_again_under_the_same_key_and_acts_once() {
    let rig = Rig::new(KEYED, IDEMPOTENT).await;
    let got = rig.call("POST", "/p/charges", &[("authorization", "k")], "{\"amount\":1}").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 2);
    assert!(arrivals[0].idempotency_key.is_some());
    assert_eq!(arrivals[0].idempotency_key, arrivals[1].idempotency_key);
    assert_eq!(rig.provider.effects().count, 1);
}

#[tokio::test]
async fn a_write_over_the_replay_cap_is_known_again_by_its_beginning() {
    let policy = "body_replay_bytes_max: 4096\n";
    let rig = Rig::new(LOST, policy).await;
    let big = "x".repeat(20_000);
    let first = rig.call("POST", "/p/charges", &[("authorization", "k")], &big).await;
    assert_eq!((first.status, first.header("forbear-outcome")), (422, "outcome_unknown"), "{first:?}");
    let again = rig.call("POST", "/p/charges", &[("authorization", "k")], &big).await;
    assert_eq!((again.status, again.header("location")), (422, first.header("location")), "{again:?}");
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
    let other = rig.call("POST", "/p/charges", &[("authorization", "k")], &"y".repeat(20_000)).await;
    assert_eq!(other.status, 200, "{other:?}");
}

#[tokio::test]
async fn a_reference_alone_gives_the_same_key_again() {
    let rig = Rig::new(KEYED, IDEMPOTENT).await;
    for run in ["1", "2"] {
        let fields = [("authorization", "k"), ("forbear-reference", "invoice-7"), ("forbear-run", run)];
        let got = rig.call("POST", "/p/charges", &fields, "{}").await;
        assert_eq!(got.status, 200, "{got:?}");
    }
    assert_eq!(rig.provider.effects().count, 1);
}

#[tokio::test]
async fn a_read_that_says_it_is_a_write_is_treated_as_one() {
    let scenario = "
routes:
  - match: 'GET /things'
    respond: {effect: {name: thing}, fault: {at: after_commit, end: rst}}
";
    let rig = Rig::new(scenario, "").await;
    for (n, name) in ["x-http-method-override", "x-http-method", "x-method-override"].into_iter().enumerate() {
        let path = format!("/p/things?{name}");
        let got = rig.call("GET", &path, &[("authorization", "k"), (name, "POST")], "").await;
        assert_eq!((got.status, got.header("forbear-outcome")), (422, "outcome_unknown"), "{got:?}");
        assert_eq!(rig.provider.arrivals().len(), n + 1);
    }
}

#[tokio::test]
async fn the_agents_own_key_is_forwarded_as_it_is() {
    let rig = Rig::new(KEYED, IDEMPOTENT).await;
    let fields = [("authorization", "k"), ("idempotency-key", "order-7 \u{21}x")];
    let got = rig.call("POST", "/p/charges", &fields, "{}").await;
    assert_eq!(got.status, 200, "{got:?}");
    for arrival in rig.provider.arrivals() {
        assert_eq!(arrival.header("idempotency-key"), Some("order-7 !x"));
    }
}
