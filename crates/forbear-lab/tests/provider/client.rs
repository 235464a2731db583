//! A raw HTTP/1.1 client that hides nothing: bytes out, bytes in, and how the connection ended.

use std::time::Duration;

use forbear_lab::provider::{Options, Provider, Scenario};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) const WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn provider(yaml: &str) -> Provider {
    Provider::start(Scenario::from_yaml(yaml).unwrap(), Options::default()).await.unwrap()
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Ended {
    Fin,
    Rst,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        self.values(name).first().copied().unwrap_or("")
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) async fn new(provider: &Provider) -> Self {
        Self { stream: TcpStream::connect(provider.addr()).await.unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
    }

    async fn fill(&mut self) -> Result<(), Ended> {
        match timeout(WITHIN, self.stream.read_buf(&mut self.buffer)).await.expect("nothing came in time") {
            Ok(0) => Err(Ended::Fin),
            Ok(_) => Ok(()),
            Err(_) => Err(Ended::Rst),
        }
    }

    /// Everything until the end, and how it ended.
    pub(crate) async fn rest(mut self) -> (String, Ended) {
        loop {
            if let Err(ended) = self.fill().await {
                return (String::from_utf8_lossy(&self.buffer).into_owned(), ended);
            }
        }
    }

    /// Reads until the text is there, and gives what came.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.buffer).into_owned();
            if so_far.contains(text) {
                return so_far;
            }
            if let Err(ended) = self.fill().await {
                panic!("{ended:?} before {text:?} in {so_far:?}");
            }
        }
    }

    /// One answer; a head of 1xx is left in front of the real one.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head_end = loop {
            if let Some(at) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.fill().await.expect("no head");
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        self.buffer.drain(..head_end);
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        if status < 200 {
            return answer;
        }
        if answer.value("transfer-encoding") == "chunked" {
            loop {
                let line = self.line().await;
                let len = usize::from_str_radix(&line, 16).unwrap();
                if len == 0 {
                    while !self.line().await.is_empty() {}
                    return answer;
                }
                let chunk = self.take(len + 2).await;
                answer.body.extend_from_slice(&chunk[..len]);
            }
        }
        let len = answer.value("content-length").parse().unwrap_or(0);
        answer.body = self.take(len).await;
        answer
    }

    pub(crate) async fn call(&mut self, method: &str, target: &str, headers: &str, body: &str) -> Answer {
        let len = body.len();
        self.send(&format!("{method} {target} HTTP/1.1\r\nHost: lab\r\n{headers}Content-Length: {len}\r\n\r\n{body}"))
            .await;
        self.answer().await
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n")).await;
        self.answer().await
    }

    async fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line = self.buffer.drain(..at + 2).collect::<Vec<_>>();
                return String::from_utf8_lossy(&line[..at]).into_owned();
            }
            self.fill().await.expect("no line");
        }
    }

    async fn take(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            self.fill().await.expect("not enough");
        }
        self.buffer.drain(..len).collect()
    }
}

pub(crate) async fn get(provider: &Provider, target: &str) -> Answer {
    Client::new(provider).await.get(target).await
}

pub(crate) async fn post(provider: &Provider, target: &str, headers: &str, body: &str) -> Answer {
    Client::new(provider).await.call("POST", target, headers, body).await
}
