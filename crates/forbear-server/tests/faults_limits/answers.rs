//! Groups C and M: what an answer is taken for, what is no refusal although it looks like one, and what no repeat mends.

use std::time::Duration;

use forbear_api::client::TOKEN_FILE;
use forbear_core::classify::Kind;
use forbear_core::event::Fact;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::rig::{Got, Rig};
use crate::told::{QUICK, SOON, closed_row, journal, understood, until};

fn policy(extends: &str, classes: &str) -> String {
    format!("{QUICK}request_classes: {{{classes}}}\nproviders:\n  p:\n    extends: {extends}\n    base_url: $BASE\n")
}

fn always(answer: &Value) -> String {
    json!({"routes": [{"match": "* /{rest...}", "respond": answer}]}).to_string()
}

async fn post(rig: &Rig, path: &str, fields: &[(&str, &str)]) -> Got {
    rig.call("POST", path, &[&[("authorization", "Bearer k1")], fields].concat(), "{}").await
}

async fn get_as(rig: &Rig, token: &str, path: &str) -> Got {
    rig.call("GET", path, &[("authorization", &format!("Bearer {token}"))], "").await
}

fn is_closed(rig: &Rig) -> bool {
    rig.running.shard().scopes(1).iter().any(|row| row.next_allowed_at.is_some())
}

#[tokio::test]
async fn fb_055_an_overload_notice_in_the_text_of_an_answer_is_text() {
    let delta = |text: &str| json!({"data": {"choices": [{"delta": {"content": text}}]}});
    let notice = ["Overloaded. ", "Please try again ", "in 3 minutes"].map(delta);
    let done = json!({"data": "[DONE]"});
    let alone: Vec<_> = notice.iter().cloned().chain([done.clone()]).collect();
    let quoted: Vec<_> = notice.into_iter().chain([delta(", said the server, and meant it."), done]).collect();
    for events in [alone, quoted] {
        let rig = Rig::new(&always(&json!({"events": events, "event_gap_ms": 5})), &policy("openai", "")).await;
        let got = post(&rig, "/p/v1/chat/completions", &[]).await;
        let texts: Vec<String> = events
            .iter()
            .map(|event| match &event["data"] {
                Value::String(text) => format!("data: {text}\n\n"),
                other => format!("data: {other}\n\n"),
            })
            .collect();
        assert_eq!(String::from_utf8_lossy(&got.body), texts.concat());
        assert_eq!((got.status, got.header("forbear-outcome")), (200, "succeeded"));
        assert_eq!((rig.provider.arrivals().len(), is_closed(&rig)), (1, false));
    }
}

#[tokio::test]
async fn fb_056_the_providers_verdict_ends_a_retry_and_makes_none_safe() {
    let no = json!({"status": 429, "headers": {"x-should-retry": "false", "Retry-After": "1"}, "body": {}});
    let rig = Rig::new(&always(&no), &policy("openai", "")).await;
    let (got, row) = tokio::join!(post(&rig, "/p/v1/chat/completions", &[]), closed_row(&rig));
    assert_eq!((got.status, got.header("forbear-outcome")), (429, "rejected"), "{got:?}");
    assert_eq!((rig.provider.arrivals().len(), row.source.as_deref()), (1, Some("retry_after")));
    let read = understood(&journal(rig).await).remove(0);
    assert_eq!((read.rule.as_ref(), read.should_retry), ("status 429, x-should-retry: false", Some(false)));

    let yes = json!({"status": 400, "headers": {"x-should-retry": "true"}, "body": {}});
    let write = "uncertain_write: {max_attempts: 3, max_wait_seconds: 5, retry_statuses: [429, 503]}";
    let rig = Rig::new(&always(&yes), &policy("openai", write)).await;
    let got = post(&rig, "/p/v1/batches", &[]).await;
    assert_eq!((got.status, got.header("forbear-outcome")), (400, "rejected"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
    let read = understood(&journal(rig).await).remove(0);
    assert_eq!((read.rule.as_ref(), read.should_retry), ("status 400, x-should-retry: true", Some(true)));
}

/// Metrics that keep 529, 503 and 429 apart come later; the record does.
#[tokio::test]
async fn fb_057_an_overload_of_its_own_status_is_repeated_within_bounds_and_slows_nobody() {
    let busy = json!({"status": 529, "body": {"type": "error", "error": {"type": "overloaded_error"}}});
    let rig = Rig::new(&always(&busy), &policy("anthropic", "")).await;
    let asked = async {
        let got = post(&rig, "/p/v1/messages", &[]).await;
        assert_eq!((got.status, got.header("forbear-outcome")), (529, "budget_exhausted"), "{got:?}");
    };
    let watched = async {
        loop {
            assert!(!is_closed(&rig), "an overload is not the account's limit");
            // sleep: the register is sampled while the call runs; nothing tells of its movements
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = asked => {}
        () = watched => unreachable!("it never ends"),
    }
    assert_eq!(rig.provider.arrivals().len(), 4, "max_attempts of its class");
    for n in 1..4 {
        let most = Duration::from_millis((200_u64 << n).min(1_000) + 100 + 900);
        assert!(rig.gap(n, n + 1) >= Duration::from_millis(200) && rig.gap(n, n + 1) < most, "{:?}", rig.gap(n, n + 1));
    }
    let events = journal(rig).await;
    let statuses = events.iter().filter_map(|event| match &event.fact {
        Fact::ActionResult(result) => result.status,
        _ => None,
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [529; 4]);
    assert!(understood(&events).iter().all(|read| read.kind == Kind::Unavailable));
}

#[tokio::test]
async fn fb_058_a_page_instead_of_json_is_opaque() {
    let page = "<!DOCTYPE html><title>429</title><p>Please retry in 1s";
    let headers = json!({"Content-Type": "text/html", "Retry-After": "5"});
    let refusal = json!({"status": 429, "headers": headers, "body": page});
    let waits = async {
        let scenario = json!({"routes": [{"match": "* /x", "then": [refusal, {"body": {"fine": true}}]}]}).to_string();
        let rig = Rig::new(&scenario, QUICK).await;
        let got = rig.get("/p/x").await;
        assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
        assert!(rig.gap(1, 2) >= Duration::from_secs(5), "{:?}", rig.gap(1, 2));
    };
    let is_passed_on = async {
        let mut refusal = refusal.clone();
        refusal["headers"]["x-should-retry"] = "false".into();
        let rig = Rig::new(&always(&refusal), QUICK).await;
        let got = rig.get("/p/x").await;
        assert_eq!((got.status, got.header("content-type"), &got.body[..]), (429, "text/html", page.as_bytes()));
        assert_eq!(rig.provider.arrivals().len(), 1);
        let read = understood(&journal(rig).await).remove(0);
        assert_eq!((read.kind, read.code, read.malformed), (Kind::Throttled, None, Vec::<String>::new()));
    };
    tokio::join!(waits, is_passed_on);
}

#[tokio::test]
async fn fb_060_what_exists_already_is_said_at_once() {
    let conflict = json!({"status": 409, "body": {"code": "conflict"}});
    for class in ["read", "inference", "idempotent_write", "uncertain_write"] {
        let classes = "uncertain_write: {max_attempts: 3, max_wait_seconds: 5, retry_statuses: [409, 429]}";
        let more =
            format!("    routes: [{{match: 'POST /flags', class: {class}, idempotency_header: Idempotency-Key}}]\n");
        let rig = Rig::new(&always(&conflict), &(policy("stripe", classes) + &more)).await;
        let got = post(&rig, "/p/flags", &[("idempotency-key", "k-1")]).await;
        assert_eq!((got.status, got.header("forbear-outcome")), (409, "rejected"), "{class}: {got:?}");
        assert_eq!((got.json(), rig.provider.arrivals().len()), (json!({"code": "conflict"}), 1), "{class}");
    }
}

/// Its end is `rejected`: the call has to be changed. A call that is accepted for later comes later.
#[tokio::test]
async fn fb_181_what_is_wrong_leaves_the_line_and_is_not_sent_again() {
    let scenario = "
routes:
  - match: 'GET /slow'
    respond: {body: {ok: true}, delay_ms: 500}
  - match: 'POST /jobs'
    respond: {status: 422, body: {error: {code: invalid_field}}}
";
    let rig = Rig::new(scenario, "shared_scope: {max_concurrent_requests: 1}\n").await;
    let job = async {
        rig.provider.wait_for_arrivals(1, SOON).await.unwrap();
        post(&rig, "/p/jobs", &[]).await
    };
    let is_in_line = until(|| rig.running.shard().scopes(1).first().filter(|row| row.delayed == 1).map(|_| ()));
    let (slow, got, ()) = tokio::join!(rig.get("/p/slow"), job, is_in_line);
    assert_eq!((slow.status, got.status, got.header("forbear-outcome")), (200, 422, "rejected"), "{got:?}");
    assert_eq!(got.json()["error"]["code"], "invalid_field");
    let row = until(|| rig.running.shard().scopes(1).into_iter().next().filter(|row| row.in_flight == 0)).await;
    assert_eq!((row.delayed, row.retries_last_minute), (0, 0));
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn fb_187_a_scope_is_closed_by_what_is_on_record_and_everybody_says_so() {
    let scenario = "
routes:
  - match: 'GET /by-wait'
    respond: {status: 429, headers: {Retry-After: '300'}, body: {}}
  - match: 'GET /by-reset'
    respond: {status: 403, headers: {X-RateLimit-Remaining: '0', X-RateLimit-Reset: '{{epoch +600s}}'}, body: {}}
  - match: 'GET /by-body'
    respond: {status: 429, body: {error: {type: usage_limit_reached, resets_in_seconds: 900}}}
  - match: 'GET /overloaded'
    respond: {status: 503, headers: {Retry-After: '1200'}, body: {}}
  - match: 'GET /fine'
    respond: {body: {ok: true}}
";
    let policy = "request_classes: {read: {max_wait_seconds: 2, max_queue_seconds: 2}}\n";
    let closing = ["/p/by-wait", "/p/by-reset", "/p/by-body", "/p/overloaded"];
    let rig = Rig::new(scenario, policy).await;
    let mixed = join_all(closing.iter().chain(&["/p/fine"]).map(|path| get_as(&rig, path, path))).await;
    assert_eq!(mixed.iter().map(|got| got.status).collect::<Vec<_>>(), [429, 403, 429, 503, 200], "{mixed:?}");

    let before = rig.running.shard().scopes(10);
    let rig = rig.restart(policy).await;
    let after = rig.running.shard().scopes(10);
    let instants = |rows: &[forbear_core::view::ScopeView]| -> Vec<_> {
        rows.iter()
            .filter_map(|row| Some((row.scope.clone(), row.next_allowed_at?, row.source.clone(), row.raw.clone())))
            .collect()
    };
    let closed = instants(&after);
    assert_eq!((closed.len(), &closed), (4, &instants(&before)), "what is kept is what was shown");

    // The line tells each of its callers the same instant, and what the control API shows is the same again.
    let told = join_all(closing.map(|path| get_as(&rig, path, "/p/fine"))).await;
    let mut told: Vec<Value> = told.iter().map(|got| got.json()["next_allowed_at"].clone()).collect();
    let token = std::fs::read_to_string(rig.running.data_dir().join(TOKEN_FILE)).unwrap();
    let request = http::Request::get("/-/v1/scopes")
        .header("host", rig.running.addr().to_string())
        .header("authorization", format!("Bearer {}", token.trim()));
    let rows = rig.send(request.body(http_body_util::Full::default()).unwrap()).await.json();
    let items = rows["items"].as_array().unwrap().iter().filter(|row| row["next_allowed_at"].is_string());
    let mut shown: Vec<Value> = items.map(|row| row["next_allowed_at"].clone()).collect();
    let by_text = |value: &Value| value.to_string();
    told.sort_by_key(by_text);
    shown.sort_by_key(by_text);
    assert_eq!((told.len(), &told), (4, &shown), "{rows}");

    // Each has its event, with the source and the field as it came.
    assert_eq!(rig.provider.arrivals().len(), 5, "nobody was sent into a closed scope");
    let events = journal(rig).await;
    for (scope, until, source, raw) in closed {
        let event = events.iter().rev().find_map(|event| match &event.fact {
            Fact::ScopeUpdated(update) if update.scope == scope => Some(update),
            _ => None,
        });
        let update = event.unwrap();
        let boundary = update.boundary.as_ref().unwrap();
        assert_eq!(update.retry_not_before, Some(until), "{scope:?}");
        assert_eq!(
            (Some(boundary.source.as_str()), Some(&boundary.raw)),
            (source.as_deref(), raw.as_ref()),
            "{scope:?}"
        );
    }
}
