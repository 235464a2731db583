//! What the provider keeps between requests: limits by arrival, idempotency keys, effects and late lookups.

use super::client::{Client, Ended, WITHIN, get, post, provider};
use forbear_lab::provider::{Fate, Provider, Scenario};

#[tokio::test]
async fn a_window_is_enforced_by_arrival_and_announced() {
    let lab = provider(
        r#"
limits:
  - name: rpm
    per: credential
    window: {max: 2, per_ms: 60000}
    announce: {X-Left: "{{limit.remaining}}"}
unmatched: {status: 200}
"#,
    )
    .await;
    let mut seen = Vec::new();
    for key in ["a", "a", "a", "b"] {
        let answer = Client::new(&lab).await.call("GET", "/", &format!("X-Api-Key: {key}\r\n"), "").await;
        seen.push((answer.status, answer.value("x-left").to_owned(), answer.value("retry-after").to_owned()));
    }
    let row = |status, left: &str, wait: &str| (status, left.to_owned(), wait.to_owned());
    assert_eq!(seen, [row(200, "1", ""), row(200, "0", ""), row(429, "", "60"), row(200, "1", "")]);
    let refused = &lab.arrivals()[2];
    assert_eq!((refused.refused_by_limit, refused.limit.as_deref()), (true, Some("rpm")));
    assert_eq!(refused.fate, Fate::RefusedByLimit);
}

#[tokio::test]
async fn a_window_opens_again_on_time() {
    let lab = provider(r#"{limits: [{name: w, window: {max: 1, per_ms: 200}}], unmatched: {status: 200}}"#).await;
    let mut client = Client::new(&lab).await;
    while client.get("/").await.status == 200 && lab.arrivals().len() < 2 {}
    while client.get("/").await.status != 200 {}
    let admitted: Vec<u64> =
        lab.arrivals().iter().filter(|arrival| !arrival.refused_by_limit).map(|arrival| arrival.at_ns).collect();
    assert!(admitted[1] - admitted[0] >= 200_000_000, "{admitted:?}");
    assert!(lab.arrivals().iter().any(|arrival| arrival.refused_by_limit));
}

#[tokio::test]
async fn concurrency_slots_come_back_on_every_path() {
    let lab = provider(
        r#"
limits: [{name: c, concurrency: {max: 1}, on: ["GET /slow", "GET /drop", "GET /fast"]}]
routes:
  - {match: "GET /slow", respond: {process_ms: 60000, abandon_on_close: true}}
  - {match: "GET /drop", respond: {fault: {at: after_body, end: rst}}}
  - {match: "GET /fast", respond: {}}
"#,
    )
    .await;
    let mut slow = Client::new(&lab).await;
    slow.send("GET /slow HTTP/1.1\r\n\r\n").await;
    lab.wait_for_arrivals(1, WITHIN).await.unwrap();
    assert_eq!(get(&lab, "/fast").await.status, 429);
    drop(slow);
    lab.wait_until(WITHIN, |all| all[0].fate == Fate::PeerClosed).await.unwrap();
    assert_eq!(get(&lab, "/fast").await.status, 200);
    let mut dropped = Client::new(&lab).await;
    dropped.send("GET /drop HTTP/1.1\r\n\r\n").await;
    assert_eq!(dropped.rest().await.1, Ended::Rst);
    lab.wait_until(WITHIN, |all| all.iter().any(|one| one.fate == Fate::DroppedAfterBody)).await.unwrap();
    assert_eq!(get(&lab, "/fast").await.status, 200);
}

#[tokio::test]
async fn the_header_may_lie_about_the_reset() {
    let lab = provider(
        r#"{limits: [{name: w, window: {max: 1, per_ms: 10000}, shift_ms: -8000}], unmatched: {status: 200}}"#,
    )
    .await;
    get(&lab, "/").await;
    assert_eq!(get(&lab, "/").await.value("retry-after"), "2");
}

const KEYED: &str = r#"
routes:
  - match: "POST /pay"
    idempotency: {header: Idempotency-Key, retention_ms: 60000, replay_headers: {Replayed: "true"}, in_progress: {status: 409}, mismatch: {status: 422}}
    then:
      - {status: 201, effect: {name: pay, id: "p{{counter p}}"}, body: {id: "{{effect.id}}"}}
      - {status: 201, process_ms: 60000, effect: {name: pay}, abandon_on_close: true}
      - {status: 201, effect: {name: pay}, fault: {at: after_commit, end: rst}, body: {id: "{{effect.id}}"}}
      - {status: 201, effect: {name: pay}, fault: {at: after_body, end: rst}}
      - {status: 201, effect: {name: pay}, body: {id: "{{effect.id}}"}}
"#;

async fn pay(lab: &Provider, key: &str, body: &str) -> (u16, String, String) {
    let answer = post(lab, "/pay", &format!("Idempotency-Key: {key}\r\n"), body).await;
    (answer.status, answer.value("replayed").to_owned(), answer.text().to_owned())
}

async fn lost(lab: &Provider, key: &str) {
    let mut client = Client::new(lab).await;
    client.send(&format!("POST /pay HTTP/1.1\r\nIdempotency-Key: {key}\r\nContent-Length: 1\r\n\r\n1")).await;
    assert_eq!(client.rest().await, (String::new(), Ended::Rst));
}

#[tokio::test]
async fn a_key_has_one_effect_whatever_happens() {
    let lab = provider(KEYED).await;
    assert_eq!(pay(&lab, "a", "1").await, (201, String::new(), r#"{"id":"p1"}"#.into()));
    assert_eq!(pay(&lab, "a", "1").await, (201, "true".into(), r#"{"id":"p1"}"#.into()), "replayed");
    assert_eq!(pay(&lab, "a", "2").await.0, 422, "another body");
    let mut slow = Client::new(&lab).await;
    slow.send("POST /pay HTTP/1.1\r\nIdempotency-Key: b\r\nContent-Length: 1\r\n\r\n1").await;
    lab.wait_for_arrivals(4, WITHIN).await.unwrap();
    assert_eq!(pay(&lab, "b", "1").await.0, 409, "in progress");
    drop(slow);
    lab.wait_until(WITHIN, |all| all[3].fate == Fate::PeerClosed).await.unwrap();
    lost(&lab, "c").await;
    assert_eq!(lab.effects().count, 2);
    assert_eq!(pay(&lab, "c", "1").await, (201, "true".into(), r#"{"id":"effect-2"}"#.into()), "committed, then lost");
    lost(&lab, "d").await;
    lab.wait_until(WITHIN, |all| all.iter().any(|one| one.fate == Fate::DroppedAfterBody)).await.unwrap();
    assert_eq!(pay(&lab, "d", "1").await.1, "", "lost before the commit: a first time again");
    assert_eq!(pay(&lab, "b", "1").await.1, "", "abandoned: a first time again");
    let effects = lab.effects();
    let keys: Vec<_> = effects.records.iter().map(|record| record.key.as_deref().unwrap()).collect();
    assert_eq!((effects.count, keys), (4, vec!["a", "c", "d", "b"]));
    let fates: Vec<_> = lab.arrivals().iter().map(|arrival| arrival.fate).take(5).collect();
    assert_eq!(fates, [Fate::Answered, Fate::Replayed, Fate::KeyMismatch, Fate::PeerClosed, Fate::KeyInProgress]);
    assert_eq!(lab.arrivals()[0].idempotency_key.as_deref(), Some("a"));
}

#[tokio::test]
async fn keys_are_forgotten_held_and_required_as_scripted() {
    let lab = provider(
        r#"
routes:
  - match: "POST /short"
    idempotency: {body: /key, retention_ms: 0, missing: {status: 400}}
    respond: {effect: {name: e}}
  - match: "POST /held"
    idempotency: {header: K, hold_ms: 60000}
    respond: {effect: {name: e}}
  - match: "POST /errors"
    idempotency: {header: K, remember_statuses: [200]}
    then: [{status: 500}, {status: 200, effect: {name: e}}]
  - match: "POST /once"
    idempotency: {header: K, repeated: {status: 409}}
    respond: {effect: {name: e}}
"#,
    )
    .await;
    for _ in 0..2 {
        assert_eq!(post(&lab, "/short", "", r#"{"key":"k"}"#).await.status, 200);
    }
    assert_eq!(lab.effects().count, 2, "beyond the retention a key does it again");
    assert_eq!(post(&lab, "/short", "", "{}").await.status, 400);
    for (target, statuses) in [("/held", [200, 409, 409]), ("/errors", [500, 200, 200]), ("/once", [200, 409, 409])] {
        for status in statuses {
            assert_eq!(post(&lab, target, "K: k\r\n", "").await.status, status, "{target}");
        }
    }
    assert_eq!(lab.effects().count, 5);
}

#[tokio::test]
async fn lookups_see_a_commit_only_later() {
    let lab = provider(
        r#"
routes:
  - match: "POST /pay"
    respond: {effect: {name: pay, id: "p1", fields: {ref: "{{body./ref}}"}, visible_after_lookups: 2}}
  - match: "POST /later"
    respond: {effect: {name: later, id: "l1", visible_after_ms: 150}}
  - match: "GET /pay/{id}"
    respond: {lookup: {effect: pay, by: {id: "{{path.id}}"}}, body: {amount: "{{json match./amount}}"}}
  - match: "GET /pay"
    respond:
      lookup: {effect: pay, by: {ref: "{{query.ref}}"}, missing: {body: {data: []}}}
      body: {data: "{{json matches}}"}
  - match: "GET /later/{id}"
    respond: {lookup: {by: {id: "{{path.id}}"}}}
"#,
    )
    .await;
    post(&lab, "/pay", "", r#"{"ref":"r-1","amount":5}"#).await;
    assert_eq!(get(&lab, "/pay/p1").await.status, 404);
    assert_eq!(get(&lab, "/pay/p2").await.status, 404, "another one does not count");
    assert_eq!(get(&lab, "/pay?ref=r-1").await.json(), serde_json::json!({"data": []}));
    assert_eq!(get(&lab, "/pay/p1").await.json(), serde_json::json!({"amount": 5}));
    assert_eq!(get(&lab, "/pay?ref=r-1").await.json()["data"][0]["id"], "p1");
    post(&lab, "/later", "", "").await;
    let committed_ns = lab.effects().records[1].at_ns;
    assert_eq!(get(&lab, "/later/l1").await.status, 404);
    while get(&lab, "/later/l1").await.status == 404 {}
    assert!(lab.arrivals().last().unwrap().head_written_at_ns.unwrap() >= committed_ns + 150_000_000);
}

#[tokio::test]
async fn the_shipped_payments_lose_an_answer_but_not_the_payment() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/stripe-like.yaml")).unwrap();
    let lab = provider(&text).await;
    let body = r#"{"amount":500,"currency":"eur","metadata":{"reference":"r-9"}}"#;
    let mut client = Client::new(&lab).await;
    let len = body.len();
    client.send(&format!("POST /v1/payment_intents HTTP/1.1\r\nX-Lab: lose\r\nIdempotency-Key: k\r\nContent-Length: {len}\r\n\r\n{body}")).await;
    assert_eq!(client.rest().await.1, Ended::Rst);
    let again = post(&lab, "/v1/payment_intents", "Idempotency-Key: k\r\n", body).await;
    assert_eq!((again.status, again.value("idempotent-replayed")), (200, "true"));
    assert_eq!(again.json()["amount"], 500);
    assert_eq!(lab.effects().count, 1);
    let found = loop {
        let found =
            get(&lab, "/v1/payment_intents/search?query=metadata%5B%27reference%27%5D%3A%27r-9%27").await.json();
        if found["data"] != serde_json::json!([]) {
            break found;
        }
    };
    assert_eq!((&found["data"][0]["id"], &found["data"][0]["amount"]), (&again.json()["id"], &500.into()));
}

#[tokio::test]
async fn a_replaced_scenario_starts_over() {
    let lab = provider(r#"{routes: [{match: "GET /", then: [{status: 429}, {status: 200}]}]}"#).await;
    assert_eq!(get(&lab, "/").await.status, 429);
    lab.reset();
    assert!(lab.arrivals().is_empty());
    assert_eq!(get(&lab, "/").await.status, 429, "the sequence begins again");
    lab.set_scenario(Scenario::from_yaml("{unmatched: {status: 418}}").unwrap());
    assert_eq!(get(&lab, "/").await.status, 418);
    assert_eq!(lab.arrivals()[0].n, 1);
}
