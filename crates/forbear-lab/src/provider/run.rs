//! `forbear lab provider`: the fake provider on its own, so that users can test their own agents on it.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Http2, Options, Provider, Scenario, ScenarioError};

/// What the command line gives.
pub struct RunOptions {
    pub scenario: PathBuf,
    pub listen: SocketAddr,
    pub tls: bool,
    pub http2: Http2,
    /// Where the authority's certificate is written, with TLS.
    pub ca_pem_file: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("cannot listen on {listen}: {source}")]
    Listen { listen: SocketAddr, source: io::Error },
    #[error("cannot write the certificate to {}: {source}", path.display())]
    Certificate { path: PathBuf, source: io::Error },
    #[error("cannot write to the output: {0}")]
    Output(#[from] io::Error),
}

/// Prints one JSON line with the address, then a line per arrival, until ctrl-c.
pub async fn run(options: RunOptions, mut out: Box<dyn Write + Send>) -> Result<(), RunError> {
    let scenario = Scenario::from_file(&options.scenario)?;
    let name = scenario.name().map(str::to_owned);
    // The address is known only after binding, the log is given before: bound first, printed first, started then.
    let listen = options.listen;
    let pending = tokio::net::TcpListener::bind(listen).await.map_err(|source| RunError::Listen { listen, source })?;
    let bound = pending.local_addr()?;
    let ready = serde_json::json!({
        "line": "listening", "base_url": super::base_url(options.tls, bound), "scenario": name,
        "control": ["GET /__lab/arrivals", "GET /__lab/effects", "POST /__lab/reset", "POST /__lab/scenario"],
        "ca_pem_file": options.ca_pem_file,
    });
    writeln!(out, "{ready}")?;
    out.flush()?;
    let started = Options { tls: options.tls, http2: options.http2, log: Some(out), ..Options::default() };
    let provider =
        Provider::start_on(pending, scenario, started).map_err(|source| RunError::Listen { listen, source })?;
    if let (Some(path), Some(pem)) = (options.ca_pem_file, provider.ca_pem()) {
        std::fs::write(&path, pem).map_err(|source| RunError::Certificate { path, source })?;
    }
    tokio::signal::ctrl_c().await?;
    provider.stop().await;
    Ok(())
}
