//! An agent that does what the simplest of agents does: one call, one answer, no retry of its own.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// No answer of a drill is longer.
const BODY_BYTES_MAX: usize = 1 << 20;

/// One call.
#[derive(Debug, Clone, Default)]
pub struct Call {
    pub method: Method,
    pub target: String,
    pub fields: Vec<(&'static str, String)>,
    pub body: &'static str,
}

impl Call {
    #[must_use]
    pub fn get(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    #[must_use]
    pub fn post(target: &str, body: &'static str) -> Self {
        let fields = vec![("content-type", "application/json".to_owned())];
        Self { method: Method::POST, target: target.to_owned(), fields, body }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// A header field's first value, empty where there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON, null where it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Asks, on a connection of its own. The error says in words what broke.
pub async fn ask(server: SocketAddr, call: &Call, within: Duration) -> Result<Answer, String> {
    match tokio::time::timeout(within, exchange(server, call)).await {
        Ok(done) => done,
        Err(_) => Err(format!("no answer within {} s", within.as_secs())),
    }
}

async fn exchange(server: SocketAddr, call: &Call) -> Result<Answer, String> {
    let stream = TcpStream::connect(server).await.map_err(|e| format!("cannot connect: {e}"))?;
    let broke = |e: hyper::Error| format!("the connection broke: {e}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let mut request =
        Request::builder().method(&call.method).uri(&call.target).header(header::HOST, server.to_string());
    for (name, value) in &call.fields {
        request = request.header(*name, value);
    }
    let request = request.body(Full::new(Bytes::from_static(call.body.as_bytes()))).map_err(|e| e.to_string())?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(broke)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|e| format!("the body broke: {e}"))?;
        Ok(Answer { status: head.status.as_u16(), fields: head.headers, body: body.to_bytes() })
    };
    let drive = async {
        // What broke is said by the side that misses its answer.
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = drive => Err("the connection ended".to_owned()),
    }
}
