//! `Expect: 100-continue`: a body that is not wanted is never asked for, one that is wanted is asked for at once.

use std::time::{Duration, Instant};

use crate::agent::{PATIENCE, Raw, idle, once};
use crate::rig::Rig;

const EXPECTING: &str =
    "Host: a\r\nAuthorization: Bearer k1\r\nExpect: 100-continue\r\nContent-Length: 1048576\r\n\r\n";

#[tokio::test]
async fn fb_122_a_final_answer_comes_without_the_body() {
    let scenario = "
routes:
  - match: 'GET /things'
    respond: {status: 429, headers: {Retry-After: '3600'}, body: {}}
";
    let policy = "
body_replay_bytes_max: 65536
body_bytes_max: 1048576
providers:
  p:
    base_url: $BASE
    routes:
      - {match: 'POST /r', class: read}
      - {match: 'POST /w', class: idempotent_write, idempotency_header: Idempotency-Key}
";
    let rig = Rig::new(scenario, policy).await;
    assert_eq!(rig.get("/p/things").await.status, 429);
    let large = EXPECTING.replace("1048576", "1048577");
    for (line, rest, status, word) in [
        ("POST /p/r HTTP/1.1", EXPECTING, "429", "deferred"),
        ("POST /p/w HTTP/1.1", EXPECTING, "429", "deferred"),
        ("PUT /p/any HTTP/1.1", EXPECTING, "429", "deferred"),
        ("POST /nowhere/x HTTP/1.1", EXPECTING, "404", "unknown_provider"),
        ("POST /p/../x HTTP/1.1", EXPECTING, "400", "bad_target"),
        // Whose scope is open, but whose body is too large.
        ("POST /p/r HTTP/1.1", &large.replace("k1", "k2"), "413", "body_too_large"),
    ] {
        let began = Instant::now();
        let answer = once(&rig, format!("{line}\r\n{rest}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert!(answer.contains(word) && !answer.contains("100 Continue"), "{line}: {answer}");
        assert!(began.elapsed() < Duration::from_secs(1), "{line}: {:?}", began.elapsed());
    }
    assert_eq!(rig.provider.arrivals().len(), 1);
    idle(&rig, PATIENCE).await;
}

#[tokio::test]
async fn fb_122_a_full_line_is_told_without_the_body() {
    let scenario = "routes:\n  - match: 'GET /slow'\n    respond: {delay_ms: 10000, body: late}\n";
    let policy = "shared_scope: {max_concurrent_requests: 1, max_delayed_requests: 1}\n";
    let rig = Rig::new(scenario, policy).await;
    let slow = "GET /p/slow HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k1\r\n\r\n";
    let mut sent = Raw::connect(rig.running.addr()).await;
    sent.write(slow).await;
    rig.provider.wait_for_arrivals(1, PATIENCE).await.unwrap();
    let mut waits = Raw::connect(rig.running.addr()).await;
    waits.write(slow).await;
    let is_in_line = || rig.running.shard().scopes(1)[0].delayed == 1;
    crate::agent::eventually("the second call waits", PATIENCE, is_in_line).await;
    let began = Instant::now();
    let answer = once(&rig, format!("POST /p/any HTTP/1.1\r\n{EXPECTING}")).await;
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("shed"), "{answer}");
    assert!(!answer.contains("100 Continue") && began.elapsed() < Duration::from_secs(1), "{answer}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn fb_123_an_admitted_body_is_asked_for_and_sent_once() {
    let scenario = "
routes:
  - match: 'PUT /{x}'
    respond: {continue: ignore, body: stored}
";
    for is_http2 in [false, true] {
        let rig = Rig::new(scenario, &crate::agent::policy("", is_http2, "")).await;
        for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let before = rig.provider.arrivals().len();
            let mut agent = Raw::connect(rig.running.addr()).await;
            let began = Instant::now();
            agent.write(format!("PUT /p/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{framing}\r\n")).await;
            assert_eq!(agent.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
            assert!(began.elapsed() < Duration::from_secs(1));
            assert_eq!(rig.provider.arrivals().len(), before, "nothing leaves without its body");
            agent.write(if framing.starts_with('C') { "hello" } else { "5\r\nhello\r\n0\r\n\r\n" }).await;
            let head = agent.head().await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            let arrivals = rig.provider.arrivals();
            assert_eq!((arrivals.len(), arrivals[before].body_bytes), (before + 1, 5));
            assert_eq!(arrivals[before].header("expect"), None);
        }
    }
}

/// A busy scope is no closed one: the body is taken in and the call waits for its turn.
#[tokio::test]
async fn fb_123_a_body_is_asked_for_while_all_slots_are_taken() {
    let scenario = "
routes:
  - match: 'GET /slow'
    respond: {delay_ms: 300, body: late}
  - match: 'PUT /x'
    respond: {body: stored}
";
    let rig = Rig::new(scenario, "shared_scope: {max_concurrent_requests: 1}\n").await;
    let mut sent = Raw::connect(rig.running.addr()).await;
    sent.write("GET /p/slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    rig.provider.wait_for_arrivals(1, PATIENCE).await.unwrap();
    let mut agent = Raw::connect(rig.running.addr()).await;
    agent.write("PUT /p/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(agent.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    agent.write("hello").await;
    assert!(agent.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(sent.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
}

/// An agent that sends its body without waiting is as good.
#[tokio::test]
async fn an_agent_that_does_not_wait_for_100_is_served() {
    let rig = Rig::new("routes:\n  - match: 'PUT /x'\n    respond: {body: stored}\n", "").await;
    let request =
        "PUT /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
    let answer = once(&rig, request).await;
    assert!(answer.contains("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}
