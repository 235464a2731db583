//! What a hop costs: Forbear beside a proxy without logic, nginx and no proxy at all, under one load.
//!
//! Peers take turns within each round, because machines drift; a ratio is the median of the ratios within rounds. Every
//! peer but *direct* is a process of its own, so that its CPU time can be told apart. The bench prints and keeps
//! nothing; any error in a window makes the run worthless and is said.

mod flush;
pub mod histogram;
pub mod load;
pub mod marks;
pub mod origin;
pub mod peer;
pub mod proxy;
pub mod report;
pub mod rounds;
pub mod streams;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpListener;

/// Any free port of this machine, reached from nowhere else.
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What to run and where.
#[derive(Debug, Clone)]
pub struct Options {
    pub quick: bool,
    /// Only the cases with this in their names.
    pub only: String,
    /// The binary of Forbear.
    pub forbear: PathBuf,
    /// The bench's own binary, which is also the proxy without logic.
    pub own: PathBuf,
    /// For generated configurations and data; made and emptied here.
    pub directory: PathBuf,
}

/// How long one peer is loaded in one round.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rounds: usize,
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Pace {
    /// About five minutes with four peers and nine cases.
    pub const FULL: Self =
        Self { rounds: 5, warm_up: Duration::from_millis(300), measured: Duration::from_millis(1_000) };
    pub const QUICK: Self =
        Self { rounds: 3, warm_up: Duration::from_millis(150), measured: Duration::from_millis(400) };
}

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{peer} did not say where it listens within {seconds} s")]
    Silent { peer: &'static str, seconds: u64 },
}

impl BenchError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Runs every case over every peer that is there.
///
/// # Errors
/// When a peer cannot be started or a socket cannot be bound; errors of single calls are counted in the report instead.
pub async fn run(options: &Options) -> Result<report::Report, BenchError> {
    let listener = TcpListener::bind(LOOPBACK).await.map_err(BenchError::io("the origin's socket"))?;
    let address = listener.local_addr().map_err(BenchError::io("the origin's socket"))?;
    let origin = tokio::spawn(origin::serve(listener));
    let (peers, left_out) = peer::start_all(options, address)?;
    let pace = if options.quick { Pace::QUICK } else { Pace::FULL };
    let flush_ns = flush::measured_ns(&options.directory)?;
    let mut cases = Vec::new();
    for case in rounds::CASES.iter().filter(|case| case.name.contains(&options.only)) {
        eprintln!("measuring: {}", case.name);
        cases.push(rounds::measure(case, &peers, pace).await?);
    }
    origin.abort();
    Ok(report::Report::new(options.quick, pace, cases, left_out, flush_ns))
}
