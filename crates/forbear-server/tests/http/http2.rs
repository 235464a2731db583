//! HTTP/2 on either side, TLS, and the proofs that only HTTP/2 gives.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use forbear_core::effect::Evidence;
use forbear_server::http::body::{BodyError, BodyLimits, Framing, Replay};
use forbear_server::http::origin::Origin;
use forbear_server::http::serve::ServeOptions;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Gateway, Provider};

const OK: &str = "HTTP/1.1 200 OK\r\nX-A: 1\r\nConnection: Upgrade\r\nUpgrade: h2,h2c\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok";

type AgentBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

async fn agent(address: SocketAddr) -> SendRequest<AgentBody> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: &str, path: &str, body: AgentBody) -> Request<AgentBody> {
    let uri = format!("http://gateway.test{path}");
    Request::builder()
        .method(method)
        .uri(uri)
        .header("x-b", "1")
        .header("x-a", "2")
        .header("x-b", "3")
        .body(body)
        .unwrap()
}

fn no_body() -> AgentBody {
    Full::new(Bytes::new()).boxed_unsync()
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn an_http2_agent_reaches_an_http1_provider() {
    // FB-166
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = agent(gateway.address).await;
    let response = agent.send_request(request("GET", "/p/a%2Fb//?x=1&x=&", no_body())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let names: Vec<_> = response.headers().keys().map(|n| n.as_str().to_owned()).collect();
    assert_eq!(names, ["x-a", "content-length", "date"]);
    assert_eq!(text(response).await, "ok");
    let host = provider.address;
    assert_eq!(
        provider.seen(),
        [format!("GET /a%2Fb//?x=1&x=& HTTP/1.1\r\nhost: {host}\r\nx-b: 1\r\nx-b: 3\r\nx-a: 2\r\n\r\n")]
    );
}

#[tokio::test]
async fn a_body_of_an_http2_agent_gets_a_length_and_one_with_trailers_chunks() {
    let provider = Provider::start(|mut raw, n, seen| async move {
        let head = raw.head().await;
        seen.push(head + &raw.until(if n == 0 { "hello" } else { "1\r\n\r\n" }).await);
        raw.write(OK).await;
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = agent(gateway.address).await;
    let frames = |trailers: Option<HeaderMap>| {
        let data = Some(Ok(Frame::data(Bytes::from("hello"))));
        let frames = data.into_iter().chain(trailers.map(|t| Ok(Frame::trailers(t))));
        StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
    };
    agent.send_request(request("POST", "/p/x", frames(None))).await.unwrap();
    assert!(provider.seen()[0].ends_with("\r\ncontent-length: 5\r\n\r\nhello"), "{:?}", provider.seen());
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let mut with_trailers = request("POST", "/p/x", frames(Some(trailers)));
    with_trailers.headers_mut().insert("trailer", "x-sum".parse().unwrap());
    agent.send_request(with_trailers).await.unwrap();
    let seen = provider.seen().remove(1);
    assert!(seen.ends_with("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n"), "{seen:?}");
}

#[tokio::test]
async fn a_cut_answer_is_a_reset_stream_for_an_http2_agent() {
    // FB-105
    let provider = Provider::start(|mut raw, _, _| async move {
        raw.head().await;
        raw.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\n").await;
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let response = agent(gateway.address).await.send_request(request("GET", "/p/x", no_body())).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "trun");
    let error = body.frame().await.unwrap().unwrap_err();
    let h2 = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<h2::Error>()).unwrap();
    assert!(h2.is_reset() && h2.is_remote(), "{h2:?}");
}

/// A provider that speaks HTTP/2 without TLS, driven by hand.
async fn http2_provider<F>(
    serve: impl Fn(h2::server::Connection<TcpStream, Bytes>, usize) -> F + Send + 'static,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut n = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let connection = h2::server::Builder::new().max_concurrent_streams(2).handshake(stream).await.unwrap();
            tokio::spawn(serve(connection, n));
            n += 1;
        }
    });
    url
}

async fn before_http2(url: &str) -> Gateway {
    Gateway::with(url, rustls::RootCertStore::empty(), ServeOptions::default(), |p| {
        p.origin = p.origin.clone().with_http2_prior_knowledge();
    })
    .await
}

#[tokio::test]
async fn http2_on_both_sides_carries_target_fields_bodies_and_trailers() {
    let url = http2_provider(|mut connection, _| async move {
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                assert_eq!(request.uri().path_and_query().unwrap(), "/a%2Fb?x=1&x=");
                assert_eq!(request.uri().scheme_str(), Some("http"));
                assert!(!request.headers().contains_key("host"));
                assert_eq!(request.headers()["te"], "trailers");
                let echo: Vec<_> = request.headers().get_all("x-b").iter().cloned().collect();
                let mut body = request.into_body();
                let mut bytes = Vec::new();
                while let Some(data) = body.data().await {
                    let data = data.unwrap();
                    body.flow_control().release_capacity(data.len()).unwrap();
                    bytes.extend_from_slice(&data);
                }
                let trailers = body.trailers().await.unwrap().unwrap();
                let mut response = Response::new(());
                for value in echo {
                    response.headers_mut().append("x-b", value);
                }
                let mut stream = respond.send_response(response, false).unwrap();
                stream.send_data(bytes.into(), false).unwrap();
                stream.send_trailers(trailers).unwrap();
            });
        }
    })
    .await;
    let gateway = before_http2(&url).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let payload = Bytes::from(vec![7; 300_000]);
    let frames = [Ok(Frame::data(payload.clone())), Ok(Frame::trailers(trailers.clone()))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let mut request = request("POST", "/p/a%2Fb?x=1&x=", body);
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let response = agent(gateway.address).await.send_request(request).await.unwrap();
    let repeated: Vec<_> = response.headers().get_all("x-b").iter().map(|v| v.to_str().unwrap().to_owned()).collect();
    assert_eq!(repeated, ["1", "3"]);
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers));
    assert_eq!(collected.to_bytes(), payload);
    assert_eq!(gateway.proxy.sends.lock().unwrap()[0].as_ref().unwrap(), &(false, Version::HTTP_2));
}

#[tokio::test]
async fn a_body_above_the_replay_cap_is_streamed_with_its_digest_and_stopped_at_its_bound() {
    let http1 = Provider::start(|mut raw, _, _| async move {
        raw.until("\r\n0\r\n\r\n").await;
        raw.write(OK).await;
    })
    .await;
    let http2 = http2_provider(|mut connection, _| async move {
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let mut body = request.into_body();
                while let Some(Ok(data)) = body.data().await {
                    let _ = body.flow_control().release_capacity(data.len());
                }
                let _ = respond.send_response(Response::new(()), true);
            });
        }
    })
    .await;
    let chunk = vec![b'x'; 50_000];
    let whole = Replay::new(vec![Bytes::from(chunk.clone()); 8], None, Framing::Chunked);
    for (url, is_http2) in [(http1.url(), false), (http2, true)] {
        for (body_bytes_max, status) in [(400_000, StatusCode::OK), (399_999, StatusCode::PAYLOAD_TOO_LARGE)] {
            let gateway = Gateway::with(&url, rustls::RootCertStore::empty(), ServeOptions::default(), |p| {
                p.limits = BodyLimits { replay_bytes_max: 100_000, body_bytes_max, ..p.limits };
                if is_http2 {
                    p.origin = p.origin.clone().with_http2_prior_knowledge();
                }
            })
            .await;
            let frames = (0..8).map(|_| Ok(Frame::data(Bytes::from(chunk.clone()))));
            let body = StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>())).boxed_unsync();
            let response = agent(gateway.address).await.send_request(request("POST", "/p/x", body)).await.unwrap();
            assert_eq!(response.status(), status, "{url}");
            let progress = gateway.proxy.once.lock().unwrap().clone().unwrap();
            let is_ok = status == StatusCode::OK;
            assert_eq!(progress.sha256(), is_ok.then(|| whole.sha256()), "{url}");
            assert_eq!(
                progress.fault(),
                (!is_ok).then_some(&BodyError::TooLarge { bytes_max: body_bytes_max }),
                "{url}"
            );
        }
    }
}

#[tokio::test]
async fn streams_are_handed_out_only_under_the_peers_limit_and_connections_shared() {
    let gates = Arc::new(tokio::sync::Semaphore::new(0));
    let arrived = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (gate, arrivals) = (Arc::clone(&gates), Arc::clone(&arrived));
    let url = http2_provider(move |mut connection, n| {
        let (gate, arrivals) = (Arc::clone(&gate), Arc::clone(&arrivals));
        async move {
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                arrivals.lock().unwrap().push(n);
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    gate.acquire().await.unwrap().forget();
                    respond.send_response(Response::new(()), true).unwrap();
                });
            }
        }
    })
    .await;
    let gateway = before_http2(&url).await;
    let mut calls = Vec::new();
    // One call first, so that the peer's limit is known when the others come.
    for wait_for in [1, 5] {
        for _ in calls.len()..wait_for {
            let mut agent = agent(gateway.address).await;
            calls.push(tokio::spawn(
                async move { agent.send_request(request("GET", "/p/x", no_body())).await.unwrap() },
            ));
        }
        let arrived = Arc::clone(&arrived);
        super::rig::eventually("the calls", move || arrived.lock().unwrap().len() == wait_for).await;
    }
    let mut connections = arrived.lock().unwrap().clone();
    connections.sort_unstable();
    assert_eq!(connections, [0, 0, 1, 1, 2]);
    gates.add_permits(5);
    for call in calls {
        assert_eq!(call.await.unwrap().status(), StatusCode::OK);
    }
}

/// What the gateway makes of a provider that ends the second request on a connection by `end`.
async fn evidence_of<F>(
    end: impl Fn(h2::server::Connection<TcpStream, Bytes>, h2::server::SendResponse<Bytes>) -> F
    + Clone
    + Send
    + Sync
    + 'static,
) -> Evidence
where
    F: Future<Output = ()> + Send + 'static,
{
    let url = http2_provider(move |mut connection, _| {
        let end = end.clone();
        async move {
            let (_, respond) = connection.accept().await.unwrap().unwrap();
            end(connection, respond).await;
        }
    })
    .await;
    let gateway = before_http2(&url).await;
    let response = agent(gateway.address).await.send_request(request("POST", "/p/x", no_body())).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    let sends = gateway.proxy.sends.lock().unwrap();
    sends[0].as_ref().unwrap_err().evidence
}

#[tokio::test]
async fn only_a_remote_refusal_proves_that_nothing_was_done() {
    let reset = |reason| {
        evidence_of(move |mut connection, mut respond| async move {
            respond.send_reset(reason);
            while connection.accept().await.is_some() {}
        })
    };
    assert_eq!(reset(h2::Reason::REFUSED_STREAM).await, Evidence::Refused);
    for reason in
        [h2::Reason::CANCEL, h2::Reason::INTERNAL_ERROR, h2::Reason::PROTOCOL_ERROR, h2::Reason::ENHANCE_YOUR_CALM]
    {
        assert_eq!(reset(reason).await, Evidence::Unknown, "{reason:?}");
    }
    // GOAWAY after this stream was taken in: it is not above the last stream.
    let abrupt = evidence_of(|mut connection, _respond| async move {
        connection.abrupt_shutdown(h2::Reason::INTERNAL_ERROR);
        while connection.accept().await.is_some() {}
    });
    assert_eq!(abrupt.await, Evidence::Unknown);
    // The connection is simply gone.
    assert_eq!(evidence_of(|connection, _| async move { drop(connection) }).await, Evidence::Unknown);
}

#[tokio::test]
async fn a_goaway_below_the_stream_proves_it_and_one_that_includes_it_does_not() {
    // By hand: SETTINGS, then GOAWAY with the last stream taken in.
    for (last_stream, proven) in [(0u8, Evidence::Refused), (1, Evidence::Unknown)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
                let mut read = Vec::new();
                // Preface and SETTINGS come first; a HEADERS frame (type 1 on stream 1) ends the wait.
                while !read.windows(6).any(|w| w[0] == 1 && w[2..] == [0, 0, 0, 1]) {
                    assert!(stream.read_buf(&mut read).await.unwrap() > 0);
                }
                stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_stream, 0, 0, 0, 0]).await.unwrap();
                stream.flush().await.unwrap();
                stream.shutdown().await.unwrap();
                let _ = stream.read_to_end(&mut read).await;
            }
        });
        let gateway = before_http2(&url).await;
        let response = agent(gateway.address).await.send_request(request("POST", "/p/x", no_body())).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        let sends = gateway.proxy.sends.lock().unwrap();
        assert_eq!(sends[0].as_ref().unwrap_err().evidence, proven, "last stream {last_stream}");
    }
}

#[tokio::test]
async fn a_connection_that_said_goaway_gets_no_more_calls() {
    // It lives on for the answer that is still coming, which is when it could be taken for a good one.
    let url = http2_provider(|mut connection, n| async move {
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        if n == 0 {
            connection.graceful_shutdown();
        }
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from("more"), false).unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_response(Response::builder().status(500).body(()).unwrap(), true).unwrap();
        }
        drop(body);
    })
    .await;
    let gateway = before_http2(&url).await;
    let mut agent = agent(gateway.address).await;
    let mut first = agent.send_request(request("GET", "/p/x", no_body())).await.unwrap();
    first.body_mut().frame().await.unwrap().unwrap();
    let second = agent.send_request(request("GET", "/p/x", no_body())).await.unwrap();
    assert_eq!(second.status(), StatusCode::OK);
    let reused: Vec<_> = gateway.proxy.sends.lock().unwrap().iter().map(|s| s.as_ref().unwrap().0).collect();
    assert_eq!(reused, [false, false]);
}

/// A TLS provider that answers over the protocols it offers. Gives its address, its root and what it was asked for by name.
async fn tls_provider(alpn: &[&[u8]]) -> (SocketAddr, rustls::RootCertStore, Arc<std::sync::Mutex<Vec<String>>>) {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(signed.cert.der().clone()).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let names = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, names) = (acceptor.clone(), Arc::clone(&names));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                names.lock().unwrap().push(stream.get_ref().1.server_name().unwrap_or("").to_owned());
                let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                    let words = format!("{:?} {}", request.version(), request.uri().path());
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(words))))
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, roots, asked)
}

#[tokio::test]
async fn tls_negotiates_its_protocol_and_names_the_host() {
    for (alpn, version) in
        [(&[b"h2".as_slice(), b"http/1.1"][..], "HTTP/2.0"), (&[b"http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
    {
        let (address, roots, asked) = tls_provider(alpn).await;
        let url = format!("https://localhost:{}/base", address.port());
        let gateway = Gateway::with(&url, roots, ServeOptions::default(), |_| {}).await;
        for _ in 0..2 {
            let answer = gateway.once("GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
            assert!(answer.ends_with(&format!("{version} /base/x")), "{answer}");
        }
        assert_eq!(*asked.lock().unwrap(), ["localhost"], "one connection, by name");
        let reused: Vec<_> = gateway.proxy.sends.lock().unwrap().iter().map(|s| s.as_ref().unwrap().0).collect();
        assert_eq!(reused, [false, true]);
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_ends_the_call_unsent() {
    let (address, _, _) = tls_provider(&[b"h2"]).await;
    let url = format!("https://localhost:{}", address.port());
    let gateway = Gateway::before(&url).await;
    let answer = gateway.once("GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let sends = gateway.proxy.sends.lock().unwrap();
    let error = sends[0].as_ref().unwrap_err();
    assert_eq!((error.evidence, error.stage), (Evidence::NotSent, forbear_server::http::upstream::Stage::Tls));
    assert!(Origin::parse(&url).is_ok());
}
