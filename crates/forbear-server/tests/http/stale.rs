//! A last word that a server says into a connection it gives up is never the answer to what comes next on it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use forbear_core::effect::Evidence;
use forbear_server::http::body::{Framing, Replay, UpstreamBody};
use forbear_server::http::origin::Origin;
use forbear_server::http::upstream::{Stage, send};
use http::{Request, StatusCode};
use http_body_util::BodyExt;

use super::rig::{PATIENCE, Provider, Raw};
use super::sending::{call, complete, options, pool, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST_WORDS: [&[u8]; 2] = [
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
];
/// No socket's buffers hold so much.
const LONG_BYTES: usize = 32 << 20;

fn read_request(stream: &mut TcpStream) {
    let (mut read, mut piece) = (Vec::new(), [0; 1024]);
    while !read.ends_with(b"hi") {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "closed within a request");
        read.extend_from_slice(&piece[..n]);
    }
}

/// A server in a thread of its own says it while the runtime is not looked after: only the kernel knows of it when the next
/// request comes.
#[tokio::test]
async fn what_only_the_kernel_knows_of_is_found_before_the_next_request() {
    for last_word in LAST_WORDS {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = Origin::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap().0;
        let (say, says) = mpsc::channel();
        let (said, is_said) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            read_request(&mut first);
            first.write_all(OK).unwrap();
            says.recv_timeout(PATIENCE).unwrap();
            // sleep: no server gives a connection up at once, and none is suspected of it
            std::thread::sleep(Duration::from_millis(20));
            first.write_all(last_word).unwrap();
            said.send(()).unwrap();
            let (mut second, _) = listener.accept().unwrap();
            read_request(&mut second);
            second.write_all(OK).unwrap();
            first.set_nonblocking(true).unwrap();
            first.read(&mut [0; 1024]).unwrap_or(0)
        });
        let pool = pool();
        let first = send(&pool, &origin, post(&origin), options(), || true).await;
        assert!(!complete(first).await);
        say.send(()).unwrap();
        is_said.recv_timeout(PATIENCE).unwrap();
        let second = send(&pool, &origin, post(&origin), options(), || true).await;
        assert!(!complete(second).await, "the connection was used again");
        assert_eq!(server.join().unwrap(), 0, "bytes of a request came on the connection that was given up");
    }
}

fn long(origin: &Origin) -> Request<UpstreamBody> {
    let body = Replay::new(vec![Bytes::from(vec![b'x'; LONG_BYTES])], None, Framing::Length(LONG_BYTES as u64));
    let body = UpstreamBody::replay(&Arc::new(body));
    Request::post("/x").header("host", origin.authority().as_str()).body(body).unwrap()
}

async fn says_400_to_the_first_byte(mut raw: Raw) {
    raw.bytes(1).await;
    raw.write(LAST_WORDS[0]).await;
    // The rest is left where it is.
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn an_answer_before_the_request_had_left_is_an_answer_only_where_nothing_was_asked_before() {
    let provider = Provider::start(|mut raw, n, _| async move {
        if n == 0 {
            raw.until("hi").await;
            raw.write(OK).await;
        }
        says_400_to_the_first_byte(raw).await;
    })
    .await;
    let (pool, origin) = (pool(), Origin::parse(&provider.url()).unwrap().0);
    assert!(!complete(call(&pool, &provider, options()).await).await);
    let used = send(&pool, &origin, long(&origin), options(), || true).await.unwrap_err();
    assert_eq!((used.evidence, used.stage), (Evidence::Unknown, Stage::AwaitHead), "{used}");
    let fresh = send(&pool, &origin, long(&origin), options(), || true).await.unwrap();
    assert_eq!((fresh.head.status, fresh.reused), (StatusCode::BAD_REQUEST, false));
    assert_eq!(fresh.body.collect().await.unwrap().to_bytes(), "");
    assert_eq!(provider.connections(), 2);
}
