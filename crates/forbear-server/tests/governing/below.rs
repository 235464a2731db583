//! A layer below Forbear that retries by itself and says so: what it did is charged, shown, and no proof of what it had done
//! before.

use forbear_api::client::TOKEN_FILE;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::rig::{Got, Rig};

const GATEWAY: &str = "
routes:
  - match: 'GET /ok'
    respond: {headers: {X-Envoy-Attempt-Count: '3'}, body: {n: 1}}
  - match: 'GET /lie'
    respond: {headers: {X-Envoy-Attempt-Count: '4000000001'}, body: {n: 1}}
  - match: 'GET /busy'
    respond: {status: 503, headers: {X-Envoy-Attempt-Count: '3'}}
  - match: 'POST /orders'
    respond: {status: 429, headers: {X-Envoy-Attempt-Count: '2', Retry-After: '1'}}
";

const BELIEVED: &str = "
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
task: {max_retries: 30, max_wait_seconds: 300}
providers:
  p:
    base_url: $BASE
    attempts_below: [{header: x-envoy-attempt-count, counts: attempts}]
";
const NOT_BELIEVED: &str = "
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
providers: {p: {base_url: $BASE}}
";

async fn get(rig: &Rig, path: &str, task: &str) -> Got {
    rig.call("GET", path, &[("authorization", "k"), ("forbear-task", task)], "").await
}

/// What the register shows of the one scope.
async fn retries_last_minute(rig: &Rig) -> u64 {
    let scopes = control(rig, "/-/v1/scopes").await;
    scopes["items"][0]["retries_last_minute"].as_u64().unwrap()
}

async fn control(rig: &Rig, path: &str) -> Value {
    let token = std::fs::read_to_string(rig.running.data_dir().join(TOKEN_FILE)).unwrap();
    let (host, bearer) = (rig.running.addr().to_string(), format!("Bearer {}", token.trim()));
    let request = Request::get(path).header("host", host).header("authorization", bearer);
    rig.send(request.body(Full::default()).unwrap()).await.json()
}

#[tokio::test]
async fn what_an_answer_reveals_is_charged_shown_and_charged_no_second_time_by_a_restart() {
    let rig = Rig::new(GATEWAY, BELIEVED).await;
    let got = get(&rig, "/p/ok", "t").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "1"));
    assert_eq!(retries_last_minute(&rig).await, 2);
    let story = control(&rig, &format!("/-/v1/actions/{}", got.header("forbear-action"))).await;
    assert_eq!((&story["action"]["attempts"], &story["sends_below"]), (&json!(1), &json!(2)), "{story}");
    let told = story["events"].as_array().unwrap().iter().filter_map(|e| e["text"].as_str());
    let says = "a layer below sent it 2 more times (x-envoy-attempt-count: 3), charged as retries";
    assert_eq!(told.filter(|text| text.contains(says)).count(), 1, "{story}");
    let rig = rig.restart(BELIEVED).await;
    assert_eq!(retries_last_minute(&rig).await, 2, "read back, it is charged as before");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn a_lie_spends_its_maximum_of_the_tasks_budget_which_then_bears_no_retry() {
    let rig = Rig::new(GATEWAY, BELIEVED).await;
    for _ in 0..2 {
        assert_eq!(get(&rig, "/p/lie", "t").await.status, 200);
    }
    assert_eq!(retries_last_minute(&rig).await, 32);
    // Its own task is spent; another's is not.
    assert_eq!(get(&rig, "/p/busy", "t").await.header("forbear-outcome"), "budget_exhausted");
    assert_eq!(rig.provider.arrivals().len(), 3);
    assert_eq!(get(&rig, "/p/busy", "other").await.header("forbear-attempts"), "2", "three sends were one attempt");
}

#[tokio::test]
async fn nobodys_word_is_taken_whom_the_contract_does_not_name() {
    let rig = Rig::new(GATEWAY, NOT_BELIEVED).await;
    assert_eq!(get(&rig, "/p/lie", "t").await.status, 200);
    assert_eq!(retries_last_minute(&rig).await, 0);
}

#[tokio::test]
async fn a_refusal_of_a_layers_second_send_proves_nothing_of_its_first() {
    let write = [("authorization", "k")];
    let rig = Rig::new(GATEWAY, BELIEVED).await;
    let got = rig.call("POST", "/p/orders", &write, "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (422, "outcome_unknown"), "{got:?}");
    assert_eq!(got.json()["effect"], "unknown");
    let rig = Rig::new(GATEWAY, NOT_BELIEVED).await;
    let got = rig.call("POST", "/p/orders", &write, "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "rejected"), "{got:?}");
}
