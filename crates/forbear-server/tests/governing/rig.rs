//! A provider that misbehaves, a real server in front of it, and an agent over a real socket.

use std::time::Duration;

use bytes::Bytes;
use forbear_lab::provider::{Options, Provider, Scenario};
use forbear_server::config::{Loaded, Overrides, load};
use forbear_server::serve::{Running, start};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

pub(crate) struct Rig {
    pub(crate) provider: Provider,
    pub(crate) running: Running,
    pub(crate) dir: tempfile::TempDir,
}

/// What an agent got.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Rig {
    /// `policy` is laid into the configuration beside the provider `p`.
    pub(crate) async fn new(scenario: &str, policy: &str) -> Self {
        let provider = Provider::start(Scenario::from_yaml(scenario).unwrap(), Options::default()).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let running = serve(&provider.base_url(), policy, &dir).await;
        Self { provider, running, dir }
    }

    /// Stops the server cleanly and starts it again on the same data.
    pub(crate) async fn restart(self, policy: &str) -> Self {
        self.running.stop().await;
        let running = serve(&self.provider.base_url(), policy, &self.dir).await;
        Self { running, ..self }
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.call("GET", path, &[("authorization", "Bearer k1")], "").await
    }

    pub(crate) async fn call(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Got {
        let mut request = Request::builder().method(method).uri(path).header("host", "forbear");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        self.send(request).await
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        let socket = TcpStream::connect(self.running.addr()).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let response: Response<_> = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Got { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// How long after the n-th answer's head the m-th request arrived, both counted from 1.
    pub(crate) fn gap(&self, head: usize, arrival: usize) -> Duration {
        let arrivals = self.provider.arrivals();
        let from = arrivals[head - 1].head_written_at_ns.expect("that arrival was answered");
        Duration::from_nanos(arrivals[arrival - 1].at_ns.saturating_sub(from))
    }
}

pub(crate) async fn serve(base_url: &str, policy: &str, dir: &tempfile::TempDir) -> Running {
    start(loaded(base_url, policy, dir)).await.unwrap()
}

/// The configuration of a server on a port of its own.
pub(crate) fn loaded(base_url: &str, policy: &str, dir: &tempfile::TempDir) -> Loaded {
    let extra = if policy.contains("providers:") {
        String::new()
    } else {
        format!("providers:\n  p:\n    base_url: {base_url}\n")
    };
    let text = format!("{}\n{extra}", policy.replace("$BASE", base_url));
    let file = dir.path().join("forbear.yaml");
    std::fs::write(&file, text).unwrap();
    let overrides = Overrides {
        listen: Some(([127, 0, 0, 1], 0).into()),
        data_dir: Some(dir.path().join("data")),
        ..Overrides::default()
    };
    load(Some(&file), &overrides).unwrap_or_else(|e| panic!("{}", e.render(false)))
}
