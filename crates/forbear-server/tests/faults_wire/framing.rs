//! What a provider says of its answer's length, and what an agent is told of it.

use forbear_lab::provider::Scenario;
use http_body_util::BodyExt;
use tokio::net::TcpListener;

use crate::agent::{Agent, PATIENCE, field, idle, no_body, once, policy, read, story};
use crate::rig::{Rig, serve};

/// A provider whose answer is these bytes, before it closes.
fn raw(head: &str, body: &str) -> String {
    let bytes = serde_json::to_string(&format!("{head}\r\n\r\n{body}")).unwrap();
    let scenario = format!(
        "routes:\n  - match: '* /{{rest...}}'\n    respond: {{raw: {bytes}, connection: close_silently, effect: {{name: made}}}}\n"
    );
    Scenario::from_yaml(&scenario).unwrap();
    scenario
}

#[tokio::test]
async fn an_equal_length_is_said_once_and_none_where_it_is_not_true() {
    for (head, body, method, length) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2", "ok", "GET", "2"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2", "ok", "GET", "2"),
        ("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\nContent-Length: 2", "ok", "GET", "2"),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5", "", "GET", ""),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nContent-Length: 6", "", "GET", ""),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nContent-Length: 5", "", "GET", "5"),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nContent-Length: 6", "", "GET", ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7", "", "HEAD", "7"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked", "", "HEAD", ""),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 2", "", "POST", ""),
    ] {
        let rig = Rig::new(&raw(head, body), &policy("", false, "")).await;
        for is_http2 in [false, true] {
            let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
            let request = agent.request(method, "/p/x").header("forbear-reference", is_http2.to_string());
            let response = agent.send(request.body(no_body()).unwrap()).await;
            let lengths: Vec<_> = response.headers().get_all("content-length").iter().cloned().collect();
            // Over HTTP/1 hyper says none in a 304, which is as true.
            let is_unsaid = length.is_empty() || !is_http2 && head.contains("304");
            let said = if is_unsaid { Vec::new() } else { vec![length] };
            assert_eq!(lengths, said, "{head:?} to {method}, HTTP/2: {is_http2}");
            let (bytes, end) = read(response).await;
            assert!(end.is_ok() && bytes == body.as_bytes(), "{head:?} to {method}, HTTP/2: {is_http2}: {end:?}");
        }
        idle(&rig, PATIENCE).await;
    }
}

#[tokio::test]
async fn an_answer_whose_end_has_two_readings_is_not_relayed() {
    for (head, body) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2", "2\r\nok\r\n0\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: identity", "2\r\nok\r\n0\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", "2\r\nok\r\n0\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3", "oko"),
        ("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n"),
    ] {
        for is_http2 in [false, true] {
            let rig = Rig::new(&raw(head, body), &policy("", false, "")).await;
            let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
            let response = agent.call("POST", "/p/x", "a=1").await;
            let action = field(&response, "forbear-action").to_owned();
            // What was done is not known: the one effect stands, and nothing is sent again.
            assert_eq!((response.status().as_u16(), field(&response, "forbear-outcome")), (422, "outcome_unknown"));
            let (bytes, end) = read(response).await;
            assert!(end.is_ok(), "{head:?}, HTTP/2: {is_http2}: {end:?}");
            let problem: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!((&problem["answered"], &problem["effect"]), (&false.into(), &"unknown".into()), "{problem}");
            assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1), "{head:?}");
            story(&rig, &action).await;
            idle(&rig, PATIENCE).await;
        }
    }
}

#[tokio::test]
async fn a_head_gets_no_body_of_forbears_own_and_its_length() {
    let rig = Rig::new(&raw("HTTP/1.1 200 OK\r\nContent-Length: 0", ""), &policy("", false, "")).await;
    for path in ["/nope/x", "/-/problems/bad_target", "/-/nothing", "/p/%zz"] {
        let mut lengths = Vec::new();
        for is_http2 in [false, true] {
            let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
            let request = agent.request("HEAD", path).body(no_body()).unwrap();
            let response = agent.send(request).await;
            lengths.push(field(&response, "content-length").to_owned());
            assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty(), "{path}");
        }
        assert_eq!(lengths[0], lengths[1], "{path}");
    }
    let crowded = (0..120).map(|n| (format!("x-{n}"), "1"));
    let mut agent = Agent::connect(rig.running.addr(), true).await;
    let request = crowded.fold(agent.request("HEAD", "/p/x"), |r, (name, value)| r.header(name, value));
    let response = agent.send(request.body(no_body()).unwrap()).await;
    assert_eq!(response.status().as_u16(), 431);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn what_follows_an_answer_without_a_body_is_no_answer() {
    // The bytes behind a 204 are nobody's: its connection carries no other call.
    let scenario = "
routes:
  - match: '* /first'
    respond: {raw: \"HTTP/1.1 204 No Content\\r\\nContent-Length: 39\\r\\n\\r\\n\"}
  - match: '* /{rest...}'
    respond: {body: second}
";
    let rig = Rig::new(scenario, &policy("", false, "")).await;
    for path in ["/p/first", "/p/then"] {
        once(&rig, format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
    }
    let connections: std::collections::BTreeSet<_> = rig.provider.arrivals().iter().map(|a| a.connection).collect();
    assert_eq!(connections.len(), 2);
}

#[tokio::test]
async fn trailers_frame_nothing_and_speak_for_nobody() {
    let answer = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked";
    let body =
        "2\r\nok\r\n0\r\nX-Sum: 7\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\nForbear-Outcome: x\r\n\r\n";
    let rig = Rig::new(&raw(answer, body), &policy("", false, "")).await;
    let mut agent = Agent::connect(rig.running.addr(), true).await;
    let request = agent.request("GET", "/p/x").header("te", "trailers").body(no_body()).unwrap();
    let got = agent.send(request).await.into_body().collect().await.unwrap();
    let trailers: Vec<_> = got.trailers().unwrap().keys().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(trailers, ["x-sum"]);
    assert_eq!(got.to_bytes(), "ok");
}

#[tokio::test]
async fn data_behind_a_head_without_a_body_over_http2_is_no_content() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let head = http::Response::builder().status(204).body(()).unwrap();
                let mut stream = respond.send_response(head, false).unwrap();
                stream.send_data("stray".into(), true).unwrap();
            }
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let running = serve(&base_url, &policy("", true, ""), &dir).await;
    for is_http2 in [false, true] {
        let mut agent = Agent::connect(running.addr(), is_http2).await;
        let response = agent.call("GET", "/p/x", "").await;
        assert_eq!(response.status().as_u16(), 204);
        let (bytes, end) = read(response).await;
        assert!(end.is_ok() && bytes.is_empty(), "{bytes:?} {end:?}");
    }
}

#[tokio::test]
async fn a_malformed_chunk_is_called_that() {
    let rig = Rig::new("routes: []\n", &policy("", false, "")).await;
    let head = "POST /p/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = once(&rig, format!("{head}5\r\nhello\r\nzz\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("malformed: a chunk has no size"), "{answer}");
    assert!(!answer.contains("ended early"), "{answer}");
    assert_eq!(rig.provider.arrivals().len(), 0);
}
