//! Messages through the whole gateway: fields in their order and spelling, bodies that are none, trailers, framing.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::agent::{Agent, Raw, SIDES, field, once, policy, raw_field};
use crate::rig::Rig;

#[tokio::test]
async fn fields_keep_order_case_and_repetition_both_ways() {
    for status in [200, 404] {
        let scenario = format!(
            "routes:\n  - match: '* /x'\n    respond:\n      status: {status}\n      date: false\n      headers: [[zEBRA, '1'], [Set-Cookie, a=1], \
             [Set-Cookie, b=2], [x-Request-ID, r], [Alpha, ''], [X-Utf8, 'é']]\n      body: ok\n"
        );
        let rig = Rig::new(&scenario, "").await;
        for method in ["GET", "POST"] {
            let before = rig.provider.arrivals().len();
            let answer = once(
                &rig,
                format!(
                    "{method} /p/x HTTP/1.1\r\nHost: a\r\nzULU: 1\r\nX-Rep: a\r\nX-Rep: b\r\nuser-AGENT: t\r\nAlpha: \r\n\
                     Connection: close\r\nAccept: a, b\r\nContent-Length: 2\r\nLast: \"q\"\r\n\r\nhi"
                ),
            )
            .await;
            let arrival = &rig.provider.arrivals()[before];
            let names: Vec<_> = arrival.headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
            let host = format!("Host: {}", rig.provider.addr());
            let sent = [
                "zULU: 1",
                "X-Rep: a",
                "X-Rep: b",
                "user-AGENT: t",
                "Alpha: ",
                "Accept: a, b",
                "Content-Length: 2",
                "Last: \"q\"",
            ];
            assert_eq!(names[0].to_lowercase(), host.to_lowercase());
            // A provider over plain http also gets the mark by which a loop is seen, behind all else.
            let (mark, names) = names[1..].split_last().unwrap();
            assert!(mark.starts_with("cdn-loop: forbear-"), "{mark}");
            assert_eq!(names, sent, "{method}");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            let fields: Vec<_> = answer.split("\r\n\r\n").next().unwrap().split("\r\n").skip(1).collect();
            assert_eq!(
                fields[..6],
                ["zEBRA: 1", "Set-Cookie: a=1", "Set-Cookie: b=2", "x-Request-ID: r", "Alpha: ", "X-Utf8: é"],
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_stay_so() {
    let scenario = "
routes:
  - match: 'HEAD /big'
    respond: {body: 'ten bytes.'}
  - match: 'HEAD /missing'
    respond: {status: 404, body: 'ten bytes.'}
  - match: '* /none'
    respond: {status: 204}
  - match: 'GET /same'
    respond: {status: 304, headers: {ETag: '\"x\"'}}
  - match: 'GET /empty'
    respond: {body: ''}
";
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(scenario, &policy("", provider_http2, "")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        for (method, path, status, length) in [
            ("HEAD", "/p/big", 200, "10"),
            ("HEAD", "/p/missing", 404, "10"),
            ("GET", "/p/none", 204, ""),
            ("DELETE", "/p/none", 204, ""),
            ("GET", "/p/same", 304, ""),
            ("GET", "/p/empty", 200, "0"),
        ] {
            // All on one connection: a body where none belongs would spoil the next answer.
            let response = agent.call(method, path, "").await;
            let at = format!("{method} {path} {agent_http2} {provider_http2}: {response:?}");
            assert_eq!(response.status().as_u16(), status, "{at}");
            if !provider_http2 || !length.is_empty() {
                assert_eq!(field(&response, "content-length"), length, "{at}");
            }
            assert!(!response.headers().contains_key("transfer-encoding"), "{at}");
            assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty(), "{at}");
        }
        crate::agent::idle(&rig, crate::agent::PATIENCE).await;
    }
    // Our own words have none on HEAD either.
    let rig = Rig::new(scenario, "").await;
    let answer = once(&rig, "HEAD /nowhere/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let scenario = "
routes:
  - match: '* /fine'
    respond: {body: ok, framing: chunked, trailers: {X-Sum: '7'}}
  - match: '* /bad'
    respond: {status: 400, body: {error: x}, framing: chunked, trailers: {X-Sum: '7'}}
";
    for (agent_http2, provider_http2) in SIDES {
        let text = format!("body_replay_bytes_max: 4096\n{}", policy("", provider_http2, ""));
        let rig = Rig::new(scenario, &text).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        // Kept for a retry, and streamed once.
        for (path, length) in [("/p/fine", 5), ("/p/bad", 5), ("/p/fine", 9_000)] {
            let before = rig.provider.arrivals().len();
            let mut trailers = HeaderMap::new();
            trailers.insert("x-check", HeaderValue::from_static("9"));
            let frames = [Ok(Frame::data(Bytes::from(vec![b'x'; length]))), Ok(Frame::trailers(trailers))];
            let full = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let mut request = agent.request("POST", path).header("trailer", "x-check").header("te", "trailers");
            if !agent_http2 {
                request = request.header("connection", "te").header("transfer-encoding", "chunked");
            }
            let response = agent.send(request.body(full).unwrap()).await;
            let at = format!("{path} {agent_http2} {provider_http2}");
            let collected = response.into_body().collect().await.unwrap();
            let sum = collected.trailers().and_then(|t| t.get("x-sum")).cloned();
            assert_eq!(sum, Some(HeaderValue::from_static("7")), "{at}");
            let arrival = &rig.provider.arrivals()[before];
            assert_eq!((arrival.body_bytes, arrival.header("te")), (length as u64, Some("trailers")), "{at}");
            let check = arrival.trailers.iter().find(|(n, _)| n.eq_ignore_ascii_case("x-check"));
            assert_eq!(check.map(|(_, v)| v.as_str()), Some("9"), "{at}");
        }
    }
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    let rig = Rig::new("routes:\n  - match: '* /{rest...}'\n    respond: {body: ok}\n", "").await;
    let body = "Content-Length: 3\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for head in [
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{body}{chunked}\r\n0\r\n\r\n"),
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{chunked}{body}\r\n0\r\n\r\n"),
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{body}Content-Length: 4\r\n\r\nabcd"),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\nabcd".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nabc".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n".into(),
        "POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n".into(),
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{chunked}{chunked}\r\n0\r\n\r\n"),
        format!("POST /p/x HTTP/1.0\r\nHost: a\r\n{chunked}\r\n0\r\n\r\n"),
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{chunked}\r\n1;a=\n\r\nx\r\n0\r\n\r\n"),
        format!("POST /p/x HTTP/1.1\r\nHost: a\r\n{chunked}\r\n0x1\r\nx\r\n0\r\n\r\n"),
        "GET /p/x HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\nHost: a\r\nX: a\rY: b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\nHost: a b\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\r\n\r\n".into(),
        "GET /p/x#y HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /p/x y HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET  /p/x HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /p/x HTTP/1.1\nHost: a\n\n".into(),
    ] {
        let answer = once(&rig, &head).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
        assert!(raw_field(&answer, "content-type") == Some("application/problem+json"), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "one answer, then the end: {answer}");
    }
    assert_eq!(rig.provider.arrivals().len(), 0);
}

#[tokio::test]
async fn requests_of_one_connection_stay_apart() {
    let rig = Rig::new("routes:\n  - match: '* /{x}'\n    respond: {body: '{{path.x}}'}\n", "").await;
    let mut agent = Raw::connect(rig.running.addr()).await;
    let pipelined = "POST /p/one HTTP/1.1\r\nHost: a\r\nContent-Length: 31\r\n\r\nGET /p/evil HTTP/1.1\r\nHost: a\r\n\
                     GET /p/two HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    agent.write(pipelined).await;
    let answers = agent.rest().await;
    assert!(
        answers.contains("\r\n\r\none") && answers.contains("\r\n\r\ntwo") && !answers.contains("evil"),
        "{answers}"
    );
    assert_eq!(rig.provider.arrivals().len(), 2);
}
