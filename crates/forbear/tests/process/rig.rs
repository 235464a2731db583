//! A home for a server (data, configuration, log) and the process that lives in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use forbear_lab::provider::{Options, Provider, Scenario};
use forbear_store::Reader;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::agent::{Answer, Call, ask};

const PROGRAM: &str = env!("CARGO_BIN_EXE_forbear");
const GREETING: &str = "forbear listening on http://";
const START_TIME_MAX: Duration = Duration::from_secs(30);
const END_TIME_MAX: Duration = Duration::from_secs(20);
/// Between two looks at something that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where a server's files are. The data may be elsewhere, on a disk of its own.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    pub(crate) data: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) async fn provider(scenario: &str) -> Provider {
    let scenario = Scenario::from_yaml(scenario).expect("the scenario is right");
    Provider::start(scenario, Options::default()).await.expect("a port is free")
}

impl Home {
    /// `$BASE` in the configuration is the provider's address.
    pub(crate) fn new(config: &str, base_url: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let home = Self { data: dir.path().join("data"), dir };
        home.configure(&config.replace("$BASE", base_url));
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("forbear.yaml")
    }

    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.config(), text).expect("the configuration can be written");
    }

    /// `forbear serve` with this home, by `program` or by what wraps it.
    fn serve(&self, program: &str, before: &[&str], more: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(before).args(["serve", "--log", "json", "--config"]).arg(self.config()).arg("--data");
        command.arg(&self.data).args(more);
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        quiet(&mut command);
        command
    }

    pub(crate) async fn start(&self) -> Server {
        self.started(self.serve(PROGRAM, &[], &[])).await
    }

    /// Started by a shell that does `first` to itself and then becomes the server.
    pub(crate) async fn start_after(&self, first: &str) -> Server {
        let script = format!("{first}; exec \"$0\" \"$@\"");
        self.started(self.serve("sh", &["-c", &script, PROGRAM], &[])).await
    }

    async fn started(&self, mut command: Command) -> Server {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log()).expect("a log can be kept");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("the program can be started");
        let stdout = child.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START_TIME_MAX, lines.next_line()).await.expect("it starts in time");
        let line = line.expect("its output can be read").unwrap_or_default();
        let addr = line.strip_prefix(GREETING).and_then(|a| a.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("it greets with its address, not {line:?}; {}", self.said()));
        Server { child, addr, data: self.data.clone(), _out: lines }
    }

    /// A start that is to be refused.
    pub(crate) async fn refused(&self, more: &[&str]) -> Ended {
        ended(self.serve(PROGRAM, &[], more)).await
    }

    /// As [`Home::refused`], by a shell that does `first` to itself before.
    pub(crate) async fn refused_after(&self, first: &str) -> Ended {
        let script = format!("{first}; exec \"$0\" \"$@\"");
        ended(self.serve("sh", &["-c", &script, PROGRAM], &[])).await
    }

    fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// What the servers of this home wrote to their logs.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::open(&self.data).expect("the journal can be read")
    }
}

/// Runs any command of the program to its end.
pub(crate) async fn forbear(arguments: &[&str]) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    quiet(&mut command);
    ended(command).await
}

fn quiet(command: &mut Command) {
    command.env_remove("FORBEAR_TOKEN").env_remove("FORBEAR_SERVER").env_remove("FORBEAR_LOG");
    command.stdin(Stdio::null()).kill_on_drop(true);
}

async fn ended(mut command: Command) -> Ended {
    let output = timeout(END_TIME_MAX, command.output()).await.expect("it ends in time");
    let output = output.expect("the program can be started");
    let text = |bytes| String::from_utf8(bytes).expect("it writes UTF-8");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A server that runs. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) addr: SocketAddr,
    data: PathBuf,
    /// Held open, so that the server can always write.
    _out: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    pub(crate) async fn ask(&self, call: &Call) -> Answer {
        ask(self.addr, call).await.expect("it answers")
    }

    pub(crate) fn token(&self) -> String {
        let token = std::fs::read_to_string(self.data.join("control.token")).expect("the token can be read");
        token.trim().to_owned()
    }

    pub(crate) async fn control(&self, target: &str) -> serde_json::Value {
        let call = Call::get(target).with("authorization", format!("Bearer {}", self.token()));
        let answer = self.ask(&call).await;
        assert_eq!(answer.status, 200, "{target}: {answer:?}");
        answer.json()
    }

    /// Why it is not ready, if it is not.
    pub(crate) async fn not_ready(&self) -> Option<String> {
        let answer = self.ask(&Call::get("/-/ready")).await;
        let said = answer.json();
        assert_eq!(answer.status == 200, said["ready"] == true, "{answer:?}");
        (answer.status != 200).then(|| said["why"].as_str().unwrap_or_default().to_owned())
    }

    /// A signal by its name, to this process alone.
    pub(crate) async fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status().await;
        assert!(sent.expect("kill can be run").success());
    }

    /// As a power cut: SIGKILL, and gone when this returns.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    /// Waits for an end that was asked for before; gives its exit code.
    pub(crate) async fn end(&mut self, within: Duration) -> Option<i32> {
        let ended = timeout(within, self.child.wait()).await.expect("it ends in time");
        ended.expect("it can be waited for").code()
    }

    pub(crate) async fn stop(mut self) {
        self.signal("TERM").await;
        assert_eq!(self.end(END_TIME_MAX).await, Some(0));
    }

    /// Memory in use, in KiB, as the kernel counts it.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).expect("the kernel says it");
        line.trim().trim_end_matches("kB").trim().parse().expect("it is a number")
    }
}

/// Looks again and again until it holds; says `what` where it does not in time.
pub(crate) async fn until(what: &str, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            look.tick().await;
            if holds().await {
                return;
            }
        }
    };
    timeout(within, looking).await.unwrap_or_else(|_| panic!("not within {within:?}: {what}"));
}
