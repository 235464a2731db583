//! What every step needs: where things are, how a tool is started, and how one that is missing is brought in.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::count::{Counts, counts_in};

pub(super) struct Workshop {
    pub(super) root: PathBuf,
    pub(super) target: PathBuf,
    pub(super) long: bool,
    /// Steps that were asked for by name.
    named: Vec<String>,
    /// Both of ours: no colour where nobody looks.
    terminal: bool,
}

/// Tells tests that they may take their time.
const LONG_VARIABLE: &str = "FORBEAR_TEST_LONG";

impl Workshop {
    pub(super) fn new(root: &Path, long: bool, named: &[String]) -> Self {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
        let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self { root: root.to_path_buf(), target, long, named: named.to_vec(), terminal }
    }

    pub(super) fn is_named(&self, step: &str) -> bool {
        self.named.iter().any(|named| named == step)
    }

    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        if self.long {
            command.env(LONG_VARIABLE, "1");
        }
        if !self.terminal {
            command.env("CARGO_TERM_COLOR", "never").env("NO_COLOR", "1");
        }
        command
    }

    pub(super) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments);
        command
    }

    /// Runs a check that counts as one.
    pub(super) fn check(&self, mut command: Command) -> Result<Counts> {
        let status = command.status().with_context(|| format!("cannot start {}", named(&command)))?;
        Ok(if status.success() { Counts::PASSED } else { Counts::FAILED })
    }

    /// Runs tests, shows what they print as it comes, and counts them.
    pub(super) fn counted(&self, mut command: Command) -> Result<Counts> {
        command.env("CARGO_TERM_COLOR", "never").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", named(&command)))?;
        let (stdout, stderr) = (child.stdout.take().context("no output")?, child.stderr.take().context("no output")?);
        let counts = std::thread::scope(|scope| {
            let aside = scope.spawn(|| relay(stderr, std::io::stderr()));
            let counts = relay(stdout, std::io::stdout());
            counts.plus(aside.join().unwrap_or_default())
        });
        let status = child.wait()?;
        Ok(counts.of_run(status.success()))
    }

    pub(super) fn succeeds(&self, mut command: Command) -> bool {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// A part of the toolchain that a minimal installation leaves out.
    pub(super) fn component(&self, name: &str, subcommand: &str) -> Result<()> {
        if self.succeeds(self.cargo(&[subcommand, "--version"])) {
            return Ok(());
        }
        println!("installing: rustup component {name}");
        let mut rustup = self.command("rustup");
        let status = rustup.args(["component", "add", name]).status().context("cannot start rustup")?;
        if !status.success() {
            bail!("{name} is missing and rustup could not add it");
        }
        Ok(())
    }

    /// System packages, where this is Debian and we may; else says what to install.
    pub(super) fn system_packages(&self, packages: &[&str]) -> Result<()> {
        let wanted = packages.join(" ");
        let mut id = self.command("id");
        let id = id.arg("-u").output().context("cannot start id")?;
        if id.stdout.trim_ascii() != b"0" || !self.succeeds(with(self.command("apt-get"), &["--version"])) {
            bail!("please install first: {wanted}");
        }
        println!("installing: system packages {wanted}");
        let mut update = with(self.command("apt-get"), &["update"]);
        let mut install = with(self.command("apt-get"), &["install", "--yes", "--no-install-recommends"]);
        install.args(packages).env("DEBIAN_FRONTEND", "noninteractive");
        if !(update.status()?.success() && install.status()?.success()) {
            bail!("could not install {wanted}");
        }
        Ok(())
    }

    /// The binary, built as its users' tests need it.
    pub(super) fn forbear(&self) -> Result<PathBuf> {
        let mut build = self.cargo(&["build", "--quiet", "--package", "forbear"]);
        if !build.status().context("cannot start cargo")?.success() {
            bail!("the binary does not build");
        }
        Ok(self.target.join("debug").join("forbear"))
    }

    /// Why a command of the binary cannot be used, or `None` where its help names the option.
    pub(super) fn lacks(&self, command: &[&str], option: &str) -> Result<Option<String>> {
        let help = with(self.command(self.forbear()?), command).arg("--help").output()?;
        let offers = help.status.success() && String::from_utf8_lossy(&help.stdout).contains(option);
        Ok((!offers).then(|| format!("`forbear {}` is not there yet", command.join(" "))))
    }
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

fn named(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Copies line by line, and counts the tests of the summaries that pass.
fn relay(from: impl Read, mut to: impl Write) -> Counts {
    let mut counts = Counts::default();
    let mut line = Vec::new();
    let mut from = BufReader::new(from);
    while from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A closed terminal must not stop the tests.
        let _ = to.write_all(&line);
        counts = counts_in(&String::from_utf8_lossy(&line)).map_or(counts, |more| counts.plus(more));
        line.clear();
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::count::Counts;
    use super::relay;

    #[test]
    fn output_passes_unchanged_and_is_counted() {
        let text = "a\n\u{fffd}test result: no\ntest result: ok. 2 passed; 0 failed;\ntest result: FAILED. 1 passed; 1 failed;";
        let mut shown = Vec::new();
        assert_eq!(relay(text.as_bytes(), &mut shown), Counts { passed: 3, failed: 1 });
        assert_eq!(shown, text.as_bytes());
    }
}
