//! Group M: what fails in the same way again and again is not sent any more. Counted at the provider.

use serde_json::json;

use crate::rig::{Got, Rig};
use crate::told::QUICK;

const PROVIDER: &str = "providers:\n  p:\n    extends: openai\n    base_url: $BASE\n";

fn policy(breakers: &str) -> String {
    format!("{QUICK}breakers: {{{breakers}}}\n{PROVIDER}")
}

async fn call(rig: &Rig, method: &str, path: &str, run: &str, body: &str) -> Got {
    let fields = [("authorization", "Bearer k1"), ("content-type", "application/json"), ("forbear-run", run)];
    rig.call(method, path, &fields, body).await
}

fn arrivals_of(rig: &Rig, target: &str) -> usize {
    rig.provider.arrivals().iter().filter(|a| a.target.starts_with(target)).count()
}

/// Two calls that can never succeed, in turns, and others that do.
#[tokio::test]
async fn fb_179_each_path_stops_at_its_own_threshold() {
    let script = json!({"routes": [
        {"match": "GET /a", "respond": {"status": 400, "body": {"error": {"code": "bad_x"}}}},
        {"match": "GET /b", "respond": {"status": 400, "body": {"error": {"code": "bad_y"}}}},
        {"match": "* /{rest...}", "respond": {"body": {}}},
    ]});
    let rig = Rig::new(&script.to_string(), &policy("equal_failures: 3")).await;
    for _ in 0..20 {
        call(&rig, "GET", "/p/a?x=bad", "r", "").await;
        call(&rig, "GET", "/p/b?y=bad", "r", "").await;
        assert_eq!(call(&rig, "GET", "/p/ok", "r", "").await.status, 200);
    }
    assert_eq!((arrivals_of(&rig, "/a"), arrivals_of(&rig, "/b"), arrivals_of(&rig, "/ok")), (3, 3, 20));
    let got = call(&rig, "GET", "/p/a?x=bad", "r", "").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (400, "circuit_open"), "{got:?}");
    let said = got.json();
    assert_eq!(said["provider_code"], "bad_x", "{said}");
    assert_eq!((said["sent"].as_bool(), &said["safe_next"][0]), (Some(false), &json!("change_the_request")), "{said}");
    // Another run, and another request of this one, are other matters.
    assert_eq!(call(&rig, "GET", "/p/a?x=bad", "q", "").await.header("forbear-outcome"), "rejected");
    assert_eq!(call(&rig, "GET", "/p/a?x=other", "r", "").await.header("forbear-outcome"), "rejected");
}

#[tokio::test]
async fn fb_180_who_does_not_listen_is_not_passed_on() {
    let script = json!({"routes": [{"match": "* /{rest...}", "respond": {"status": 400, "body": {}}}]});
    let rig = Rig::new(&script.to_string(), &policy("equal_failures: 3, changed_failures: 8")).await;
    for _ in 0..85 {
        let got = call(&rig, "POST", "/p/v1/files", "r", r#"{"n": 1, "filter": {"a": 1, "b": 2}}"#).await;
        assert_eq!(got.status, 400);
    }
    assert_eq!(rig.provider.arrivals().len(), 3);
    // The order of members and the space between them make no other request.
    let got = call(&rig, "POST", "/p/v1/files", "r", r#"{"filter":{"b":2,"a":1},"n":1}"#).await;
    assert_eq!((got.header("forbear-outcome"), rig.provider.arrivals().len()), ("circuit_open", 3));
    // A filter that is renamed each time does, and stops with the path.
    for n in 0..20 {
        call(&rig, "POST", "/p/v1/files", "r", &format!(r#"{{"filter{n}": 1}}"#)).await;
    }
    assert_eq!(rig.provider.arrivals().len(), 8);
}

#[tokio::test]
async fn a_success_between_starts_the_count_again() {
    let bad = json!({"status": 422, "body": {}});
    let script =
        json!({"routes": [{"match": "* /{rest...}", "then": [bad, bad, {"body": {}}, bad, bad, {"body": {}}]}]});
    let rig = Rig::new(&script.to_string(), &policy("equal_failures: 3, changed_failures: 3")).await;
    for _ in 0..6 {
        call(&rig, "GET", "/p/v1/files", "r", "").await;
    }
    assert_eq!(rig.provider.arrivals().len(), 6);
}

#[tokio::test]
async fn fb_182_a_credential_that_is_refused_everywhere_is_stopped() {
    let script = json!({"routes": [{"match": "* /{rest...}", "respond": {"status": 401, "body": {}}}]});
    let rig = Rig::new(&script.to_string(), &policy("unauthorized: 5")).await;
    for n in 0..10 {
        // No run has a name here: the agent looks for another way in.
        let path = format!("/p/v1/{}", n % 5);
        let got = rig.call("GET", &path, &[("authorization", "Bearer k1")], "").await;
        assert_eq!(got.status, 401);
        assert_eq!(got.header("forbear-outcome"), if n < 5 { "rejected" } else { "circuit_open" }, "{n}");
    }
    assert_eq!(rig.provider.arrivals().len(), 5);
    let got = rig.call("GET", "/p/v1/x", &[("authorization", "Bearer k1")], "").await;
    assert_eq!(got.json()["safe_next"], json!(["ask_a_person"]), "{got:?}");
    assert_eq!(got.header("x-should-retry"), "false");
    // Another credential is another matter.
    rig.call("GET", "/p/v1/x", &[("authorization", "Bearer k2")], "").await;
    assert_eq!(rig.provider.arrivals().len(), 6);
}

/// The provider is back when the probe comes, and refuses that very request: it answers, so that others go at once.
#[tokio::test]
async fn fb_184_a_probe_that_fails_for_its_own_fault_keeps_nobody_out() {
    let down = json!({"status": 503, "body": {}});
    let script = json!({"routes": [{"match": "* /{rest...}", "then": [down, down, down, {"status": 400, "body": {}}, {"body": {}}]}]});
    let class = "request_classes: {read: {max_attempts: 1, max_wait_seconds: 0, retry_statuses: []}}\n";
    let policy = format!("{class}{}", policy("scope_failures: 3, scope_open_seconds: 1"));
    let rig = Rig::new(&script.to_string(), &policy).await;
    for _ in 0..3 {
        assert_eq!(call(&rig, "GET", "/p/v1/files", "r", "").await.status, 503);
    }
    let got = call(&rig, "GET", "/p/v1/files", "q", "").await;
    assert_eq!((got.status, got.header("forbear-outcome"), got.header("retry-after")), (503, "circuit_open", "1"));
    assert_eq!(rig.provider.arrivals().len(), 3);
    // sleep: the second for which it is open is what is tested
    tokio::time::sleep(std::time::Duration::from_millis(1_050)).await;
    assert_eq!(call(&rig, "GET", "/p/v1/files", "q", "").await.status, 400);
    assert_eq!(call(&rig, "GET", "/p/v1/files", "s", "").await.status, 200);
}

/// What is open is on record, and the next process keeps it open.
#[tokio::test]
async fn an_open_circuit_survives_a_restart() {
    let script = json!({"routes": [{"match": "* /{rest...}", "respond": {"status": 404, "body": {}}}]});
    let rig = Rig::new(&script.to_string(), &policy("equal_failures: 2")).await;
    for _ in 0..2 {
        call(&rig, "GET", "/p/v1/files/1", "r", "").await;
    }
    let rig = rig.restart(&policy("equal_failures: 2")).await;
    let got = call(&rig, "GET", "/p/v1/files/1", "r", "").await;
    assert_eq!((got.status, got.header("forbear-outcome")), (404, "circuit_open"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 2);
}
