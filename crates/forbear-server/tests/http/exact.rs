//! What goes in comes out, over HTTP/1.1 on both sides.

use super::rig::{Gateway, Provider, Raw};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// The head that the provider saw, without its Host line.
async fn sent(request: &str) -> String {
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::before(&provider.url()).await;
    let answer = gateway.once(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let host = format!("Host: {}\r\n", provider.address);
    let seen = provider.seen().remove(0);
    assert!(seen.contains(&host), "{seen}");
    seen.replace(&host, "")
}

#[tokio::test]
async fn path_and_query_are_kept_byte_for_byte() {
    for target in
        ["/", "/a//b/./c|d/{e}/%2F/%zz/\"", "/q?a=2&a=1&b&c=&=x", "/q?l=C%2B%2B&s=a+b&t=a%20b&", "/%252e%252e/x"]
    {
        let head = sent(&format!("GET /p{target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(head, format!("GET {target} HTTP/1.1\r\n\r\n"));
    }
}

#[tokio::test]
async fn field_order_case_and_repetition_are_kept() {
    let fields = "X-Zeta: 1\r\nauthorization: Bearer x\r\nX-REPEAT: a\r\nx-repeat: b\r\nAccept-encoding: gzip, br\r\n\
                  x-empty:\r\nCookie: a=1; b=\"2\"\r\nX-Latin: caf\u{e9}\r\n";
    let head = sent(&format!(
        "GET /p/x HTTP/1.1\r\nhost: x\r\n{fields}Forbear-Task: t\r\nKeep-Alive: 5\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\r\n"
    ).replace("host: x", "Host: x")).await;
    assert_eq!(head, format!("GET /x HTTP/1.1\r\n{fields}\r\n"));
}

#[tokio::test]
async fn an_offer_of_cleartext_http2_is_passed_over() {
    let offer = "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    assert_eq!(sent(&format!("GET /p/x HTTP/1.1\r\nHost: x\r\n{offer}\r\n")).await, "GET /x HTTP/1.1\r\n\r\n");
}

#[tokio::test]
async fn te_goes_on_when_connection_names_it() {
    let head = sent("GET /p/x HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n").await;
    assert_eq!(head, "GET /x HTTP/1.1\r\nTE: trailers\r\nConnection: te\r\n\r\n");
}

#[tokio::test]
async fn an_answer_keeps_reason_fields_and_compressed_bytes() {
    let provider = Provider::answering(
        "HTTP/1.1 418 I Am Short\r\nX-B: 1\r\nset-Cookie: a\r\nSet-Cookie: b\r\nDATE: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Encoding: gzip\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\nContent-Length: 4\r\n\r\n\x1f\x08\0\x01",
    )
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let answer = gateway.once("GET /p/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!(
        answer,
        "HTTP/1.1 418 I Am Short\r\nX-B: 1\r\nset-Cookie: a\r\nSet-Cookie: b\r\nDATE: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Encoding: gzip\r\nContent-Length: 4\r\nConnection: close\r\n\r\n\x1f\x08\0\x01"
    );
}

/// Sends a request with this body part and gives the provider's view: head and raw body, up to `end`.
async fn sent_body(fields_and_body: &str, end: &'static str) -> String {
    let provider = Provider::start(move |mut raw, _, seen| async move {
        let mut all = raw.head().await;
        if !end.is_empty() {
            all.push_str(&raw.until(end).await);
        }
        seen.push(all);
        raw.write(OK).await;
        // Nothing may follow.
        seen.push(String::from_utf8(raw.rest().await).unwrap());
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let answer = gateway.once(format!("POST /p/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields_and_body}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    provider.seen()[0].replace(&format!("Host: {}\r\n", provider.address), "")
}

#[tokio::test]
async fn framing_is_kept() {
    for (given, end, seen) in [
        ("Content-Length: 5\r\n\r\nhello", "hello", "Content-Length: 5\r\n\r\nhello"),
        ("Content-Length: 0\r\n\r\n", "", "Content-Length: 0\r\n\r\n"),
        ("\r\n", "", "\r\n"),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (
            "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\nX-Undeclared: 1\r\n\r\n",
            "7\r\n\r\n",
            "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 7\r\n\r\n",
        ),
    ] {
        assert_eq!(sent_body(given, end).await, format!("POST /x HTTP/1.1\r\n{seen}"), "{given:?}");
    }
}

#[tokio::test]
async fn a_chunked_get_is_still_chunked() {
    let provider = Provider::start(|mut raw, _, seen| async move {
        let head = raw.head().await;
        seen.push(head + &raw.until("0\r\n\r\n").await);
        raw.write(OK).await;
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let request =
        "GET /p/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    assert!(gateway.once(request).await.ends_with("ok"));
    assert!(
        provider.seen()[0].ends_with("Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        "{:?}",
        provider.seen()
    );
}

#[tokio::test]
async fn answers_without_a_body_keep_their_fields() {
    for (method, given, seen) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\nETag: x\r\n\r\n", "content-length: 500\r\netag: x\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nETag: x\r\n\r\n", "etag: x\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n", "etag: x\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "etag: x\r\n"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "content-length: 0\r\n"),
    ] {
        let provider = Provider::answering(given).await;
        let gateway = Gateway::before(&provider.url()).await;
        let mut agent = Raw::connect(gateway.address).await;
        for _ in 0..2 {
            agent.write(format!("{method} /p/x HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            let answer = agent.head().await.to_ascii_lowercase();
            let fields: String = answer.split_inclusive("\r\n").skip(1).filter(|l| !l.starts_with("date:")).collect();
            assert_eq!(fields, format!("{seen}\r\n"), "{method} {given:?}");
        }
        assert_eq!((provider.seen().len(), provider.connections()), (2, 1), "{method} {given:?}");
    }
}

#[tokio::test]
async fn chunks_and_declared_trailers_of_an_answer_are_passed_on() {
    let provider = Provider::answering(
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n",
    )
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let answer = gateway.once("GET /p/x HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
    assert!(answer.contains("\r\nTrailer: X-Sum\r\n"), "{answer}");
}

#[tokio::test]
async fn every_piece_of_a_stream_is_passed_on_as_it_comes() {
    // FB-106, FB-108: each byte waits for the agent to have seen the one before.
    let text = "data: \u{4f60}\u{1f30d}\n\n".as_bytes();
    let step = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
    let steps = std::sync::Arc::clone(&step);
    let provider = Provider::start(move |mut raw, _, _| {
        let steps = std::sync::Arc::clone(&steps);
        async move {
            raw.head().await;
            raw.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for byte in text {
                steps.acquire().await.unwrap().forget();
                raw.write([b"1\r\n".as_slice(), &[*byte], b"\r\n"].concat()).await;
            }
            raw.write("0\r\n\r\n").await;
        }
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write("GET /p/x HTTP/1.1\r\nHost: x\r\n\r\n").await;
    agent.head().await;
    for byte in text {
        assert_eq!(agent.bytes(6).await, [b"1\r\n".as_slice(), &[*byte], b"\r\n"].concat());
        step.add_permits(1);
    }
    assert_eq!(agent.bytes(5).await, b"0\r\n\r\n");
}
