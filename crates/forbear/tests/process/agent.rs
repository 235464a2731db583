//! An agent as plain as can be: one call on a connection of its own, no retry, the answer's bytes as they came.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// No answer of these tests takes longer or is larger.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: &'static str,
    target: String,
    fields: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Call {
    pub(crate) fn get(target: &str) -> Self {
        Self { method: "GET", target: target.to_owned(), fields: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { method: "POST", body: body.into(), ..Self::get(target) }.with("content-type", "application/json")
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The request as it goes over the wire, for a connection that carries nothing after it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n", self.method, self.target);
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header field's value, empty where there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(':'));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Of the bytes of a connection that ended; an answer that was cut is an error.
    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let cut = |what: &str| io::Error::new(io::ErrorKind::UnexpectedEof, what.to_owned());
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| cut("the head is cut"))?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| cut("there is no status"))?;
        let mut answer = Self { status, head, body: bytes[end + 4..].to_vec() };
        if answer.field("transfer-encoding").eq_ignore_ascii_case("chunked") {
            answer.body = unchunked(&answer.body).ok_or_else(|| cut("the chunks are cut"))?;
        } else if let Ok(length) = answer.field("content-length").parse::<usize>()
            && answer.body.len() < length
        {
            return Err(cut("the body is cut"));
        }
        Ok(answer)
    }
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line = bytes.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).ok()?, 16).ok()?;
        bytes = bytes.get(line + 2..)?;
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

/// Asks and reads until the server closes.
pub(crate) async fn ask(server: SocketAddr, call: &Call) -> io::Result<Answer> {
    let exchange = async {
        let mut socket = TcpStream::connect(server).await?;
        socket.write_all(&call.bytes()).await?;
        read_answer(&mut socket).await
    };
    tokio::time::timeout(ANSWER_TIME_MAX, exchange).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

pub(crate) async fn read_answer(socket: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    // A reset after a whole answer takes nothing from it.
    let read = socket.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).await;
    Answer::parse(&bytes).map_err(|cut| read.err().unwrap_or(cut))
}
