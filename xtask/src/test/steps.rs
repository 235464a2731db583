//! The steps of the test command, as a list: what each is called, whether it can run yet, and how.

use anyhow::Result;

use super::clients;
use super::count::Counts;
use super::instructions;
use super::workshop::Workshop;

pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Why there is nothing to run yet; `None` where there is.
    pub(super) absent: fn(&Workshop) -> Result<Option<String>>,
    pub(super) run: fn(&Workshop) -> Result<Counts>,
}

/// Cheap ones first.
pub(super) const STEPS: &[Step] = &[
    Step { name: "format", what: "cargo fmt", absent: never, run: format },
    Step { name: "tidy", what: "our own checks of the sources", absent: never, run: tidy },
    Step { name: "lints", what: "clippy over everything, warnings refused", absent: never, run: lints },
    Step { name: "tests", what: "unit and integration tests of every crate", absent: never, run: tests },
    Step { name: "docs", what: "examples in the documentation", absent: never, run: doc_tests },
    Step {
        name: "simulation",
        what: "simulated schedules against every invariant",
        absent: no_simulation,
        run: simulation,
    },
    Step {
        name: "instructions",
        what: "what a call costs, counted by valgrind",
        absent: instructions::absent,
        run: instructions::run,
    },
    Step {
        name: "clients",
        what: "real clients and the README's commands",
        absent: clients::absent,
        run: clients::run,
    },
    Step {
        name: "litellm",
        what: "LiteLLM's proxy before and behind Forbear",
        absent: clients::litellm_absent,
        run: clients::litellm,
    },
];

/// Schedules of one ordinary run, and of a long one.
const SEEDS: u64 = 100_000;
const SEEDS_LONG: u64 = 1_000_000;

fn never(_: &Workshop) -> Result<Option<String>> {
    Ok(None)
}

fn format(workshop: &Workshop) -> Result<Counts> {
    workshop.component("rustfmt", "fmt")?;
    workshop.check(workshop.cargo(&["fmt", "--all", "--check"]))
}

fn lints(workshop: &Workshop) -> Result<Counts> {
    workshop.component("clippy", "clippy")?;
    workshop.check(workshop.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn tidy(workshop: &Workshop) -> Result<Counts> {
    let code = crate::tidy::run(&workshop.root)?;
    Ok(if code == std::process::ExitCode::SUCCESS { Counts::PASSED } else { Counts::FAILED })
}

/// With nextest where it is installed, which runs the same tests sooner.
fn tests(workshop: &Workshop) -> Result<Counts> {
    let nextest = workshop.succeeds(workshop.cargo(&["nextest", "--version"]));
    workshop.counted(if nextest {
        let profile = if workshop.long { "long" } else { "default" };
        let mut command = workshop.cargo(&["nextest", "run", "--profile", profile, "--workspace", "--all-targets"]);
        command.args(["--no-fail-fast", "--no-tests", "pass"]);
        command
    } else {
        workshop.cargo(&["test", "--workspace", "--all-targets", "--no-fail-fast"])
    })
}

fn doc_tests(workshop: &Workshop) -> Result<Counts> {
    workshop.counted(workshop.cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]))
}

fn no_simulation(workshop: &Workshop) -> Result<Option<String>> {
    workshop.lacks(&["lab", "sim"], "--seeds")
}

fn simulation(workshop: &Workshop) -> Result<Counts> {
    let seeds = if workshop.long { SEEDS_LONG } else { SEEDS };
    let profile: &[&str] = if workshop.long { &["--release"] } else { &[] };
    let seeds = seeds.to_string();
    let mut command = workshop.cargo(&["run", "--quiet", "--package", "forbear"]);
    command.args(profile).args(["--", "lab", "sim", "--seeds", &seeds]);
    workshop.check(command)
}
