//! The peers: how each is started, where it listens, and what CPU time it has used.
//!
//! A peer that is not there is left out with the reason. A process started here is ended here, whatever happens.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::origin::KEYED_PATH;
use super::{BenchError, LOOPBACK, Options};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// A peer that has not ended by itself in this time is ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines that a peer may print before the one with its address.
const LINES_BEFORE_ADDRESS_MAX: usize = 50;
/// Linux counts process times in hundredths of a second for every program, whatever its own tick is.
const TICK_NS: u64 = 10_000_000;

pub const HYPER: &str = "hyper";
pub const DIRECT: &str = "direct";
pub const FORBEAR: &str = "forbear";

#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub address: SocketAddr,
    /// What stands before the origin's own path.
    pub prefix: &'static str,
    process: Option<Process>,
}

/// Memory of a process that is in the machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub resident_bytes: u64,
    /// The most it has been.
    pub peak_bytes: u64,
}

impl Peer {
    /// Nothing for *direct*, and for a process that has ended.
    #[must_use]
    pub fn memory(&self) -> Option<Memory> {
        memory_in(&fs::read_to_string(format!("/proc/{}/status", self.process.as_ref()?.0.id())).ok()?)
    }

    /// CPU time of the peer's processes so far; nothing for *direct*, which has none of its own.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        cpu_ticks(self.process.as_ref()?.0.id()).map(|ticks| ticks * TICK_NS)
    }
}

/// A child that does not outlive the bench.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    /// Asked first: a build that counts what runs writes its counts at its end.
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every peer that is there, and why the others are not.
pub(super) fn start_all(options: &Options, origin: SocketAddr) -> Result<(Vec<Peer>, Vec<String>), BenchError> {
    let directory = &options.directory;
    empty(directory)?;
    let mut left_out = Vec::new();
    let mut peers = vec![Peer { name: DIRECT, address: origin, prefix: "", process: None }];

    let mut proxy = Command::new(&options.own);
    proxy.arg("proxy").arg(origin.to_string());
    peers.push(announced(HYPER, "", proxy, directory)?);

    match start_nginx(directory, origin)? {
        Some(peer) => peers.push(peer),
        None => left_out.push("nginx is not installed".into()),
    }
    if offers_serve(&options.forbear) {
        peers.push(announced(FORBEAR, "/bench", forbear(options, origin)?, directory)?);
    } else {
        left_out.push("forbear: the binary has no `serve` yet".into());
    }
    Ok((peers, left_out))
}

/// Makes the directory, with nothing in it.
pub(super) fn empty(directory: &Path) -> Result<(), BenchError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(directory),
    }
    .map_err(BenchError::io("the bench's directory"))
}

fn offers_serve(forbear: &Path) -> bool {
    let help = Command::new(forbear).args(["serve", "--help"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    help.is_ok_and(|help| help.status.success() && String::from_utf8_lossy(&help.stdout).contains("--listen"))
}

fn forbear(options: &Options, origin: SocketAddr) -> Result<Command, BenchError> {
    let config = options.directory.join("forbear.yaml");
    let text = format!(
        "providers:\n  bench:\n    base_url: \"http://{origin}\"\n    \
         scope: {{max_concurrent_requests: 1000, max_delayed_requests: 10000}}\n    \
         routes:\n      - {{match: \"POST {KEYED_PATH}\", class: idempotent_write, idempotency_header: Idempotency-Key}}\n"
    );
    fs::write(&config, text).map_err(BenchError::io("the configuration of forbear"))?;
    let mut command = Command::new(&options.forbear);
    command.arg("serve").arg("--config").arg(config).arg("--listen").arg(LOOPBACK.to_string());
    command.arg("--data").arg(options.directory.join("data"));
    Ok(command)
}

/// Starts a process that prints where it listens. What it logs goes to a file, as it would in service.
pub(super) fn announced(
    name: &'static str,
    prefix: &'static str,
    mut command: Command,
    directory: &Path,
) -> Result<Peer, BenchError> {
    let log = fs::File::create(directory.join(format!("{name}.log"))).map_err(BenchError::io("a log file"))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut process = Process(command.spawn().map_err(BenchError::io(name))?);
    let (send, receive) = mpsc::channel();
    if let Some(stdout) = process.0.stdout.take() {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let _ = send.send(lines.by_ref().take(LINES_BEFORE_ADDRESS_MAX).find_map(|line| address_in(&line)));
            // What comes after is read on, so that the peer never waits for a full pipe.
            lines.for_each(drop);
        });
    }
    let silent = BenchError::Silent { peer: name, seconds: START_TIMEOUT.as_secs() };
    let address = receive.recv_timeout(START_TIMEOUT).ok().flatten().ok_or(silent)?;
    Ok(Peer { name, address, prefix, process: Some(process) })
}

/// The first `http://host:port` of a line.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split("http://").skip(1).find_map(|rest| {
        let end =
            rest.find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']'))).unwrap_or(rest.len());
        rest[..end].trim_end_matches(['.', ':']).parse().ok()
    })
}

fn start_nginx(directory: &Path, origin: SocketAddr) -> Result<Option<Peer>, BenchError> {
    let version =
        Command::new("nginx").arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let address = free_address().map_err(BenchError::io("a port for nginx"))?;
    let config = directory.join("nginx.conf");
    fs::write(&config, nginx_config(address, origin)).map_err(BenchError::io("the configuration of nginx"))?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).arg("-c").arg(&config).stdin(Stdio::null());
    let process = Process(command.spawn().map_err(BenchError::io("nginx"))?);
    let deadline = Instant::now() + START_TIMEOUT;
    while std::net::TcpStream::connect(address).is_err() {
        if Instant::now() > deadline {
            return Err(BenchError::Silent { peer: "nginx", seconds: START_TIMEOUT.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Some(Peer { name: "nginx", address, prefix: "", process: Some(process) }))
}

/// nginx cannot be told to take any port and say which.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind(LOOPBACK)?.local_addr()
}

/// One process, so that ending it ends all of nginx and its CPU time is all there is; more workers than one would need
/// a master to watch. On two cores with the load generator beside it, a second worker gains little.
fn nginx_config(address: SocketAddr, origin: SocketAddr) -> String {
    let mut temporary = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        temporary.push_str(&format!("  {kind}_temp_path {kind}_temp;\n"));
    }
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n{temporary}  \
         upstream origin {{ server {origin}; keepalive 512; keepalive_requests 1000000000; }}\n  \
         server {{\n    listen {address};\n    location / {{\n      proxy_pass http://origin;\n      \
         proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    }}\n    \
         location /stream {{\n      proxy_pass http://origin;\n      proxy_http_version 1.1;\n      \
         proxy_set_header Connection \"\";\n      proxy_buffering off;\n    }}\n  }}\n}}\n"
    )
}

fn cpu_ticks(process: u32) -> Option<u64> {
    ticks_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// `utime` and `stime`: fields 14 and 15, counted behind the name, which may hold spaces and brackets.
fn ticks_in(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Linux writes kibibytes and calls them kB.
fn memory_in(status: &str) -> Option<Memory> {
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(Memory { resident_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::{Memory, address_in, cpu_ticks, memory_in, nginx_config, ticks_in};

    #[test]
    fn addresses_in_sentences() {
        for line in [
            "http://127.0.0.1:8429",
            "forbear listens on http://127.0.0.1:8429/ (loopback only)",
            "see http://example.com/x, base URL http://127.0.0.1:8429.",
            "{\"listening\":\"http://127.0.0.1:8429\"}",
        ] {
            assert_eq!(address_in(line), "127.0.0.1:8429".parse().ok(), "{line}");
        }
        assert_eq!(address_in("on http://[::1]:80/"), "[::1]:80".parse().ok());
        assert_eq!(address_in("no address"), None);
    }

    #[test]
    fn process_times_behind_an_awkward_name() {
        let stat = "12 (a ) b) S 1 1 1 0 -1 4194560 100 0 0 0 37 5 0 0 20 0 3 0 100 1 1";
        assert_eq!(ticks_in(stat), Some(42));
        assert!(cpu_ticks(std::process::id()).is_some());
    }

    #[test]
    fn memory_of_a_process() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t   30 kB\nVmRSS:\t   20 kB\nThreads:\t4\n";
        assert_eq!(memory_in(status), Some(Memory { resident_bytes: 20 * 1024, peak_bytes: 30 * 1024 }));
        assert_eq!(memory_in("Name:\tzombie\n"), None);
    }

    #[test]
    fn nginx_keeps_its_connections_to_the_origin() {
        let config = nginx_config("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        assert!(config.contains("listen 127.0.0.1:1;") && config.contains("server 127.0.0.1:2; keepalive"));
        assert_eq!(config.matches('{').count(), config.matches('}').count());
    }
}
