//! The program under test: run once, or as a server that is ended with the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A run that ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("stdout is not JSON ({e}): {}", self.out))
    }

    pub(crate) fn error(&self) -> Value {
        let json: Value =
            serde_json::from_str(&self.err).unwrap_or_else(|e| panic!("stderr is not JSON ({e}): {}", self.err));
        json["error"].clone()
    }
}

pub(crate) fn forbear(arguments: &[&str]) -> Ran {
    forbear_given("", arguments)
}

/// With a variable of the environment.
pub(crate) fn forbear_with(name: &str, value: &str, arguments: &[&str]) -> Ran {
    let mut command = program();
    command.env(name, value);
    ran(command, "", arguments)
}

/// With something to read.
pub(crate) fn forbear_given(text: &str, arguments: &[&str]) -> Ran {
    ran(program(), text, arguments)
}

fn ran(mut command: Command, text: &str, arguments: &[&str]) -> Ran {
    let (pipe, mut writer) = std::io::pipe().unwrap();
    let child = command.args(arguments).stdin(pipe).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Who reads nothing closes its end.
    let _ = writer.write_all(text.as_bytes());
    drop(writer);
    let done = child.wait_with_output().unwrap();
    Ran {
        code: done.status.code().unwrap_or(-1),
        out: String::from_utf8(done.stdout).unwrap(),
        err: String::from_utf8(done.stderr).unwrap(),
    }
}

/// Nothing of the one who runs the tests may reach the program.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forbear"));
    for name in ["FORBEAR_SERVER", "FORBEAR_TOKEN", "FORBEAR_LOG"] {
        command.env_remove(name);
    }
    command
}

/// A server on a free port. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// The rest of what it prints.
    pub(crate) out: BufReader<ChildStdout>,
    pub(crate) data: PathBuf,
}

impl Server {
    pub(crate) fn start(dir: &Path, configuration: &str) -> Self {
        let (data, file) = (dir.join("data"), dir.join("forbear.yaml"));
        std::fs::write(&file, configuration).unwrap();
        let log = std::fs::File::create(dir.join("log")).unwrap();
        let mut child = program()
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--config"])
            .arg(&file)
            .arg("--data")
            .arg(&data)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("forbear listening on ").map(str::to_owned);
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        let address = address.unwrap_or_else(|| panic!("no greeting but `{line}`; {}", log()));
        Self { child, address, out, data }
    }

    /// Runs a command against this server.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Ran {
        let at = ["--server", &self.address, "--data", self.data.to_str().unwrap()];
        forbear(&[arguments, &at].concat())
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success());
    }

    /// What it printed after its first line, once it has ended, and its exit code.
    pub(crate) fn ended(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
