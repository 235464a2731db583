//! An error that a stream begins with is the answer, and repeated where its like would be; after content it is a cut.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;

use crate::agent::{Agent, PATIENCE, SIDES, field, idle, policy, read, story};
use crate::rig::Rig;

const CHAT: &str = "/p/v1/chat/completions";
const MESSAGES: &str = "/p/v1/messages";
const BUSY: &str = r#"{"error": {"code": "server_is_overloaded", "message": "busy"}}"#;
const SPENT: &str = r#"{"error": {"type": "insufficient_quota", "code": null}}"#;
const OVERLOADED: &str = r#"{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}"#;

/// A stream that is so first, in pieces of so many bytes, and whole the next time.
fn first(events: &str, how: &str) -> String {
    format!(
        "routes:\n  - match: '* /{{rest...}}'\n    then:\n      - {{headers: {{Content-Type: text/event-stream}}, \
         framing: chunked, {how} body: {}}}\n      - {{headers: {{Content-Type: text/event-stream}}, body: \"{}\"}}\n",
        serde_json::to_string(events).unwrap(),
        "event: message_start\\ndata: fine\\n\\nevent: message_stop\\ndata: [DONE]\\n\\n",
    )
}

/// What the agent got, what became of the call, and how often it went out.
async fn outcome(rig: &Rig, path: &str, is_http2: bool) -> (u16, String, String, usize) {
    let before = rig.provider.arrivals().len();
    let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
    let response = agent.call("POST", path, "{}").await;
    let (status, action) = (response.status().as_u16(), field(&response, "forbear-action").to_owned());
    let (bytes, ended) = read(response).await;
    ended.unwrap();
    let outcome = story(rig, &action).await.action.outcome.unwrap();
    idle(rig, PATIENCE).await;
    (status, String::from_utf8(bytes).unwrap(), outcome, rig.provider.arrivals().len() - before)
}

#[tokio::test]
async fn an_overload_before_content_is_repeated_and_never_seen() {
    let bare = format!("data: {BUSY}\n\n");
    let named = format!("event: error\r\ndata: {OVERLOADED}\r\n\r\n");
    let kept = format!(": connecting\n\n: connecting\n\ndata: {BUSY}\n\ndata: [DONE]\n\n");
    let unended = format!("data: {BUSY}");
    let table = [
        ("openai", CHAT, &bare, ""),
        ("openai", CHAT, &bare, "chunk_bytes: 1,"),
        ("openai", CHAT, &kept, "chunk_bytes: 7,"),
        ("openai", CHAT, &unended, ""),
        ("anthropic", MESSAGES, &named, ""),
        ("anthropic", MESSAGES, &named, "chunk_bytes: 3,"),
    ];
    for (extends, path, events, how) in table {
        for (agent_http2, provider_http2) in SIDES {
            let rig = Rig::new(&first(events, how), &policy(extends, provider_http2, "")).await;
            let (status, got, outcome, sends) = outcome(&rig, path, agent_http2).await;
            let at = format!("{extends} {how} {agent_http2} {provider_http2} {got:?}");
            assert_eq!((status, outcome.as_str(), sends), (200, "succeeded", 2), "{at}");
            assert!(got.contains("data: fine") && !got.contains("error"), "{at}");
        }
    }
}

#[tokio::test]
async fn what_no_repeat_mends_is_passed_on_as_it_came_and_is_no_success() {
    for (data, sends) in [(SPENT, 1), (r#"{"error": {"code": "content_filter"}}"#, 1), ("{\"error\": broken", 1)] {
        let events = format!("data: {data}\n\ndata: [DONE]\n\n");
        let rig = Rig::new(&first(&events, ""), &policy("openai", false, "")).await;
        assert_eq!(outcome(&rig, CHAT, false).await, (200, events, "rejected".into(), sends), "{data}");
    }
}

/// All attempts used, Forbear answers, and not with a success.
#[tokio::test]
async fn an_overload_that_stays_ends_within_the_budget() {
    let scenario = first(&format!("data: {BUSY}\n\n"), "times: 100,");
    let rig = Rig::new(&scenario, &policy("openai", false, "")).await;
    let (status, got, outcome, sends) = outcome(&rig, CHAT, false).await;
    assert_eq!((status, outcome.as_str(), sends), (504, "budget_exhausted", 4), "{got}");
    assert!(got.contains("server_is_overloaded"), "{got}");
}

/// A write that a stream's error leaves open is not sent again.
#[tokio::test]
async fn an_overload_of_a_write_leaves_its_effect_open() {
    let rig = Rig::new(&first(&format!("data: {BUSY}\n\n"), ""), &policy("openai", false, "")).await;
    let (status, got, outcome, sends) = outcome(&rig, "/p/v1/files", false).await;
    assert_eq!((status, outcome.as_str(), sends), (422, "outcome_unknown", 1), "{got}");
}

#[tokio::test]
async fn after_content_or_without_marks_it_is_passed_on_once() {
    let late = format!("data: one\n\ndata: {BUSY}\n\n");
    let named = format!(
        "event: message_start\ndata: {{}}\n\nevent: content_block_start\ndata: {{}}\n\nevent: error\ndata: {OVERLOADED}\n\n"
    );
    let plain = format!("data: {BUSY}\n\n");
    let failed = r#"{"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}"#;
    let failed = format!(
        "event: response.created\n\nevent: response.output_item.added\ndata: {{}}\n\nevent: response.failed\ndata: {failed}\n\n"
    );
    let table = [
        ("openai", "/p/v1/responses", &failed, "stream_incomplete"),
        ("openai", CHAT, &late, "stream_incomplete"),
        ("anthropic", MESSAGES, &named, "stream_incomplete"),
        ("", "/p/x", &plain, "succeeded"),
    ];
    for (extends, path, events, expected) in table {
        for how in ["", "chunk_bytes: 5,"] {
            let policy = policy(extends, false, "")
                .replace("http2_prior", "routes: [{match: 'POST /x', class: read}]\n    http2_prior");
            let rig = Rig::new(&first(events, how), &policy).await;
            let expected = (200, events.clone(), expected.to_owned(), 1);
            assert_eq!(outcome(&rig, path, false).await, expected, "{extends} {how}");
        }
    }
}

/// Nothing is held back but what may be an error, and no longer than for two seconds.
#[tokio::test]
async fn content_is_passed_on_at_its_first_byte() {
    let scenario = "
routes:
  - match: 'POST /v1/chat/completions'
    respond: {events: [{data: one}, {data: '[DONE]'}], event_gap_ms: 6000}
  - match: 'POST /v1/completions'
    respond: {events: [{comment: wait}, {data: '[DONE]'}], event_gap_ms: 6000}
";
    let rig = Rig::new(scenario, &policy("openai", false, "")).await;
    let begins = |path, piece: &'static str| {
        let address = rig.running.addr();
        async move {
            let began = Instant::now();
            let mut agent = Agent::connect(address, false).await;
            let mut body = agent.call("POST", path, "{}").await.into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, piece);
            began.elapsed()
        }
    };
    let (content, comment) = tokio::join!(begins(CHAT, "data: one\n\n"), begins("/p/v1/completions", ": wait\n\n"));
    assert!(content < Duration::from_millis(1_500), "{content:?}");
    assert!(comment >= Duration::from_secs(2) && comment < Duration::from_millis(4_500), "{comment:?}");
}

#[tokio::test]
async fn a_refusal_in_the_form_of_a_stream_is_a_refusal() {
    let rig = Rig::new(&first("data: none\n\n", "status: 404,"), &policy("openai", false, "")).await;
    assert_eq!(outcome(&rig, CHAT, false).await, (404, "data: none\n\n".into(), "rejected".into(), 1));
}
