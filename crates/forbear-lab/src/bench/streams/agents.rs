//! The agents: each asks for one completion, reads its first event, and later the rest to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{PATH, Wire, provider};
use crate::bench::origin::EVENT;

/// Below the 256 that Forbear allows.
const STREAMS_PER_CONNECTION: usize = 200;
/// Below the backlog of a listener.
const OPENING_MAX: usize = 128;
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a request: a short conversation.
const CONVERSATION_BYTES: usize = 2 * 1024;

type Sender = http2::SendRequest<Full<Bytes>>;

/// An answer, and how many bytes of it came so far.
pub(super) struct Stream {
    body: Incoming,
    bytes: usize,
}

/// The streams that had their first event, and why the first of the others did not.
pub(super) struct Opened {
    pub(super) streams: Vec<Stream>,
    pub(super) first_error: Option<String>,
}

/// Opens them all, so many at a time.
pub(super) async fn open(forbear: SocketAddr, wire: Wire, streams: usize, providers: usize) -> Opened {
    let turns = Arc::new(Semaphore::new(OPENING_MAX));
    let mut tasks = JoinSet::new();
    let mut shared = Err("no connection yet".into());
    for number in 0..streams {
        if wire == Wire::Http2 && number % STREAMS_PER_CONNECTION == 0 {
            shared = connect_http2(forbear).await;
        }
        let (turns, shared) = (Arc::clone(&turns), shared.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire_owned().await;
            let request = request(forbear, wire, number, number % providers).map_err(|error| error.to_string())?;
            let opening = async {
                match wire {
                    Wire::Http1 => first_event(connect_http1(forbear).await?.send_request(request).await).await,
                    Wire::Http2 => first_event(shared?.send_request(request).await).await,
                }
            };
            timeout(FIRST_EVENT_TIMEOUT, opening).await.unwrap_or_else(|_| Err("no first event in time".into()))
        });
    }
    let mut opened = Opened { streams: Vec::with_capacity(streams), first_error: None };
    while let Some(joined) = tasks.join_next().await {
        match joined.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(stream) => opened.streams.push(stream),
            Err(error) => _ = opened.first_error.get_or_insert(error),
        }
    }
    opened
}

/// Reads all of them to their ends. How many were whole, and what was wrong with the first that was not.
pub(super) async fn finish(streams: Vec<Stream>) -> (usize, Option<String>) {
    let mut tasks: JoinSet<Result<(), String>> = streams
        .into_iter()
        .map(|stream| async {
            timeout(END_TIMEOUT, rest(stream)).await.unwrap_or_else(|_| Err("no end in time".into()))
        })
        .collect();
    let (mut whole, mut first_error) = (0, None);
    while let Some(joined) = tasks.join_next().await {
        match joined.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(()) => whole += 1,
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    (whole, first_error)
}

async fn connect(forbear: SocketAddr) -> Result<TokioIo<TcpStream>, String> {
    let socket = TcpStream::connect(forbear).await.map_err(|error| format!("connect: {error}"))?;
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(TokioIo::new(socket))
}

async fn connect_http1(forbear: SocketAddr) -> Result<http1::SendRequest<Full<Bytes>>, String> {
    let made = http1::handshake(connect(forbear).await?).await;
    let (sender, connection) = made.map_err(|error| format!("handshake: {error}"))?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn connect_http2(forbear: SocketAddr) -> Result<Sender, String> {
    let made = http2::handshake(TokioExecutor::new(), connect(forbear).await?).await;
    let (sender, connection) = made.map_err(|error| format!("handshake: {error}"))?;
    tokio::spawn(connection);
    Ok(sender)
}

/// No two are alike.
fn request(forbear: SocketAddr, wire: Wire, number: usize, of_provider: usize) -> http::Result<Request<Full<Bytes>>> {
    let conversation = "word ".repeat(CONVERSATION_BYTES / 5);
    let path = format!("/{}{PATH}", provider(of_provider));
    let request = match wire {
        Wire::Http1 => Request::post(path).header(http::header::HOST, forbear.to_string()),
        Wire::Http2 => Request::post(format!("http://{forbear}{path}")),
    };
    request
        .header(http::header::AUTHORIZATION, "Bearer bench")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::from(format!(r#"{{"number":{number},"stream":true,"prompt":"{conversation}"}}"#)))
}

async fn first_event(answer: hyper::Result<hyper::Response<Incoming>>) -> Result<Stream, String> {
    let answer = answer.map_err(|error| format!("call: {error}"))?;
    if answer.status() != hyper::StatusCode::OK {
        return Err(format!("status {}", answer.status()));
    }
    let mut stream = Stream { body: answer.into_body(), bytes: 0 };
    while stream.bytes < EVENT.len() {
        if !more(&mut stream).await? {
            return Err("it ended before its first event".into());
        }
    }
    Ok(stream)
}

async fn rest(mut stream: Stream) -> Result<(), String> {
    while more(&mut stream).await? {}
    let expected = 2 * EVENT.len();
    let bytes = stream.bytes;
    if bytes == expected { Ok(()) } else { Err(format!("{bytes} bytes where {expected} were expected")) }
}

/// The next piece; false at the end.
async fn more(stream: &mut Stream) -> Result<bool, String> {
    let Some(frame) = stream.body.frame().await else { return Ok(false) };
    let frame = frame.map_err(|error| format!("body: {error}"))?;
    stream.bytes += frame.data_ref().map_or(0, Bytes::len);
    Ok(true)
}
