//! Keys that stand in the body: they name the action as one in a header would.

use crate::rig::Rig;

const POLICY: &str = "
providers:
  p:
    base_url: $BASE
    routes: [{match: POST /pay, class: idempotent_write}]
    idempotency: {member: idempotency_key, retention_seconds: 3600}
";
const FLAKY: &str = "
routes:
  - match: POST /pay
    then:
      - {status: 503, body: {}}
      - {body: {ok: true}, effect: {name: payment}}
";

async fn pay(rig: &Rig, extra: &[(&str, &str)], body: &str) -> (u16, String) {
    let fields = [&[("authorization", "Bearer k"), ("content-type", "application/json")], extra].concat();
    let got = rig.call("POST", "/p/pay", &fields, body).await;
    let outcome = got.header("forbear-outcome").to_owned();
    (got.status, if outcome.is_empty() { got.json()["type"].as_str().unwrap_or_default().to_owned() } else { outcome })
}

#[tokio::test]
async fn an_unknown_write_is_sent_again_under_the_key_of_its_body() {
    for extra in [&[][..], &[("expect", "100-continue")]] {
        let rig = Rig::new(FLAKY, POLICY).await;
        assert_eq!(pay(&rig, extra, r#"{"idempotency_key": "k1", "amount": 5}"#).await.0, 200, "{extra:?}");
        assert_eq!(rig.provider.arrivals().len(), 2);
    }
}

#[tokio::test]
async fn without_one_that_can_be_read_it_is_sent_once() {
    for (extra, body) in [
        (&[][..], r#"{"amount": 5}"#),
        (&[][..], r#"{"idempotency_key": 7, "amount": 5}"#),
        (&[("content-encoding", "gzip")][..], r#"{"idempotency_key": "k1"}"#),
    ] {
        let rig = Rig::new(FLAKY, POLICY).await;
        assert_eq!(pay(&rig, extra, body).await, (422, "outcome_unknown".into()), "{body}");
        assert_eq!(rig.provider.arrivals().len(), 1, "{body}");
    }
}

#[tokio::test]
async fn the_same_key_with_other_content_is_refused() {
    let rig =
        Rig::new("routes: [{match: POST /pay, respond: {body: {ok: true}, effect: {name: payment}}}]", POLICY).await;
    assert_eq!(pay(&rig, &[], r#"{"idempotency_key": "k1", "amount": 5}"#).await.0, 200);
    let (status, what) = pay(&rig, &[], r#"{"idempotency_key": "k1", "amount": 6}"#).await;
    assert_eq!(status, 422, "{what}");
    assert_eq!(rig.provider.effects().records.len(), 1);
}
