//! How a command ends badly: an exit code for scripts, what happened, and apart from it what to do.

use std::process::ExitCode;

use forbear_api::ClientError;
use forbear_api::problem::Kind;
use forbear_lab::drill::DrillError;
use forbear_lab::provider::RunError;
use forbear_server::config::ConfigErrors;
use forbear_server::serve::StartError;
use serde_json::{Value, json};

use crate::output::{COLUMNS, Output, shown, wrapped};

/// The exit codes, as the help lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    NotFound = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that could not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    code: Option<String>,
    happened: String,
    to_do: Option<String>,
    /// Faults of a configuration, with their places.
    faults: Option<Box<ConfigErrors>>,
}

impl Failure {
    fn new(exit: Exit, happened: impl Into<String>) -> Self {
        Self { exit, code: None, happened: happened.into(), to_do: None, faults: None }
    }

    fn faults(errors: ConfigErrors) -> Self {
        let n = errors.faults.iter().filter(|f| !f.warning).count();
        let faults = if n == 1 { "1 fault".to_owned() } else { format!("{n} faults") };
        let happened = format!("the configuration has {faults}");
        Self { faults: Some(Box::new(errors)), ..Self::new(Exit::Usage, happened) }
    }

    /// Says it on stderr.
    pub(crate) fn report(self, output: Output) -> Exit {
        if output.json() {
            output.error_line(&self.json().to_string());
        } else {
            self.report_in_words(output);
        }
        self.exit
    }

    fn report_in_words(&self, output: Output) {
        if let Some(faults) = &self.faults {
            output.error_line(faults.render(output.error_is_terminal()).trim_end());
        }
        let code = self.code.as_ref().map(|c| format!(" {c}")).unwrap_or_default();
        // It may name what somebody else wrote.
        let happened: Vec<String> = self.happened.lines().map(shown).collect();
        let text = wrapped(&format!("error{code}: {}", happened.join("\n")), "  ");
        output.error_line(&format!("{}error{}{}", output.bad(), output.plain(), text.trim_start_matches("error")));
        if let Some(to_do) = &self.to_do {
            output.error_line(&wrapped(&format!("  {to_do}"), "  "));
        }
    }

    fn json(&self) -> Value {
        let mut error = json!({"exit": self.exit as u8, "message": self.happened});
        if let Some(code) = &self.code {
            error["code"] = json!(code);
        }
        if let Some(to_do) = &self.to_do {
            error["what_to_do"] = json!(to_do);
        }
        if let Some(faults) = &self.faults {
            error["faults"] = serde_json::to_value(faults).unwrap_or_default();
        }
        json!({"error": error})
    }
}

/// What was asked cannot be, and what could be asked instead.
#[derive(Debug, thiserror::Error)]
#[error("{happened}")]
pub(crate) struct NotSo {
    pub(crate) exit: Exit,
    pub(crate) happened: String,
    pub(crate) to_do: String,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let error = match error.downcast::<ClientError>() {
            Ok(e) => return client(&e),
            Err(error) => error,
        };
        let error = match error.downcast::<StartError>() {
            Ok(StartError::Config(faults)) => return Self::faults(faults),
            Ok(e) => return start(&e),
            Err(error) => error,
        };
        let error = match error.downcast::<ConfigErrors>() {
            Ok(faults) => return Self::faults(faults),
            Err(error) => error,
        };
        let error = match error.downcast::<NotSo>() {
            Ok(NotSo { exit, happened, to_do }) => return Self { to_do: Some(to_do), ..Self::new(exit, happened) },
            Err(error) => error,
        };
        let usage = error.downcast_ref::<RunError>().is_some_and(|e| !matches!(e, RunError::Output(_)));
        let drill = error.downcast_ref::<DrillError>().is_some();
        let exit = if usage { Exit::Usage } else { Exit::Failed };
        let failure = Self::new(exit, told(&error));
        let to_do = "run `forbear serve` with the same configuration to see whether it starts at all";
        if drill { Self { to_do: Some(to_do.to_owned()), ..failure } } else { failure }
    }
}

/// What happened, with its causes; some errors say theirs themselves.
fn told(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).map(ToString::to_string);
    causes.fold(error.to_string(), |said, cause| if said.ends_with(&cause) { said } else { format!("{said}: {cause}") })
}

fn client(error: &ClientError) -> Failure {
    let exit = match error {
        ClientError::NotFound { .. } => Exit::NotFound,
        ClientError::Refused { problem } if problem.kind == Kind::BadQuery => Exit::Usage,
        ClientError::BadAddress { .. } | ClientError::TokenFile { .. } | ClientError::Token { .. } => Exit::Usage,
        ClientError::NotRunning { .. } | ClientError::Silent { .. } | ClientError::Broken { .. } => Exit::Unreachable,
        ClientError::Stopped { .. } | ClientError::NotForbear { .. } => Exit::Unreachable,
        ClientError::TooLong { .. } | ClientError::Refused { .. } => Exit::Failed,
    };
    let (code, to_do) = (Some(error.code().to_owned()), Some(error.what_to_do().to_owned()));
    Failure { code, to_do, ..Failure::new(exit, error.to_string()) }
}

/// What keeps a server from starting is in its configuration or its surroundings: a matter of usage.
fn start(error: &StartError) -> Failure {
    let text = error.to_string();
    // Errors of the server carry their code in front and what to do behind.
    let (code, text) = match text.split_once(": ") {
        Some((code, rest)) if code.len() == 6 && code.starts_with("FB") => (Some(code.to_owned()), rest.to_owned()),
        _ => (None, text),
    };
    let (happened, to_do) = match (error, text.rsplit_once("; ")) {
        (StartError::Store(e), _) => (text, Some(e.what_to_do().to_owned())),
        (_, Some((happened, to_do))) => (happened.to_owned(), Some(to_do.to_owned())),
        (_, None) => (text, None),
    };
    let code = if let StartError::Store(e) = error { Some(e.code().to_owned()) } else { code };
    Failure { code, to_do, ..Failure::new(Exit::Usage, happened) }
}

/// What was found out cannot be said.
pub(crate) fn unwritten(e: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the output cannot be written: {e}"))
}

/// Wrong usage, help and version, as clap says them; as JSON where that was asked for.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|a| a == "--json");
    if error.use_stderr() && json {
        let text = error.to_string();
        let text = text.trim_start_matches("error: ").trim();
        let failure = Failure::new(Exit::Usage, text.lines().next().unwrap_or_default());
        return failure.report(Output::new(true)).into();
    }
    // clap breaks no list of values; where one is too long the words matter more than their colours.
    let text = error.render().to_string();
    if error.use_stderr() && text.lines().any(|line| line.chars().count() > usize::from(COLUMNS)) {
        let lines: Vec<String> = text.trim_end().lines().map(|line| wrapped(&shown(line), "    ")).collect();
        Output::new(false).error_line(&lines.join("\n"));
    } else {
        // Nothing is left to say where even this cannot be printed.
        let _ = error.print();
    }
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn scripts_can_tell_what_went_wrong() {
        let server = "http://127.0.0.1:1".to_owned();
        let not_running = ClientError::NotRunning { server, why: "refused".into() };
        let not_found = ClientError::NotFound { detail: "no action".into() };
        let addr = "127.0.0.1:8429".parse().unwrap();
        let in_use = StartError::Listen { addr, source: io::Error::from(io::ErrorKind::AddrInUse) };
        for (error, exit, code, to_do) in [
            (anyhow::Error::new(not_running), Exit::Unreachable, "FB5002", "forbear serve"),
            (anyhow::Error::new(not_found), Exit::NotFound, "FB5007", "forbear actions"),
            (anyhow::Error::new(in_use), Exit::Usage, "FB3101", "--listen"),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.exit, failure.code.as_deref()), (exit, Some(code)));
            let json = failure.json();
            assert_eq!(json["error"]["code"], code);
            assert!(json["error"]["what_to_do"].as_str().unwrap_or_default().contains(to_do), "{json}");
        }
        assert_eq!(Failure::from(anyhow::anyhow!("else")).exit, Exit::Failed);
    }
}
