//! The load generator: a closed loop over a fixed number of keep-alive connections.
//!
//! Each connection sends its next call when the answer to the last was read to its end. An answer counts if its status
//! is 200 and its body has the right length; everything else is an error, and errors are never left out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::histogram::Histogram;

/// A connection that only fails gives up, so that a dead peer does not spin.
const ERRORS_PER_CONNECTION_MAX: u64 = 20;
/// Far above any answer here: a peer that hangs is an error, not a run without end.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub path: String,
    pub call: Call,
    pub body_bytes: usize,
}

/// What is sent. No two writes are alike, or they would be taken for repeats of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Read,
    Write,
    /// With an idempotency key of its own.
    KeyedWrite,
}

/// Counts the writes of this process.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// What one peer did in one round.
#[derive(Debug, Default)]
pub struct Window {
    pub latencies: Histogram,
    pub errors: u64,
    pub first_error: Option<String>,
}

/// The instants between which answers count.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub start: Instant,
    pub end: Instant,
}

pub async fn run(target: &Target, connections: usize, span: Span) -> Window {
    let target = Arc::new(target.clone());
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn(one_connection(Arc::clone(&target), span));
    }
    let mut window = Window::default();
    while let Some(joined) = tasks.join_next().await {
        let part = joined.unwrap_or_else(|error| Window {
            errors: 1,
            first_error: Some(error.to_string()),
            ..Window::default()
        });
        window.latencies.add(&part.latencies);
        window.errors += part.errors;
        window.first_error = window.first_error.or(part.first_error);
    }
    window
}

async fn one_connection(target: Arc<Target>, span: Span) -> Window {
    let mut window = Window::default();
    let mut sender = None;
    while Instant::now() < span.end && window.errors < ERRORS_PER_CONNECTION_MAX {
        let started = Instant::now();
        let called = tokio::time::timeout(CALL_TIMEOUT, call(&target, &mut sender)).await;
        let ended = Instant::now();
        match called.unwrap_or_else(|_| Err("no whole answer in time".into())) {
            Ok(()) if started >= span.start && ended <= span.end => {
                window.latencies.record_ns(u64::try_from((ended - started).as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(()) => {}
            Err(error) => {
                window.errors += 1;
                window.first_error.get_or_insert(error);
                sender = None;
            }
        }
    }
    window
}

async fn call(target: &Target, slot: &mut Option<SendRequest<Full<Bytes>>>) -> Result<(), String> {
    let sender = match slot {
        Some(sender) => sender,
        None => slot.insert(connect(target.address).await?),
    };
    sender.ready().await.map_err(|error| format!("connection: {error}"))?;
    let request = request(target).map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| format!("call: {error}"))?;
    let status = response.status();
    let mut body = response.into_body();
    let mut body_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("body: {error}"))?;
        body_bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    if status != hyper::StatusCode::OK || body_bytes != target.body_bytes {
        return Err(format!("status {status}, {body_bytes} bytes of body where {} were expected", target.body_bytes));
    }
    Ok(())
}

fn request(target: &Target) -> http::Result<Request<Full<Bytes>>> {
    let method = if target.call == Call::Read { Method::GET } else { Method::POST };
    let request = Request::builder()
        .method(method)
        .uri(target.path.as_str())
        .header(http::header::HOST, "bench.example")
        .header(http::header::AUTHORIZATION, "Bearer bench");
    if target.call == Call::Read {
        return request.body(Full::default());
    }
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let body = format!(r#"{{"name":"a small item","number":{number},"currency":"eur"}}"#);
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    let request = match target.call {
        Call::KeyedWrite => request.header("idempotency-key", format!("bench-{}-{number}", std::process::id())),
        Call::Read | Call::Write => request,
    };
    request.body(Full::from(body))
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, String> {
    let socket = TcpStream::connect(address).await.map_err(|error| format!("connect: {error}"))?;
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) = handshake(TokioIo::new(socket)).await.map_err(|error| format!("handshake: {error}"))?;
    tokio::spawn(connection);
    Ok(sender)
}
