//! The benches' process, and the proxy without logic that one is compared with. `cargo xtask bench` builds and runs it;
//! nobody needs to start it by hand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use forbear_lab::bench::{self, Options, proxy, streams};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: gateway-bench run --forbear BINARY --directory DIR [--quick] [--json] [--only TEXT]
       gateway-bench streams --forbear BINARY --directory DIR [--streams N] [--json]
       gateway-bench proxy ORIGIN   (prints where it listens)";

/// The load generator and the origin share these.
const WORKERS: usize = 2;
const STREAMS: usize = 10_000;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, rest)) if command == "run" => run(rest),
        Some((command, rest)) if command == "streams" => hold_streams(rest),
        Some((command, [origin])) if command == "proxy" => serve_proxy(origin),
        _ => Err(USAGE.into()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("gateway-bench: {error}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (mut forbear, mut directory, mut quick, mut json, mut only) = (None, None, false, false, String::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--json" => json = true,
            "--only" => only.clone_from(arguments.next().ok_or(USAGE)?),
            "--forbear" => forbear = arguments.next().map(PathBuf::from),
            "--directory" => directory = arguments.next().map(PathBuf::from),
            _ => return Err(USAGE.into()),
        }
    }
    let (forbear, directory) = forbear.zip(directory).ok_or(USAGE)?;
    let options = Options { quick, only, forbear, own: std::env::current_exe()?, directory };
    let report = runtime()?.block_on(bench::run(&options))?;
    if json {
        println!("{}", report.to_json());
    } else {
        println!("{report}");
    }
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hold_streams(arguments: &[String]) -> Result<ExitCode, Failure> {
    let (mut forbear, mut directory, mut json, mut streams) = (None, None, false, STREAMS);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--streams" => streams = arguments.next().ok_or(USAGE)?.parse()?,
            "--forbear" => forbear = arguments.next().map(PathBuf::from),
            "--directory" => directory = arguments.next().map(PathBuf::from),
            _ => return Err(USAGE.into()),
        }
    }
    let (forbear, directory) = forbear.zip(directory).ok_or(USAGE)?;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let report = runtime()?.block_on(streams::run(&streams::Options { streams, forbear, directory }))?;
    if json {
        println!("{}", report.to_json());
    } else {
        println!("{report}");
    }
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()
}

fn serve_proxy(origin: &str) -> Result<ExitCode, Failure> {
    let origin: SocketAddr = origin.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}", listener.local_addr()?);
        let mut asked_to_end = signal(SignalKind::terminate())?;
        tokio::select! {
            () = proxy::serve(listener, origin) => {}
            _ = asked_to_end.recv() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}
