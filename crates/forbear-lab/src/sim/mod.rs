//! The deterministic simulator: the real coordinator and gate against models of the store, the provider, the driver and
//! the agents, under a clock that jumps from one event to the next.
//!
//! It promises: a seed gives the same run to the last line, on every machine; what it counts it counts at the model
//! provider or in the model journal, never inside the core; after every step the checks of `checks` and of
//! [`Coordinator::inconsistency`](forbear_core::Coordinator::inconsistency) hold, or the run ends with the one that
//! broke. It refuses real clocks, threads and files.
//!
//! ```text
//!   agents ──asks, leaves, repeats──▶ world ──Input──▶ Coordinator
//!                                       ▲                  │ Commands
//!      provider ◀─first byte── driver ◀─┴──── store ◀──────┘
//!         └──head, body end, silence──▶ (queue of happenings, ordered by time)
//! ```

mod agents;
mod checks;
mod driver;
mod journal_checks;
pub mod moods;
mod plan;
mod provider;
mod rng;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde::Serialize;

use self::plan::Fixtures;
use self::world::World;

/// Steps after which a run is taken to be one that never ends.
pub const STEPS_MAX: u64 = 20_000;
/// Lines of a broken run's trace that are kept: its end.
const TRACE_LINES_MAX: usize = 400;
/// Seeds between two words of progress.
const PROGRESS_EVERY: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
pub struct SimOptions {
    pub seeds: u64,
    pub first_seed: u64,
    pub steps_max: u64,
    /// Stop at the first seed that breaks a check.
    pub stop_at_first: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { seeds: 1_000, first_seed: 1, steps_max: STEPS_MAX, stop_at_first: false }
    }
}

/// What many seeds showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SimReport {
    pub seeds: u64,
    pub broken: u64,
    pub first_broken: Option<Broken>,
    pub seeds_per_second: u64,
}

/// One broken check, with how it came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub seed: u64,
    pub step: u64,
    pub check: String,
    pub message: String,
    pub trace: Vec<String>,
}

/// How far a run of many seeds has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub of: u64,
    pub broken: u64,
}

/// Runs the seeds one after the other; a broken one is run again for its trace.
#[must_use]
// The report says how fast the host was; no decision reads this clock.
pub fn run(options: SimOptions, mut progress: impl FnMut(Progress)) -> SimReport {
    let fixtures = Fixtures::default();
    let started = Instant::now();
    let mut report = SimReport { seeds: 0, broken: 0, first_broken: None, seeds_per_second: 0 };
    for n in 0..options.seeds {
        let seed = options.first_seed.wrapping_add(n);
        report.seeds += 1;
        if let Err(broken) = one(&fixtures, seed, options.steps_max, false) {
            report.broken += 1;
            if report.first_broken.is_none() {
                report.first_broken = Some(one(&fixtures, seed, options.steps_max, true).err().unwrap_or(broken));
            }
            if options.stop_at_first {
                break;
            }
        }
        if report.seeds.is_multiple_of(PROGRESS_EVERY) {
            progress(Progress { done: report.seeds, of: options.seeds, broken: report.broken });
        }
    }
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    report.seeds_per_second = report.seeds.saturating_mul(1_000) / ms;
    report
}

/// Every step of one seed, as text: the same at every call.
#[must_use]
pub fn trace(seed: u64) -> Vec<String> {
    let fixtures = Fixtures::default();
    let mut world = World::new(&fixtures, seed, true);
    world.run(STEPS_MAX);
    world.into_trace()
}

fn one(fixtures: &Fixtures, seed: u64, steps_max: u64, traced: bool) -> Result<(), Broken> {
    let mut world = World::new(fixtures, seed, traced);
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run(steps_max))).err();
    let step = world.step;
    let found = match panicked {
        Some(why) => Some(("no_panic", words(&*why))),
        None => world.broken.take(),
    };
    let Some((check, message)) = found else { return Ok(()) };
    let mut trace = world.into_trace();
    trace.drain(..trace.len().saturating_sub(TRACE_LINES_MAX));
    Err(Broken { seed, step, check: check.to_owned(), message, trace })
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_run_to_the_last_line() {
        for seed in [1, 7, 4_711] {
            let first = trace(seed);
            assert!(first.len() > 40, "{} lines", first.len());
            assert_eq!(first, trace(seed));
        }
        assert_ne!(trace(1), trace(2));
    }

    #[test]
    fn no_schedule_breaks_a_check() {
        let report = run(SimOptions { seeds: 3_000, stop_at_first: true, ..SimOptions::default() }, |_| ());
        if let Some(broken) = report.first_broken {
            panic!(
                "seed {} step {}: {}: {}\n{}",
                broken.seed,
                broken.step,
                broken.check,
                broken.message,
                broken.trace.join("\n")
            );
        }
    }
}
