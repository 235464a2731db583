//! A client of the control API: one HTTP/1.1 connection a call, to the address that `forbear serve` prints.
//!
//! It promises an error that says what to do, an answer within [`CALL_TIMEOUT_MS`], and no more than [`BODY_BYTES_MAX`]
//! in memory. It refuses to retry: that is the caller's decision.

mod address;
mod error;
mod token;

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::control::{
    ActionQuery, ActionRow, ActionStory, Cancelled, CircuitRows, ConfigReloaded, Live, LiveQuery, Named, Page, Ready,
    Reopened, Report, RouteSuggestions, Scopes,
};
use crate::problem::Problem;

pub use address::ADDRESS_FILE;
pub use error::ClientError;
pub use token::{TOKEN_FILE, Token};

/// An answer's body at most.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// From the connection to the last byte.
pub const CALL_TIMEOUT_MS: u64 = 15_000;
/// Where `forbear serve` listens without configuration.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8429";
const HTTP_PORT: u16 = 80;

#[derive(Debug, Clone)]
pub struct Client {
    authority: http::uri::Authority,
    token: Option<Token>,
    /// The data directory that the address was read from.
    from: Option<PathBuf>,
}

impl Client {
    /// `base` is the address alone: `http://127.0.0.1:8429`.
    pub fn new(base: &str, token: Option<Token>) -> Result<Self, ClientError> {
        let bad = || ClientError::BadAddress { address: base.to_owned() };
        let uri: Uri = base.trim_end_matches('/').parse().map_err(|_| bad())?;
        let parts = uri.into_parts();
        let plain = parts.scheme.as_ref().is_some_and(|s| *s == http::uri::Scheme::HTTP);
        let bare = parts.path_and_query.as_ref().is_none_or(|p| p == "/");
        let authority = parts.authority.filter(|a| plain && bare && !a.as_str().contains('@')).ok_or_else(bad)?;
        Ok(Self { authority, token, from: None })
    }

    /// The server that runs with this data, by the address that it wrote there; where there is none, at the other one.
    pub fn of_data_dir(dir: &Path, otherwise: &str, token: Option<Token>) -> Result<Self, ClientError> {
        match address::read(dir) {
            Some(address) => Ok(Self { from: Some(dir.to_owned()), ..Self::new(&address, token)? }),
            None => Self::new(otherwise, token),
        }
    }

    /// The server's own word on whether it takes new calls; asked without a token.
    pub async fn ready(&self) -> Result<Ready, ClientError> {
        let (status, body) = self.call(Method::GET, "/-/ready").await?;
        match status {
            StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => read(&body),
            _ => Err(refused(status, &body)),
        }
    }

    pub async fn scopes(&self) -> Result<Scopes, ClientError> {
        self.get("/-/v1/scopes").await
    }

    pub async fn actions(&self, query: &ActionQuery) -> Result<Page<ActionRow>, ClientError> {
        self.get(&format!("/-/v1/actions{}", query_string(query))).await
    }

    pub async fn action(&self, id: &str) -> Result<ActionStory, ClientError> {
        self.get(&format!("/-/v1/actions/{}", escaped(id))).await
    }

    pub async fn report(&self, since: &str) -> Result<Report, ClientError> {
        self.get(&format!("/-/v1/report?since={}", escaped(since))).await
    }

    pub async fn route_suggestions(
        &self,
        since: &str,
        provider: Option<&str>,
    ) -> Result<RouteSuggestions, ClientError> {
        let of = provider.map_or(String::new(), |provider| format!("&provider={}", escaped(provider)));
        self.get(&format!("/-/v1/routes/suggestions?since={}{of}", escaped(since))).await
    }

    pub async fn cancel(&self, what: Named, id: &str) -> Result<Cancelled, ClientError> {
        let (status, body) = self.call(Method::DELETE, &format!("/-/v1/{}s/{}", what.as_str(), escaped(id))).await?;
        if status.is_success() { read(&body) } else { Err(refused(status, &body)) }
    }

    /// Takes the cancel of a task or run back.
    pub async fn reopen(&self, what: Named, id: &str) -> Result<Reopened, ClientError> {
        let target = format!("/-/v1/{}s/{}/reopen", what.as_str(), escaped(id));
        let (status, body) = self.call(Method::POST, &target).await?;
        if status.is_success() { read(&body) } else { Err(refused(status, &body)) }
    }

    /// What waits or is on the wire, oldest first.
    pub async fn live(&self, query: &LiveQuery) -> Result<Live, ClientError> {
        let wanted = [("task", &query.task), ("scope", &query.scope)];
        let wanted =
            wanted.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(value.as_deref()?))));
        self.get(&format!("/-/v1/live?{}", wanted.collect::<Vec<_>>().join("&"))).await
    }

    /// What is not sent for a while, because it failed again and again.
    pub async fn circuits(&self) -> Result<CircuitRows, ClientError> {
        self.get("/-/v1/circuits").await
    }

    /// Makes the server read its configuration again.
    pub async fn reload_config(&self) -> Result<ConfigReloaded, ClientError> {
        let (status, body) = self.call(Method::POST, "/-/v1/config/reload").await?;
        if status.is_success() { read(&body) } else { Err(refused(status, &body)) }
    }

    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        let (status, body) = self.call(Method::GET, target).await?;
        if status.is_success() { read(&body) } else { Err(refused(status, &body)) }
    }

    async fn call(&self, method: Method, target: &str) -> Result<(StatusCode, Bytes), ClientError> {
        let limit = Duration::from_millis(CALL_TIMEOUT_MS);
        match tokio::time::timeout(limit, self.exchange(method, target)).await {
            Ok(done) => done,
            Err(_) => Err(ClientError::Silent { server: self.server(), seconds: CALL_TIMEOUT_MS / 1_000 }),
        }
    }

    async fn exchange(&self, method: Method, target: &str) -> Result<(StatusCode, Bytes), ClientError> {
        let server = || self.server();
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = self.authority.port_u16().unwrap_or(HTTP_PORT);
        let stream = TcpStream::connect((host, port)).await.map_err(|e| self.not_running(e.to_string()))?;
        let broken = |e: hyper::Error| ClientError::Broken { server: server(), why: e.to_string() };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let mut request = Request::builder().method(method).uri(target).header(header::HOST, self.authority.as_str());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.as_str()));
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|e| ClientError::Broken { server: server(), why: e.to_string() })?;
        // The connection is driven here and ends with the call: nothing is left running behind.
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await.map_err(|e| {
                if e.is::<LengthLimitError>() {
                    ClientError::TooLong { server: server(), bytes_max: BODY_BYTES_MAX }
                } else {
                    ClientError::Broken { server: server(), why: e.to_string() }
                }
            })?;
            Ok((status, body.to_bytes()))
        };
        let drive = async {
            match connection.await {
                // The answer's own side says what it missed.
                Ok(()) | Err(_) => std::future::pending::<()>().await,
            }
        };
        tokio::select! {
            answer = answer => answer,
            () = drive => Err(ClientError::Broken { server: server(), why: "the connection ended".to_owned() }),
        }
    }

    fn not_running(&self, why: String) -> ClientError {
        let server = self.server();
        match self.from.clone() {
            Some(data) => ClientError::Stopped { server, data, why },
            None => ClientError::NotRunning { server, why },
        }
    }

    fn server(&self) -> String {
        format!("http://{}", self.authority)
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|e| ClientError::NotForbear { why: e.to_string() })
}

fn refused(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) if status == StatusCode::UNAUTHORIZED => ClientError::Token { detail: problem.detail },
        Ok(problem) if status == StatusCode::NOT_FOUND => ClientError::NotFound { detail: problem.detail },
        Ok(problem) => ClientError::Refused { problem: Box::new(problem) },
        Err(_) => ClientError::NotForbear { why: format!("status {status} without a problem body") },
    }
}

fn query_string(q: &ActionQuery) -> String {
    let mut pairs: Vec<String> = Vec::new();
    let mut add = |name: &str, value: &str| pairs.push(format!("{name}={}", escaped(value)));
    for (name, value) in [("task", &q.task), ("run", &q.run), ("outcome", &q.outcome), ("before", &q.before)] {
        if let Some(value) = value {
            add(name, value);
        }
    }
    if q.open {
        add("open", "true");
    }
    if let Some(limit) = q.limit {
        add("limit", &limit.to_string());
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Percent-encodes all but unreserved characters (RFC 3986 section 2.3).
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests;
