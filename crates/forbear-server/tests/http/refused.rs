//! What never reaches a provider, and how its agent is told.

use std::time::Duration;

use forbear_server::http::serve::ServeOptions;

use super::rig::{Gateway, Provider, Raw, eventually};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn before_ok() -> (Provider, Gateway) {
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::before(&provider.url()).await;
    (provider, gateway)
}

#[tokio::test]
async fn smuggling_is_refused_with_words_and_a_closed_connection() {
    let (provider, gateway) = before_ok().await;
    for head in [
        "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET /p HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET /p HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        "GET /p#x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /p<> HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /p HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET /p HTTP/1.1\r\n\r\n",
    ] {
        let answer = gateway.once(head).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head:?}: {answer}");
        assert!(answer.contains("content-type: application/problem+json\r\n"), "{head:?}: {answer}");
        assert!(answer.contains("\"type\":\"/-/problems/malformed-request\""), "{head:?}: {answer}");
        assert!(answer.ends_with('}'), "one answer: {answer}");
    }
    assert_eq!(provider.seen().len(), 0);
}

#[tokio::test]
async fn a_refused_request_waits_for_the_answers_before_it() {
    let (provider, gateway) = before_ok().await;
    let good = "GET /p/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let bad = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = gateway.once(format!("{good}{good}{bad}{good}")).await;
    let statuses: Vec<_> = answer.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
    assert_eq!(provider.seen().len(), 2);
}

#[tokio::test]
async fn large_heads_pass_and_larger_ones_get_431() {
    // FB-177
    let (provider, gateway) = before_ok().await;
    for (bytes, status) in [(3_500, "200"), (16_000, "200"), (70_000, "431")] {
        let cookie = "c".repeat(bytes);
        let answer = gateway
            .once(format!("GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n"))
            .await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {answer}");
    }
    assert_eq!(provider.seen().len(), 2);
}

#[tokio::test]
async fn places_that_are_none_have_clear_answers() {
    let (provider, gateway) = before_ok().await;
    for (request, status, word) in [
        ("GET /p/../x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400", "dot segments"),
        ("GET /p/..%2fx HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400", "dot segments"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400", "by name"),
        ("GET http://api.example/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n", "400", "base URL"),
        ("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\nConnection: close\r\n\r\n", "400", "base URL"),
        (
            "GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
            "501",
            "Upgrades",
        ),
    ] {
        let answer = gateway.once(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert!(answer.contains(word), "{request:?}: {answer}");
    }
    assert_eq!(provider.seen().len(), 0);
}

#[tokio::test]
async fn a_body_that_is_not_wanted_is_not_asked_for() {
    // FB-122
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), ServeOptions::default(), |p| {
        p.is_closed = true;
    })
    .await;
    let answer =
        gateway.once("POST /p/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1048576\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert_eq!(provider.connections(), 0);
}

#[tokio::test]
async fn a_body_that_is_wanted_is_asked_for_once() {
    // FB-123
    let provider = Provider::start(|mut raw, _, seen| async move {
        let head = raw.head().await;
        assert_eq!(raw.bytes(5).await, b"hello");
        seen.push(head);
        raw.write(OK).await;
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write("PUT /p/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(agent.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    agent.write("hello").await;
    assert!(agent.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(!provider.seen()[0].to_ascii_lowercase().contains("expect"));
}

#[tokio::test]
async fn bodies_above_the_bound_get_413() {
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), ServeOptions::default(), |p| {
        p.limits.replay_bytes_max = 1 << 20;
        p.limits.body_bytes_max = 200_000;
    })
    .await;
    // Declared: refused before a byte of it is asked for, and the answer survives what is sent all the same.
    let declared = "POST /p/x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 200001\r\n\r\n";
    assert!(gateway.once(declared).await.starts_with("HTTP/1.1 413 "));
    let declared = format!("POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 200001\r\n\r\n{}", "x".repeat(200_001));
    assert!(gateway.once(declared).await.starts_with("HTTP/1.1 413 "));
    let chunk = format!("{:x}\r\n{}\r\n", 50_000, "x".repeat(50_000)).repeat(5);
    let chunked = format!(
        "POST /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"
    );
    assert!(gateway.once(chunked).await.starts_with("HTTP/1.1 413 "));
    assert_eq!(provider.connections(), 0);
}

#[tokio::test]
async fn an_agent_may_end_what_it_began_sending_after_its_answer() {
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), ServeOptions::default(), |p| {
        p.limits.body_bytes_max = 1;
    })
    .await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write("POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n").await;
    let piece = vec![b'x'; 10_000];
    agent.write(&piece).await;
    assert!(agent.rest().await.starts_with(b"HTTP/1.1 413 "));
    // A reset connection would take one of these and fail the next; some clients lose the answer by it.
    for _ in 0..19 {
        agent.write(&piece).await;
    }
}

#[tokio::test]
async fn a_body_that_is_none_gets_400() {
    let (provider, gateway) = before_ok().await;
    let answer =
        gateway.once("POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(provider.connections(), 0);
}

#[tokio::test]
async fn a_head_that_does_not_end_is_given_up() {
    let options = ServeOptions { head_timeout: Duration::from_millis(50), ..ServeOptions::default() };
    let gateway = Gateway::with("http://127.0.0.1:9", rustls::RootCertStore::empty(), options, |_| {}).await;
    assert_eq!(gateway.once("GET /p/x HTTP/1.1\r\nHost:").await, "");
}

#[tokio::test]
async fn at_the_bound_of_connections_the_next_one_waits() {
    let provider = Provider::answering(OK).await;
    let options = ServeOptions { connections_max: 1, ..ServeOptions::default() };
    let gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), options, |_| {}).await;
    let request = "GET /p/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = Raw::connect(gateway.address).await;
    first.write(request).await;
    first.until("ok").await;
    let mut second = Raw::connect(gateway.address).await;
    second.write(request).await;
    first.write(request).await;
    first.until("ok").await;
    assert_eq!(provider.seen().len(), 2);
    drop(first);
    second.until("ok").await;
    eventually("the third request", || provider.seen().len() == 3).await;
}
