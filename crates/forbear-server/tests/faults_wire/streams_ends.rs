//! Bodies that are cut, with whatever framing: cut for the agent too, and no success.

use crate::agent::{Agent, Raw, SIDES, field, policy, raw_field, read, story};
use crate::rig::Rig;

#[tokio::test]
async fn fb_104_a_body_without_the_end_of_its_trailers_is_cut() {
    let heads = [
        "4\\r\\ntrun\\r\\n0\\r\\n",
        "4\\r\\ntrun\\r\\n0\\r\\nX-Sum: 1\\r\\n",
        "4\\r\\ntrun\\r\\n",
        "9\\r\\ntrun",
        "4\\r\\ntrun\\r\\nzz\\r\\n",
    ];
    for body in heads {
        for status in ["200 OK", "404 Not Found"] {
            let scenario = format!(
                "routes:\n  - match: '* /x'\n    respond:\n      raw: \"HTTP/1.1 {status}\\r\\nTransfer-Encoding: \
                 chunked\\r\\n\\r\\n{body}\"\n      connection: close_silently\n"
            );
            let rig = Rig::new(&scenario, "").await;
            for (method, unknown) in [("GET", "stream_incomplete"), ("POST", "outcome_unknown")] {
                let mut agent = Raw::connect(rig.running.addr()).await;
                agent.write(format!("{method} /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).await;
                let head = agent.head().await;
                let rest = agent.rest().await;
                let at = format!("{body:?} {status} {method}: {head}{rest:?}");
                assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{at}");
                assert!(rest.contains("trun") && !rest.contains("\r\n0\r\n"), "{at}");
                let outcome = if status.starts_with("200") { unknown } else { "stream_incomplete" };
                let story = story(&rig, raw_field(&head, "forbear-action").unwrap()).await;
                assert_eq!(story.action.outcome.as_deref(), Some(outcome), "{at}");
            }
            let mut agent = Agent::connect(rig.running.addr(), true).await;
            let (bytes, ended) = read(agent.call("GET", "/p/x", "").await).await;
            assert_eq!((&bytes[..], ended.is_err()), (&b"trun"[..], true));
        }
    }
}

#[tokio::test]
async fn fb_105_a_cut_body_closes_or_resets_and_never_ends() {
    for (agent_http2, provider_http2) in SIDES {
        for framing in ["chunked", "length"] {
            for status in [200, 404] {
                let scenario = format!(
                    "routes:\n  - match: 'GET /x'\n    respond:\n      status: {status}\n      bytes: 2000\n      \
                     chunk_bytes: 500\n      framing: {framing}\n      fault: {{at: mid_body, after_bytes: 1000, end: fin}}\n"
                );
                let rig = Rig::new(&scenario, &policy("", provider_http2, "")).await;
                let at = format!("{agent_http2} {provider_http2} {framing} {status}");
                if agent_http2 {
                    let mut agent = Agent::connect(rig.running.addr(), true).await;
                    let response = agent.call("GET", "/p/x", "").await;
                    let action = field(&response, "forbear-action").to_owned();
                    let (bytes, ended) = read(response).await;
                    let error = ended.expect_err(&at);
                    let h2 = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<h2::Error>()).unwrap();
                    assert!(h2.is_reset() && h2.is_remote(), "{at}: {h2:?}");
                    assert_eq!(bytes.len(), 1000, "{at}");
                    assert_eq!(story(&rig, &action).await.action.outcome.as_deref(), Some("stream_incomplete"), "{at}");
                } else {
                    let mut agent = Raw::connect(rig.running.addr()).await;
                    agent.write("GET /p/x HTTP/1.1\r\nHost: a\r\n\r\n").await;
                    let head = agent.head().await;
                    let rest = agent.rest().await;
                    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{at}: {head}");
                    assert!(!rest.contains("\r\n0\r\n") && rest.len() >= 1000 && rest.len() < 1100, "{at}: {rest}");
                }
            }
        }
    }
}

/// A refusal's body is read for its meaning, but it is the agent's: what is slow or long passes whole.
#[tokio::test]
async fn a_slow_refusal_passes_whole() {
    let scenario = "
routes:
  - match: 'GET /slow'
    respond: {status: 404, bytes: 8, chunk_bytes: 1, chunk_gap_ms: 800, framing: chunked}
  - match: 'GET /long'
    respond: {status: 404, bytes: 300000, framing: chunked, trailers: {X-Sum: '1'}}
";
    let rig = Rig::new(scenario, "").await;
    let one = |path, length| {
        let address = rig.running.addr();
        async move {
            let mut agent = Agent::connect(address, false).await;
            let response = agent.call("GET", path, "").await;
            assert_eq!(response.status(), 404);
            let (bytes, ended) = read(response).await;
            ended.unwrap();
            assert_eq!(bytes.len(), length);
        }
    };
    tokio::join!(one("/p/slow", 8), one("/p/long", 300_000));
}
