//! Many streams held open through Forbear: what one costs in memory, and that all of them end whole.
//!
//! A process may have so many files open, on the machine of the figures 20,000, and a stream with a connection of its own
//! on both sides takes two. So one side speaks HTTP/2 at a time: each [`Shape`] gives the other side a connection a stream.
//! Providers share one process with the agents, Forbear has its own. An agent that fails is counted, never left out.

mod agents;
mod origin;
mod report;

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch;

pub use self::report::Report;
use super::peer::{self, FORBEAR, Memory, Peer};
use super::{BenchError, LOOPBACK};

/// Below the 1,024 connections that Forbear opens to one origin.
const STREAMS_PER_PROVIDER: usize = 1_000;
/// Beside a connection a stream, in `connections_max`.
const CONNECTIONS_SPARE: usize = 64;
/// How long all are held with nothing to do, for the CPU time that this takes.
const HELD: Duration = Duration::from_secs(2);
const PATH: &str = "/v1/completions";

/// What to run and where.
#[derive(Debug, Clone)]
pub struct Options {
    pub streams: usize,
    /// The binary of Forbear.
    pub forbear: PathBuf,
    /// For generated configurations and data; made and emptied here.
    pub directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// A connection a stream.
    Http1,
    /// By prior knowledge, many streams a connection.
    Http2,
}

/// What either side speaks.
#[derive(Debug, Clone, Copy)]
struct Shape {
    name: &'static str,
    agents: Wire,
    providers: Wire,
}

const SHAPES: [Shape; 2] = [
    Shape { name: "agents over HTTP/1.1, providers over HTTP/2", agents: Wire::Http1, providers: Wire::Http2 },
    Shape { name: "agents over HTTP/2, providers over HTTP/1.1", agents: Wire::Http2, providers: Wire::Http1 },
];

/// What one shape took.
#[derive(Debug)]
struct Found {
    shape: &'static str,
    providers: usize,
    /// Streams that had their first event, and then their last and nothing wrong.
    opened: usize,
    whole: usize,
    first_error: Option<String>,
    before: Memory,
    open: Memory,
    after: Memory,
    opening: Duration,
    ending: Duration,
    /// Of Forbear's process, by second, with all open and nothing to do.
    held_cpu_us: u64,
}

/// Opens, holds and ends so many streams in each shape.
///
/// # Errors
/// When Forbear cannot be started or a socket cannot be bound; errors of single streams are counted in the report instead.
pub async fn run(options: &Options) -> Result<Report, BenchError> {
    let mut found = Vec::new();
    for shape in SHAPES {
        eprintln!("measuring: {} streams, {}", options.streams, shape.name);
        found.push(measure(options, shape).await?);
    }
    Ok(Report::new(options.streams, found))
}

async fn measure(options: &Options, shape: Shape) -> Result<Found, BenchError> {
    peer::empty(&options.directory)?;
    let (end, ends) = watch::channel(false);
    let mut origins = Vec::new();
    for _ in 0..options.streams.div_ceil(STREAMS_PER_PROVIDER) {
        let socket = || BenchError::io("a provider's socket");
        let listener = TcpListener::bind(LOOPBACK).await.map_err(socket())?;
        origins.push(listener.local_addr().map_err(socket())?);
        tokio::spawn(origin::serve(listener, shape.providers, ends.clone()));
    }
    let forbear = start(options, shape, &origins)?;
    let before = memory(&forbear)?;
    let began = Instant::now();
    let mut opened = agents::open(forbear.address, shape.agents, options.streams, origins.len()).await;
    let opening = began.elapsed();
    let held_cpu_us = held_cpu_us(&forbear).await;
    let open = memory(&forbear)?;
    let began = Instant::now();
    end.send_replace(true);
    let streams = std::mem::take(&mut opened.streams);
    let count = streams.len();
    let (whole, error) = agents::finish(streams).await;
    Ok(Found {
        shape: shape.name,
        providers: origins.len(),
        opened: count,
        whole,
        first_error: opened.first_error.or(error),
        before,
        open,
        ending: began.elapsed(),
        after: memory(&forbear)?,
        opening,
        held_cpu_us,
    })
}

fn memory(forbear: &Peer) -> Result<Memory, BenchError> {
    let gone = || BenchError::io("the memory of forbear")(std::io::ErrorKind::NotFound.into());
    forbear.memory().ok_or_else(gone)
}

async fn held_cpu_us(forbear: &Peer) -> u64 {
    let before = forbear.cpu_ns().unwrap_or_default();
    tokio::time::sleep(HELD).await;
    forbear.cpu_ns().unwrap_or_default().saturating_sub(before) / 1_000 / HELD.as_secs()
}

fn start(options: &Options, shape: Shape, origins: &[SocketAddr]) -> Result<Peer, BenchError> {
    let config = options.directory.join("forbear.yaml");
    fs::write(&config, configuration(options.streams, shape, origins)).map_err(BenchError::io("the configuration"))?;
    let mut command = Command::new(&options.forbear);
    command.arg("serve").arg("--config").arg(config).arg("--listen").arg(LOOPBACK.to_string());
    command.arg("--data").arg(options.directory.join("data"));
    peer::announced(FORBEAR, "", command, &options.directory)
}

/// The defaults, but for as many places as there are streams.
fn configuration(streams: usize, shape: Shape, origins: &[SocketAddr]) -> String {
    let mut text = format!("connections_max: {}\nproviders:\n", streams + CONNECTIONS_SPARE);
    for (n, origin) in origins.iter().enumerate() {
        let _ = write!(
            text,
            "  {}:\n    base_url: \"http://{origin}\"\n    http2_prior_knowledge: {}\n    \
             scope: {{max_concurrent_requests: {STREAMS_PER_PROVIDER}}}\n    \
             routes:\n      - {{match: \"POST {PATH}\", class: inference}}\n",
            provider(n),
            shape.providers == Wire::Http2,
        );
    }
    text
}

fn provider(number: usize) -> String {
    format!("bench-{number}")
}
