//! Answers that prove what became of a write: too early, and so not done; gone, and so done.

use forbear_store::Reader;

use crate::rig::{Got, Rig};

const EARLY: &str = "
routes:
  - match: 'POST /once'
    then: [{status: 425, times: 1}, {effect: {name: order}, body: {ok: true}}]
  - match: 'POST /never'
    respond: {status: 425}
  - match: 'GET /never'
    respond: {status: 425}
";
const QUICK: &str = "backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}\n";

const GONE: &str = "
routes:
  - match: 'DELETE /things/lost'
    then:
      - {effect: {name: deletion}, fault: {at: after_commit, end: rst}, times: 1}
      - {status: 404, body: {error: none}}
  - match: 'DELETE /things/never'
    respond: {status: 404, body: {error: none}}
  - match: 'PUT /things/lost'
    then:
      - {effect: {name: change}, fault: {at: after_commit, end: rst}, times: 1}
      - {status: 404, body: {error: none}}
";
const REPEATABLE: &str = "
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    routes: [{match: '* /things/{id}', class: idempotent_write, repeatable: true}]
";

async fn call(rig: &Rig, method: &str, path: &str, fields: &[(&str, &str)]) -> Got {
    rig.call(method, path, &[&[("authorization", "k")], fields].concat(), "").await
}

#[tokio::test]
async fn what_came_too_early_is_sent_once_more_also_a_write_that_nothing_else_repeats() {
    let rig = Rig::new(EARLY, QUICK).await;
    let got = call(&rig, "POST", "/p/once", &[]).await;
    assert_eq!((got.status, got.header("forbear-outcome"), got.header("forbear-attempts")), (200, "succeeded", "2"));
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (2, 1));
    for method in ["POST", "GET"] {
        let before = rig.provider.arrivals().len();
        let got = call(&rig, method, "/p/never", &[]).await;
        assert_eq!((got.status, got.header("forbear-outcome")), (425, "rejected"), "a second one is told: {got:?}");
        assert_eq!(rig.provider.arrivals().len(), before + 2, "{method}");
    }
}

#[tokio::test]
async fn whoever_took_early_data_in_is_told_of_it_at_once() {
    let rig = Rig::new(EARLY, QUICK).await;
    for (method, path) in [("POST", "/p/once"), ("GET", "/p/never")] {
        let got = call(&rig, method, path, &[("early-data", "1")]).await;
        assert_eq!((got.status, got.header("forbear-attempts")), (425, "1"), "{got:?}");
    }
    let arrivals = rig.provider.arrivals();
    assert!(arrivals.len() == 2 && arrivals.iter().all(|a| a.header("early-data") == Some("1")), "{arrivals:?}");
    assert_eq!(rig.provider.effects().count, 0);
}

#[tokio::test]
async fn a_repeated_delete_that_finds_nothing_is_a_success_and_says_why() {
    let rig = Rig::new(GONE, REPEATABLE).await;
    let got = call(&rig, "DELETE", "/p/things/lost", &[]).await;
    assert_eq!((got.status, got.header("forbear-outcome"), got.header("forbear-attempts")), (404, "succeeded", "2"));
    assert_eq!(got.json()["error"], "none", "the provider's answer is passed on as it is");
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (2, 1));
    let never = call(&rig, "DELETE", "/p/things/never", &[]).await;
    assert_eq!((never.status, never.header("forbear-outcome")), (404, "rejected"), "nothing was in doubt: {never:?}");
    let put = call(&rig, "PUT", "/p/things/lost", &[]).await;
    assert_eq!((put.status, put.header("forbear-outcome")), (422, "outcome_unknown"), "{put:?}");

    let action = got.header("forbear-action").parse().unwrap();
    let data = rig.running.data_dir().to_owned();
    rig.running.stop().await;
    let story = Reader::open(&data).unwrap().action(action).unwrap().unwrap();
    assert_eq!((story.action.outcome.as_deref(), story.action.effect.as_deref()), (Some("succeeded"), Some("applied")));
    let said = format!("{:?}", story.events.last());
    assert!(said.contains("what it deletes is gone, and an earlier send may have done it"), "{said}");
}
