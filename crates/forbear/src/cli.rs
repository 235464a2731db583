//! What can be typed. The texts here are the help, the man page and the completions.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed, or what was asked does not hold
  2  wrong usage or configuration
  3  no server could be reached
  4  what was named does not exist";

const EXPLAIN_EXAMPLE: &str = "\
For example:
  curl -si https://api.openai.com/v1/models |
    forbear explain-response --provider openai";

/// The one owner of retries between AI agents and the HTTP APIs they call.
#[derive(Debug, Parser)]
#[command(name = "forbear", version, after_help = EXIT_CODES, max_term_width = 80)]
pub(crate) struct Arguments {
    /// One JSON document (or one a line) to stdout; errors as JSON to stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server; no configuration is needed
    Serve(Serve),
    /// Watch three agents share one quota, against a fake provider
    Demo(Demo),
    /// Prove on this machine that no promise is broken, kill included
    Drill(Drill),
    /// Try your own agents on a fake provider, or the core on simulated faults
    #[command(subcommand)]
    Lab(Lab),
    /// The configuration: what is the default, is mine right, what may be said
    #[command(subcommand)]
    Config(Config),
    /// The providers that are known: where each is, and what its contract says
    Providers(OfConfiguration),
    /// One provider's contract, with its sources
    Provider {
        /// As `forbear providers` lists it
        name: String,
        #[command(flatten)]
        of: OfConfiguration,
    },
    /// How a provider's answer would be read, and why; the response on stdin
    #[command(after_help = EXPLAIN_EXAMPLE)]
    ExplainResponse(Explain),
    /// What is known of each quota: when it opens, what is left, who waits
    Scopes(Server),
    /// What waits or is on the wire right now, oldest first
    Live(Live),
    /// What failed again and again and is not sent for a while
    Circuits(Server),
    /// What was asked, newest first
    Actions(Actions),
    /// One action's whole story
    Action {
        /// As the answer's `Forbear-Action` field names it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(subcommand)]
        what: Option<Act>,
        #[command(flatten)]
        server: Server,
    },
    /// What was done, or would be where calls are only watched, summed up
    Report(Report),
    /// The routes that were called, and rules for those that have none
    #[command(subcommand)]
    Routes(Routes),
    /// Tasks: what an agent was asked to achieve
    #[command(subcommand)]
    Task(Whole),
    /// Runs: one execution of a task
    #[command(subcommand)]
    Run(Whole),
    /// A completion script for a shell, to stdout
    Completions { shell: clap_complete::Shell },
    /// The man page, to stdout
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// A configuration file; without one the defaults hold
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where agents connect
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// Where the journal and the keys are
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How the log on stderr is written; FORBEAR_LOG=debug says more
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<Log>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Log {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Shorter waits
    #[arg(long)]
    pub(crate) fast: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Drill {
    /// Drill this configuration's policy instead of the default one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Run the fake provider alone; its arrivals go to stdout as NDJSON
    Provider(LabProvider),
    /// Drive the core through simulated faults, one schedule a seed
    Sim(Sim),
}

#[derive(Debug, Args)]
pub(crate) struct LabProvider {
    /// What it answers and how it misbehaves; see docs/lab-provider.md
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: PathBuf,
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Speak TLS with a certificate made for the occasion
    #[arg(long)]
    pub(crate) tls: bool,
    /// With --tls: where to write the certificate that clients must trust
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) ca_pem: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// How many schedules
    #[arg(long, default_value_t = 1_000)]
    pub(crate) seeds: u64,
    /// The first one; with `--seeds 1` that one alone
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct OfConfiguration {
    /// A configuration file; without one the defaults hold
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Whose answer it is, as `forbear providers` lists it
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: String,
    /// The class of the call; without one its route's or method's
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// The method of the call
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// The path of the call at the provider, for what its route says
    #[arg(long)]
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfConfiguration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Every key with its default and why
    Default,
    /// Whether a file is right; names every fault with its line
    Check {
        /// The file
        file: PathBuf,
    },
    /// The JSON Schema of the file, for editors
    Schema,
    /// Have the server read its file again; no call is dropped, and a file with faults changes nothing
    Reload(Server),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// Where the server is, if its data directory does not say so (or set FORBEAR_SERVER)
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Its data directory, where its address and token are (or set FORBEAR_TOKEN)
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Its configuration file, where that names the data directory
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Actions {
    /// Only of this task
    #[arg(long)]
    pub(crate) task: Option<String>,
    /// Only of this run
    #[arg(long)]
    pub(crate) run: Option<String>,
    /// Only with this outcome
    #[arg(long, value_parser = forbear_core::event::Outcome::ALL.map(forbear_core::event::Outcome::as_str))]
    pub(crate) outcome: Option<String>,
    /// Only those without a terminal outcome
    #[arg(long)]
    pub(crate) open: bool,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = forbear_api::control::PAGE_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Only those that began before this action
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// From when on: RFC 3339, or before the newest event on record (90m, 7d)
    #[arg(long, value_name = "WHEN", default_value = "24h")]
    pub(crate) since: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Routes {
    /// Rules for routes that have none, as lines of a configuration to read and paste
    Suggest(Suggest),
}

#[derive(Debug, Args)]
pub(crate) struct Suggest {
    /// Only of this provider
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// From when on: RFC 3339, or before the newest event on record (90m, 7d)
    #[arg(long, value_name = "WHEN", default_value = "24h")]
    pub(crate) since: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Live {
    /// Only of this task
    #[arg(long)]
    pub(crate) task: Option<String>,
    /// Only of this account, as `forbear scopes` names it
    #[arg(long)]
    pub(crate) scope: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// What may be done to one action.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Act {
    /// End it if it waits; a read on the wire is broken off, a write followed to its end
    Cancel,
}

/// What may be done to a task or a run.
#[derive(Debug, Subcommand)]
pub(crate) enum Whole {
    /// End its waiting calls for good and refuse new ones; writes on the wire are followed to their end
    Cancel {
        /// As the agent names it in `Forbear-Task` or `Forbear-Run`
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        server: Server,
    },
    /// Take new calls of it again; what was cancelled stays so
    Reopen {
        /// As it was cancelled
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
        #[command(flatten)]
        server: Server,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_help_fits() {
        Arguments::command().debug_assert();
        let mut command = Arguments::command();
        command.build();
        fits(&mut command);
    }

    fn fits(command: &mut clap::Command) {
        let help = command.render_long_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
        }
        for sub in command.get_subcommands_mut() {
            fits(sub);
        }
    }
}
