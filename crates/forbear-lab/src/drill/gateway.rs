//! A real server as a child process: started, asked, and killed by its id.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::agent::{Call, ask};
use super::setup::DrillError;

/// The first line that `serve` prints, up to the address.
const GREETING: &str = "forbear listening on http://";
/// From the start to the greeting.
const START_TIME_MAX: Duration = Duration::from_secs(20);
const CONTROL_TIME_MAX: Duration = Duration::from_secs(5);
/// Of the first line, and of what a failed start wrote.
const OUTPUT_BYTES_MAX: u64 = 4_096;

/// How a server is started.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    pub program: &'a Path,
    /// Its data and its configuration are kept here, and found again at the next start.
    pub dir: &'a Path,
    pub configuration: &'a Value,
}

/// A server that runs. Dropping it kills it.
pub struct Gateway {
    child: Child,
    /// Held open, so that the server can always write.
    _out: BufReader<tokio::io::Take<ChildStdout>>,
    addr: SocketAddr,
    data: PathBuf,
}

impl Gateway {
    /// Starts `program serve` and waits for its greeting.
    ///
    /// # Errors
    /// When it does not greet: with what it wrote.
    pub async fn start(launch: &Launch<'_>) -> Result<Self, DrillError> {
        let data = launch.dir.join("data");
        let file = launch.dir.join("forbear.yaml");
        let log = launch.dir.join("log");
        let begun = std::fs::create_dir_all(&data)
            .and_then(|()| std::fs::write(&file, launch.configuration.to_string()))
            .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&log));
        let log_file = begun.map_err(DrillError::Directory)?;
        let mut child = Command::new(launch.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--config"])
            .arg(&file)
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| DrillError::Server { what: e.to_string() })?;
        let Some(stdout) = child.stdout.take() else {
            return Err(DrillError::Server { what: "its output cannot be read".to_owned() });
        };
        let mut out = BufReader::new(stdout.take(OUTPUT_BYTES_MAX));
        let mut line = String::new();
        let read = tokio::time::timeout(START_TIME_MAX, out.read_line(&mut line)).await;
        let addr = line.trim().strip_prefix(GREETING).and_then(|addr| addr.parse().ok());
        match (read, addr) {
            (Ok(Ok(_)), Some(addr)) => Ok(Self { child, _out: out, addr, data }),
            (Err(_), _) => Err(DrillError::Server { what: format!("it did not start within {START_TIME_MAX:?}") }),
            _ => Err(DrillError::Server { what: format!("{line}{}", said(&log)) }),
        }
    }

    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it as a power cut would: SIGKILL to its process, and waits until it is gone.
    pub async fn kill(mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill().await;
    }

    /// One call to its control API.
    pub(super) async fn control(&self, method: Method, target: &str) -> Result<Value, String> {
        let token = std::fs::read_to_string(self.data.join("control.token")).map_err(|e| format!("the token: {e}"))?;
        let call = Call { method, ..Call::get(target) }.with("authorization", format!("Bearer {}", token.trim()));
        let answer = ask(self.addr, &call, CONTROL_TIME_MAX).await?;
        if answer.status == 200 { Ok(answer.json()) } else { Err(format!("{target} answered {}", answer.status)) }
    }

    /// Waits until a provider's scope is closed, so that what is asked next meets a boundary that was surely read.
    pub(super) async fn wait_until_closed(&self, provider: &str, within: Duration) -> Result<(), String> {
        self.wait_for_scope(provider, within, |row| row["next_allowed_at"].is_string()).await
    }

    /// Waits until so many actions wait in a provider's scope.
    pub async fn wait_until_delayed(&self, provider: &str, n: u64, within: Duration) -> Result<(), String> {
        self.wait_for_scope(provider, within, |row| row["delayed"].as_u64() >= Some(n)).await
    }

    async fn wait_for_scope(
        &self,
        provider: &str,
        within: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Result<(), String> {
        let looking = async {
            let mut look = tokio::time::interval(Duration::from_millis(10));
            loop {
                look.tick().await;
                let scopes = self.control(Method::GET, "/-/v1/scopes").await?;
                let rows = scopes["items"].as_array().map(Vec::as_slice).unwrap_or_default();
                if rows.iter().any(|row| row["provider"] == provider && is(row)) {
                    return Ok(());
                }
            }
        };
        let late = || Err(format!("the register did not show it within {within:?}"));
        tokio::time::timeout(within, looking).await.unwrap_or_else(|_| late())
    }
}

/// What a server that did not start wrote, cut.
fn said(log: &Path) -> String {
    let mut text = Vec::new();
    let read = std::fs::File::open(log).map(|f| std::io::Read::take(f, OUTPUT_BYTES_MAX));
    // Nothing to read means nothing to show.
    let _ = read.and_then(|mut f| std::io::Read::read_to_end(&mut f, &mut text));
    String::from_utf8_lossy(&text).into_owned()
}
