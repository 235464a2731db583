//! Agents that speak HTTP/1.1 or HTTP/2, or write bytes by hand, and what became of their calls.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use forbear_store::{ActionStory, Reader};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::rig::Rig;

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Agent and provider, each over HTTP/1.1 and HTTP/2.
pub(crate) const SIDES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

pub(crate) type AgentBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

pub(crate) fn no_body() -> AgentBody {
    Empty::new().map_err(|e| match e {}).boxed_unsync()
}

pub(crate) fn body(bytes: impl Into<Bytes>) -> AgentBody {
    Full::new(bytes.into()).map_err(|e| match e {}).boxed_unsync()
}

/// The provider `p`, which extends `extends` (or nothing), without long waits.
pub(crate) fn policy(extends: &str, is_http2: bool, more: &str) -> String {
    let extends = if extends.is_empty() { String::new() } else { format!("    extends: {extends}\n") };
    format!(
        "backoff: {{base_ms: 10, cap_ms: 50, floor_ms: 10}}\nproviders:\n  p:\n{extends}    base_url: $BASE\n    \
         http2_prior_knowledge: {is_http2}\n{more}"
    )
}

enum Sender {
    Http1(http1::SendRequest<AgentBody>),
    Http2(http2::SendRequest<AgentBody>),
}

/// One connection of an agent.
pub(crate) struct Agent {
    sender: Sender,
    connection: JoinHandle<()>,
}

impl Agent {
    pub(crate) async fn connect(address: SocketAddr, is_http2: bool) -> Self {
        let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
        if is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            let connection = tokio::spawn(async { drop(connection.await) });
            Self { sender: Sender::Http2(sender), connection }
        } else {
            let (sender, connection) = http1::Builder::new().handshake(io).await.unwrap();
            let connection = tokio::spawn(async { drop(connection.await) });
            Self { sender: Sender::Http1(sender), connection }
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let request = Request::builder().method(method);
        match self.sender {
            Sender::Http1(_) => request.uri(path).header("host", "gateway.test"),
            Sender::Http2(_) => request.uri(format!("http://gateway.test{path}")),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<AgentBody>) -> Response<Incoming> {
        let sent = async {
            match &mut self.sender {
                Sender::Http1(sender) => sender.send_request(request).await,
                Sender::Http2(sender) => sender.send_request(request).await,
            }
        };
        timeout(PATIENCE, sent).await.expect("a head within patience").unwrap()
    }

    pub(crate) async fn call(&mut self, method: &str, path: &str, bytes: impl Into<Bytes>) -> Response<Incoming> {
        let request = self.request(method, path).body(body(bytes)).unwrap();
        self.send(request).await
    }

    /// Closes the connection, whatever is under way on it.
    pub(crate) fn leave(self) {
        self.connection.abort();
    }
}

/// What came of a body, and whether it came to its end in order.
pub(crate) async fn read(response: Response<Incoming>) -> (Vec<u8>, Result<(), hyper::Error>) {
    let (mut bytes, mut body) = (Vec::new(), response.into_body());
    while let Some(frame) = timeout(PATIENCE, body.frame()).await.expect("more of the body within patience") {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
            Err(e) => return (bytes, Err(e)),
        }
    }
    (bytes, Ok(()))
}

pub(crate) fn field<'r>(response: &'r Response<Incoming>, name: &str) -> &'r str {
    response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// What is on record of an action, once it has its outcome.
pub(crate) async fn story(rig: &Rig, action: &str) -> ActionStory {
    story_where(rig, action, |s| s.action.outcome.is_some()).await
}

pub(crate) async fn story_where(rig: &Rig, action: &str, holds: impl Fn(&ActionStory) -> bool) -> ActionStory {
    let action = action.parse().unwrap_or_else(|_| panic!("no action: {action:?}"));
    let reader = Reader::open(&rig.dir.path().join("data")).unwrap();
    timeout(PATIENCE, async {
        loop {
            match reader.action(action).unwrap() {
                Some(story) if holds(&story) => return story,
                // sleep: between looks at the journal, within PATIENCE.
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
    .expect("the outcome is on record within patience")
}

/// All slots are free again.
pub(crate) async fn idle(rig: &Rig, within: Duration) {
    let is_idle = || rig.running.shard().scopes(10).iter().all(|s| s.in_flight == 0 && s.delayed == 0);
    eventually("all slots are free", within, is_idle).await;
}

pub(crate) async fn eventually(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    timeout(within, async {
        while !is_so() {
            // sleep: between looks, within the bound.
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// An agent's connection, written and read by hand.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    async fn fill(&mut self) -> bool {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        read.expect("bytes within patience").is_ok_and(|n| n > 0)
    }

    /// Reads up to and with `end`; what came until then, if the peer closes first.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|w| w == end.as_bytes()) {
                return String::from_utf8_lossy(&self.read.drain(..at + end.len()).collect::<Vec<_>>()).into_owned();
            }
            if !self.fill().await {
                return String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned();
            }
        }
    }

    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Everything until the peer closes.
    pub(crate) async fn rest(&mut self) -> String {
        while self.fill().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned()
    }
}

/// One request on a connection of its own, with all that comes back until it is closed.
pub(crate) async fn once(rig: &Rig, request: impl AsRef<[u8]>) -> String {
    let mut agent = Raw::connect(rig.running.addr()).await;
    agent.write(request).await;
    agent.rest().await
}

/// The value of a field in a head as written.
pub(crate) fn raw_field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.split("\r\n\r\n").next().unwrap_or_default().split("\r\n").skip(1);
    let mut fields = lines.filter_map(|line| line.split_once(": "));
    fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
}
