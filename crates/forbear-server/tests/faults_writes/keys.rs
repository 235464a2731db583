//! Group E: one key an action, over attempts, processes and time.

use crate::rig::Rig;

const DROPPED: &str = "
routes:
  - match: 'POST /payments'
    idempotency: {header: Idempotency-Key, retention_ms: 86400000, compare_body: false}
    then:
      - {effect: {name: payment}, fault: {at: after_commit, end: fin}, status: 201, body: {id: 1}}
      - {effect: {name: payment}, status: 201, body: {id: 1}}
";

const KEYED: &str = "
backoff: {base_ms: 10, cap_ms: 50, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    routes:
      - match: 'POST /payments'
        class: idempotent_write
        idempotency_header: Idempotency-Key
        content_ignores: [createdAt, attempt.id]
";

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn fb_078_every_attempt_carries_the_same_key() {
    for given in [None, Some("order-7")] {
        let rig = Rig::new(DROPPED, KEYED).await;
        let mut fields = vec![("authorization", "k"), JSON];
        fields.extend(given.map(|key| ("idempotency-key", key)));
        let got = rig.call("POST", "/p/payments", &fields, "{\"amount\":1}").await;
        assert_eq!((got.status, got.header("forbear-attempts")), (201, "2"), "{got:?}");
        let arrivals = rig.provider.arrivals();
        let key = arrivals[0].header("idempotency-key");
        assert!(key.is_some() && given.is_none_or(|given| key == Some(given)));
        assert!(arrivals.iter().all(|a| a.header("idempotency-key") == key));
        assert_eq!(rig.provider.effects().count, 1);
    }
}

#[tokio::test]
async fn fb_081_a_derived_key_is_bound_to_the_action_and_not_to_what_changes() {
    let rig = Rig::new(DROPPED, KEYED).await;
    let fields = [("authorization", "k"), ("forbear-reference", "pay-7"), JSON];
    let first = "{\"amount\":1,\"createdAt\":\"t1\",\"attempt\":{\"id\":\"a\"}}";
    let second = "{\"amount\":1,\"createdAt\":\"t2\",\"attempt\":{\"id\":\"b\"}}";
    for body in [first, second] {
        let got = rig.call("POST", "/p/payments", &fields, body).await;
        assert_eq!(got.status, 201, "{got:?}");
    }
    let arrivals = rig.provider.arrivals();
    let key = arrivals[0].header("idempotency-key").unwrap();
    assert!(arrivals.iter().all(|a| a.header("idempotency-key") == Some(key)));
    assert_eq!((arrivals.len(), rig.provider.effects().count), (3, 1));
    // What is not left out still counts.
    let other = rig.call("POST", "/p/payments", &fields, "{\"amount\":2,\"createdAt\":\"t1\"}").await;
    assert_eq!(other.json()["type"], "/-/problems/key_mismatch", "{other:?}");
    assert_eq!(rig.provider.arrivals().len(), 3);
}
