//! HTTP/2 with an `h2` client: the same scripts, and the refusals and endings that only HTTP/2 has; TLS for both.

use std::sync::Arc;

use bytes::Bytes;
use forbear_lab::provider::{Fate, Http2, Options, Provider, Scenario};
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{WITHIN, provider};

type Sender = SendRequest<Bytes>;

async fn connect(lab: &Provider) -> Sender {
    let stream = TcpStream::connect(lab.addr()).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(lab: &Provider, method: &str, target: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("{}{target}", lab.base_url())).body(()).unwrap()
}

async fn send(
    sender: &mut Sender,
    request: Request<()>,
    body: &'static str,
) -> Result<Response<RecvStream>, h2::Error> {
    let mut ready = timeout(WITHIN, sender.clone().ready()).await.expect("not ready in time")?;
    let (answer, mut out) = ready.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        out.send_data(Bytes::from_static(body.as_bytes()), true)?;
    }
    timeout(WITHIN, answer).await.expect("no answer in time")
}

async fn body(mut recv: RecvStream) -> (Vec<u8>, Option<h2::Error>) {
    let mut bytes = Vec::new();
    while let Some(chunk) = timeout(WITHIN, recv.data()).await.expect("no data in time") {
        match chunk {
            Ok(chunk) => {
                let _ = recv.flow_control().release_capacity(chunk.len());
                bytes.extend_from_slice(&chunk);
            }
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

#[tokio::test]
async fn answers_contents_trailers_and_large_bodies() {
    let lab = provider(
        r#"
routes:
  - match: "POST /a"
    respond:
      status: 201
      headers: {X-Case: "{{header x-mine}}", Connection: close}
      body: {got: "{{body}}"}
      trailers: {x-sum: "9"}
  - {match: "GET /large", respond: {bytes: 1000000}}
  - {match: "GET /sse", respond: {events: [{data: a}, {data: b}], event_gap_ms: 5}}
"#,
    )
    .await;
    let mut sender = connect(&lab).await;
    let mut asked = request(&lab, "POST", "/a?b=2&a=%2F");
    asked.headers_mut().insert("x-mine", "echo".parse().unwrap());
    let answer = send(&mut sender, asked, "hello").await.unwrap();
    assert_eq!(answer.status(), 201);
    assert_eq!(answer.headers()["x-case"], "echo");
    assert!(!answer.headers().contains_key("connection"));
    let mut recv = answer.into_body();
    assert_eq!(recv.data().await.unwrap().unwrap(), r#"{"got":"hello"}"#);
    assert_eq!(recv.trailers().await.unwrap().unwrap()["x-sum"], "9");
    let large = send(&mut sender, request(&lab, "GET", "/large"), "").await.unwrap();
    assert_eq!(large.headers()["content-length"], "1000000");
    assert_eq!(body(large.into_body()).await.0.len(), 1_000_000);
    let events = send(&mut sender, request(&lab, "GET", "/sse"), "").await.unwrap();
    assert_eq!(body(events.into_body()).await.0, b"data: a\n\ndata: b\n\n");
    let arrivals = lab.arrivals();
    assert_eq!((arrivals[0].version, arrivals[0].target.as_str()), ("HTTP/2", "/a?b=2&a=%2F"));
    assert_eq!(arrivals.iter().map(|one| one.stream).collect::<Vec<_>>(), [Some(1), Some(3), Some(5)]);
    assert_eq!(arrivals[0].body.as_deref(), Some(&b"hello"[..]));
    assert!(arrivals.iter().all(|one| one.connection == 1 && one.at_ns > 0));
}

#[tokio::test]
async fn streams_are_reset_with_the_code_that_is_scripted() {
    let lab = provider(
        r#"
routes:
  - {match: "POST /refused", respond: {effect: {}, fault: {at: after_head, end: {reset_stream: REFUSED_STREAM}}}}
  - {match: "POST /cancel", respond: {effect: {}, fault: {at: after_commit, end: {reset_stream: CANCEL}}}}
  - {match: "POST /calm", respond: {fault: {at: after_body, end: {reset_stream: ENHANCE_YOUR_CALM}}}}
  - {match: "POST /number", respond: {fault: {at: after_body, end: {reset_stream: 2}}}}
  - {match: "POST /mid", respond: {body: hello, fault: {at: mid_body, after_bytes: 3, end: {reset_stream: INTERNAL_ERROR}}}}
  - {match: "GET /ok", respond: {}}
"#,
    )
    .await;
    let mut sender = connect(&lab).await;
    for (target, reason) in [
        ("/refused", Reason::REFUSED_STREAM),
        ("/cancel", Reason::CANCEL),
        ("/calm", Reason::ENHANCE_YOUR_CALM),
        ("/number", Reason::INTERNAL_ERROR),
    ] {
        let error = send(&mut sender, request(&lab, "POST", target), "x").await.unwrap_err();
        assert_eq!((error.reason(), error.is_remote(), error.is_reset()), (Some(reason), true, true), "{target}");
    }
    let answer = send(&mut sender, request(&lab, "POST", "/mid"), "x").await.unwrap();
    let (bytes, error) = body(answer.into_body()).await;
    assert_eq!((&bytes[..], error.unwrap().reason()), (&b"hel"[..], Some(Reason::INTERNAL_ERROR)));
    assert_eq!(send(&mut sender, request(&lab, "GET", "/ok"), "").await.unwrap().status(), 200);
    assert_eq!(lab.effects().count, 1, "only what was cut after its commit");
    let fates: Vec<_> = lab.arrivals().iter().map(|one| one.fate).collect();
    assert_eq!(
        fates[..5],
        [Fate::StreamReset, Fate::StreamReset, Fate::StreamReset, Fate::StreamReset, Fate::DroppedMidBody]
    );
    assert!(lab.arrivals().iter().all(|one| one.connection == 1));
}

#[tokio::test]
async fn a_goaway_below_a_stream_proves_that_it_was_not_processed() {
    let lab = provider(
        r#"
routes:
  - {match: "GET /slow", respond: {delay_ms: 100, body: done}}
  - {match: "POST /below", respond: {fault: {at: after_body, end: {goaway: {last_stream: below, then: keep}}}}}
"#,
    )
    .await;
    let mut sender = connect(&lab).await;
    let mut other = sender.clone();
    let slow = send(&mut other, request(&lab, "GET", "/slow"), "");
    let below = async {
        lab.wait_for_arrivals(1, WITHIN).await.unwrap();
        send(&mut sender, request(&lab, "POST", "/below"), "x").await
    };
    let (slow, below) = tokio::join!(slow, below);
    let error = below.unwrap_err();
    assert!(error.is_go_away() && error.is_remote(), "{error:?}");
    assert_eq!(error.reason(), Some(Reason::NO_ERROR));
    assert_eq!(body(slow.unwrap().into_body()).await.0, b"done", "the one below the last stream is answered");
    assert_eq!(lab.arrivals()[1].fate, Fate::Goaway);
}

#[tokio::test]
async fn a_goaway_at_a_stream_and_the_end_prove_nothing() {
    let lab = provider(
        r#"
routes:
  - match: "PUT /at"
    respond: {effect: {}, fault: {at: after_commit, end: {goaway: {last_stream: {number: 511}, then: close}}}}
  - match: "PUT /answered"
    respond: {fault: {at: after_body, end: {goaway: {last_stream: this, then: answer}}}, body: still}
  - match: "PUT /calm"
    respond: {fault: {at: after_body, end: {goaway: {code: ENHANCE_YOUR_CALM}}}}
"#,
    )
    .await;
    let mut sender = connect(&lab).await;
    let error = send(&mut sender, request(&lab, "PUT", "/at"), "x").await.unwrap_err();
    assert!(!(error.is_go_away() && error.is_remote()) || error.is_io(), "{error:?}");
    assert_eq!(lab.effects().count, 1);
    let mut sender = connect(&lab).await;
    let answer = send(&mut sender, request(&lab, "PUT", "/answered"), "x").await.unwrap();
    assert_eq!(body(answer.into_body()).await.0, b"still");
    assert!(send(&mut sender, request(&lab, "PUT", "/answered"), "x").await.is_err(), "nothing new after it");
    let mut sender = connect(&lab).await;
    let error = send(&mut sender, request(&lab, "PUT", "/calm"), "x").await.unwrap_err();
    assert_eq!((error.reason(), error.is_go_away()), (Some(Reason::ENHANCE_YOUR_CALM), true));
}

#[tokio::test]
async fn connections_end_under_their_streams() {
    let lab = provider(
        r#"
routes:
  - {match: "GET /fin", respond: {fault: {at: after_body, end: fin}}}
  - {match: "GET /rst", respond: {fault: {at: after_body, end: rst}}}
  - {match: "GET /mid", respond: {events: [{data: a}, {data: b}], fault: {at: mid_stream, after_events: 1, end: rst}}}
  - {match: "GET /mid-fin", respond: {events: [{data: a}, {data: b}], fault: {at: mid_stream, after_events: 1}}}
"#,
    )
    .await;
    for target in ["/fin", "/rst"] {
        let mut sender = connect(&lab).await;
        let error = send(&mut sender, request(&lab, "GET", target), "").await.unwrap_err();
        assert!(!error.is_go_away(), "{target}: {error:?}");
    }
    let mut sender = connect(&lab).await;
    let answer = send(&mut sender, request(&lab, "GET", "/mid-fin"), "").await.unwrap();
    let (bytes, error) = body(answer.into_body()).await;
    assert_eq!(bytes, b"data: a\n\n");
    assert!(error.is_some());
    let mut sender = connect(&lab).await;
    if let Ok(answer) = send(&mut sender, request(&lab, "GET", "/mid"), "").await {
        assert!(body(answer.into_body()).await.1.is_some());
    }
    let fates: Vec<_> = lab.arrivals().iter().map(|one| one.fate).collect();
    assert_eq!(fates, [Fate::DroppedAfterBody, Fate::DroppedAfterBody, Fate::DroppedMidStream, Fate::DroppedMidStream]);
}

#[tokio::test]
async fn the_stream_limit_is_announced_and_cancels_are_seen() {
    let lab = provider(
        r#"
http2: {max_concurrent_streams: 2}
routes:
  - {match: "GET /stall", respond: {fault: {at: after_body, end: stall}}}
  - {match: "GET /stream", respond: {events: [{data: x, repeat: 200}], event_gap_ms: 20}}
"#,
    )
    .await;
    let mut sender = connect(&lab).await;
    let (stalled, _) = sender.send_request(request(&lab, "GET", "/stall"), true).unwrap();
    lab.wait_for_arrivals(1, WITHIN).await.unwrap();
    assert_eq!(sender.current_max_send_streams(), 2);
    drop(stalled);
    let arrivals = lab.wait_until(WITHIN, |all| all[0].fate == Fate::Stalled).await.unwrap();
    assert!(arrivals[0].peer_closed_at_ns.is_some());
    let mut recv = send(&mut sender, request(&lab, "GET", "/stream"), "").await.unwrap().into_body();
    recv.data().await.unwrap().unwrap();
    drop(recv);
    let arrivals = lab.wait_until(WITHIN, |all| all[1].fate == Fate::PeerClosed).await.unwrap();
    assert!(arrivals[1].peer_closed_at_ns.is_some());
}

#[tokio::test]
async fn a_connection_that_goes_leaves_its_work_going() {
    let lab = provider(r#"{routes: [{match: "POST /on", respond: {process_ms: 80, effect: {name: e}}}]}"#).await;
    let stream = TcpStream::connect(lab.addr()).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let _ = sender.send_request(request(&lab, "POST", "/on"), true).unwrap();
    lab.wait_for_arrivals(1, WITHIN).await.unwrap();
    driver.abort();
    let arrivals = lab.wait_until(WITHIN, |all| all[0].finished_at_ns.is_some()).await.unwrap();
    assert!(arrivals[0].peer_closed_at_ns.is_some());
    assert_eq!(lab.effects().count, 1);
}

#[tokio::test]
async fn the_control_endpoint_speaks_http2_as_well() {
    let lab = provider("{}").await;
    let mut sender = connect(&lab).await;
    send(&mut sender, request(&lab, "GET", "/x"), "").await.unwrap();
    let answer = send(&mut sender, request(&lab, "GET", "/__lab/arrivals"), "").await.unwrap();
    let (bytes, _) = body(answer.into_body()).await;
    let arrival: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&arrival["fate"], &arrival["version"]), (&"no_route".into(), &"HTTP/2".into()));
    assert_eq!(lab.arrivals().len(), 1);
}

async fn tls(lab: &Provider, protocols: &[&[u8]]) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(lab.ca_pem().unwrap().as_bytes()).unwrap()).unwrap();
    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(lab.addr()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test]
async fn tls_is_trusted_by_its_authority_and_chooses_by_alpn() {
    let scenario = || Scenario::from_yaml("{unmatched: {body: hi, connection: close}}").unwrap();
    let lab = Provider::start(scenario(), Options { tls: true, ..Options::default() }).await.unwrap();
    assert!(lab.base_url().starts_with("https://127.0.0.1:"));
    let stream = tls(&lab, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let answer = send(&mut sender, request(&lab, "GET", "/"), "").await.unwrap();
    assert_eq!(body(answer.into_body()).await.0, b"hi");
    let mut stream = tls(&lab, &[]).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("\r\n\r\nhi"), "{text}");
    let versions: Vec<_> = lab.arrivals().iter().map(|one| one.version).collect();
    assert_eq!(versions, ["HTTP/2", "HTTP/1.1"]);

    let only =
        Provider::start(scenario(), Options { tls: true, http2: Http2::Off, ..Options::default() }).await.unwrap();
    let stream = tls(&only, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(tls(&only, &[b"h2"]).await.is_err());
}
