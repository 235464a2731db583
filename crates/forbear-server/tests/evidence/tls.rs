//! Faults around TLS: what fails in the handshake was not sent, whatever it looks like; what fails after it may have been.

use std::sync::Arc;

use rcgen::CertifiedKey;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::frames::{goaway, http2_answer, ok, reset, settings};
use crate::peer::{Conn, Ends, Peer, Play, Reads, Socket, http1_answer, play};
use crate::table::{CUT, DONE, REFUSED, Row, UNKNOWN, UNSENT, check, row};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Socket for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

fn certificate(name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> CertifiedKey<rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    change(&mut params);
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    CertifiedKey { cert, signing_key }
}

fn acceptor(certified: &CertifiedKey<rcgen::KeyPair>, alpn: &[&[u8]]) -> TlsAcceptor {
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

async fn over_tls(acceptor: &TlsAcceptor, conn: Conn) -> Option<Conn<TlsStream<TcpStream>>> {
    let Conn { io, n, counts, head_was_read, read } = conn;
    let io = acceptor.accept(io).await.ok()?;
    Some(Conn { io, n, counts, head_was_read, read })
}

/// HTTP/1.1 behind TLS.
fn http1(acceptor: &TlsAcceptor, reads: Reads, writes: &'static str, ends: Ends) -> Play {
    let acceptor = acceptor.clone();
    play(move |conn| {
        let acceptor = acceptor.clone();
        async move {
            if let Some(conn) = over_tls(&acceptor, conn).await {
                http1_answer(conn, reads, writes.as_bytes().into(), ends).await;
            }
        }
    })
}

/// HTTP/2 behind TLS.
fn http2(acceptor: &TlsAcceptor, answers: fn(u32) -> Vec<u8>, ends: Ends) -> Play {
    let acceptor = acceptor.clone();
    play(move |conn| {
        let acceptor = acceptor.clone();
        async move {
            if let Some(conn) = over_tls(&acceptor, conn).await {
                http2_answer(conn, &settings(&[]), Reads::Whole, &answers, ends).await;
            }
        }
    })
}

/// Writes these bytes where the handshake's answer belongs.
fn instead(writes: &'static [u8], ends: Ends) -> Play {
    play(move |mut conn| async move {
        let mut hello = [0; 4096];
        let _ = conn.io.read(&mut hello).await;
        let _ = conn.io.write_all(writes).await;
        // The hello was taken: what follows is the end that was meant.
        conn.end(Reads::Head, ends).await;
    })
}

/// The answer, and then the connection without the word that ends TLS.
fn truncated(acceptor: &TlsAcceptor, answer: &'static str) -> Play {
    let acceptor = acceptor.clone();
    play(move |conn| {
        let acceptor = acceptor.clone();
        async move {
            let Some(mut conn) = over_tls(&acceptor, conn).await else { return };
            let Some(head) = conn.head().await else { return };
            conn.body(&head).await;
            conn.io.write_all(answer.as_bytes()).await.unwrap();
            conn.io.flush().await.unwrap();
            let (mut tcp, _) = conn.io.into_inner();
            let _ = tcp.shutdown().await;
            let _ = tcp.read_to_end(&mut conn.read).await;
        }
    })
}

#[tokio::test]
async fn what_fails_in_the_handshake_was_not_sent() {
    let right = certificate("localhost", |_| {});
    let wrong_name = certificate("other.test", |_| {});
    let expired = certificate("localhost", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let unknown = certificate("localhost", |_| {});
    let accept = acceptor(&right, &[]);
    let refused =
        |name, certified| row(name, http1(&acceptor(certified, &[]), Reads::Whole, OK, Ends::Keep), UNSENT, (1, 0, 0));
    let broken = |name, writes: &'static [u8], ends| row(name, instead(writes, ends), UNSENT, (1, 0, 0));
    let answered =
        |name, reads, answer, ends, expects| row(name, http1(&accept, reads, answer, ends), expects, (1, 1, 1));
    let over_http2 =
        |name, answers, ends, expects| row(name, http2(&acceptor(&right, &[b"h2"]), answers, ends), expects, (1, 1, 1));
    let rows: Vec<Row> = vec![
        refused("a certificate for another name", &wrong_name),
        refused("a certificate that has expired", &expired),
        refused("a certificate nobody vouches for", &unknown),
        broken("closed in the handshake", b"", Ends::Fin),
        broken("reset in the handshake", b"", Ends::Rst),
        broken("silent in the handshake", b"", Ends::Silence),
        broken("an alert in the handshake", b"\x15\x03\x03\0\x02\x02\x28", Ends::Fin),
        broken("a handshake cut inside a record", b"\x16\x03\x03\x01\0\x02", Ends::Fin),
        broken("plain HTTP where TLS belongs", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", Ends::Fin),
        broken("plain HTTP that looks like success", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Ends::Silence),
        answered("an answer", Reads::Whole, OK, Ends::Keep, DONE),
        answered("closed after the request", Reads::Whole, "", Ends::Fin, UNKNOWN),
        answered("reset after the request", Reads::Whole, "", Ends::Rst, UNKNOWN),
        answered(
            "cut inside the body",
            Reads::Whole,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntrun",
            Ends::Fin,
            CUT,
        ),
        answered("ended by its close", Reads::Whole, "HTTP/1.1 200 OK\r\n\r\nok", Ends::Fin, DONE),
        // Anybody on the way can close a TCP connection; only the peer can say that its answer was whole.
        row("a close that is not the peer's", truncated(&accept, "HTTP/1.1 200 OK\r\n\r\ntrun"), CUT, (1, 1, 1)),
        row("a close before the head that is not the peer's", truncated(&accept, ""), UNKNOWN, (1, 1, 1)),
        over_http2("HTTP/2: an answer", ok as fn(u32) -> Vec<u8>, Ends::Keep, DONE),
        over_http2("HTTP/2: REFUSED_STREAM", |s| reset(s, 7), Ends::Keep, REFUSED).shared(),
        over_http2("HTTP/2: GOAWAY below", |_| goaway(0, 0), Ends::Keep, REFUSED),
        over_http2("HTTP/2: closed after the request", |_| vec![], Ends::Fin, UNKNOWN),
    ];
    let dir = tempfile::tempdir().unwrap();
    let roots = dir.path().join("roots.pem");
    // Both are vouched for: what is wrong with them is the name, and the time.
    std::fs::write(&roots, [right.cert.pem(), wrong_name.cert.pem(), expired.cert.pem()].concat()).unwrap();
    let more = format!(
        "upstream: {{head_timeout_seconds: 1, connect_timeout_ms: 500, ca_file: '{}'}}\n",
        roots.to_str().unwrap()
    );
    // The name, so that it is what the certificate must be for.
    let keys = |peer: &Peer| format!("base_url: https://localhost:{}", peer.address.port());
    check(rows, keys, &more).await;
}
