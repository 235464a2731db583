//! `cargo xtask test`: everything that must hold before a change goes in, in one command, on a fresh machine.
//!
//! The steps are data (`steps`). A step runs or is left out with the reason; none is skipped in silence, and one that
//! fails does not hide what comes after it. The last line says how many tests passed and failed.

mod clients;
mod count;
mod instructions;
mod steps;
mod workshop;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use count::Counts;
use steps::{STEPS, Step};
use workshop::Workshop;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Many more simulated schedules and kills; takes hours
    #[arg(long)]
    long: bool,
    /// Only this step; may be given more than once
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Name the steps and run none
    #[arg(long)]
    list: bool,
}

struct Report {
    step: &'static Step,
    counts: Counts,
    took: Duration,
    left_out: Option<String>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.list {
        for step in STEPS {
            println!("{:<13} {}", step.name, step.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(&options.only)?;
    let workshop = Workshop::new(root, options.long, &options.only);
    let reports: Vec<Report> = chosen.into_iter().map(|step| run_step(step, &workshop)).collect();
    let total = summarise(&reports);
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(only: &[String]) -> Result<Vec<&'static Step>> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != name.as_str())) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        bail!("there is no step `{unknown}`; there are {}", names.join(", "));
    }
    let is_chosen = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(is_chosen).collect())
}

fn run_step(step: &'static Step, workshop: &Workshop) -> Report {
    println!("\n== {}: {}", step.name, step.what);
    let started = Instant::now();
    let (counts, left_out) = match (step.absent)(workshop) {
        Ok(Some(reason)) => (Counts::default(), Some(reason)),
        Ok(None) => ((step.run)(workshop).unwrap_or_else(|error| fail(&error)), None),
        Err(error) => (fail(&error), None),
    };
    let took = started.elapsed();
    match &left_out {
        Some(reason) => println!("== {}: left out, {reason}", step.name),
        None if counts.failed == 0 => println!("== {}: holds, {}", step.name, seconds(took)),
        None => println!("== {}: FAILED, {}", step.name, seconds(took)),
    }
    Report { step, counts, took, left_out }
}

fn fail(error: &anyhow::Error) -> Counts {
    eprintln!("{error:#}");
    Counts::FAILED
}

fn summarise(reports: &[Report]) -> Counts {
    println!("\n{:<13} {:>7} {:>7} {:>9}", "step", "passed", "failed", "time");
    let mut total = Counts::default();
    for Report { step, counts, took, left_out } in reports {
        total = total.plus(*counts);
        match left_out {
            Some(reason) => println!("{:<13} left out: {reason}", step.name),
            None => println!("{:<13} {:>7} {:>7} {:>9}", step.name, counts.passed, counts.failed, seconds(*took)),
        }
    }
    println!("\n{} passed, {} failed", total.passed, total.failed);
    total
}

fn seconds(took: Duration) -> String {
    format!("{}.{} s", took.as_secs(), took.subsec_millis() / 100)
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn an_unknown_step_is_refused_with_the_known_ones() {
        let error = choose(&["tidy".into(), "lint".into()]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("`lint`") && error.contains("tidy, lints"), "{error}");
    }

    #[test]
    fn steps_run_in_their_own_order() {
        let chosen = choose(&["tidy".into(), "format".into()]).unwrap();
        assert_eq!(chosen.iter().map(|step| step.name).collect::<Vec<_>>(), ["format", "tidy"]);
        assert!(choose(&[]).unwrap().len() > 5);
    }
}
