//! The deterministic simulator: the real coordinator and gate against models of the store, the provider, the driver and
//! the agents, under a clock that jumps from one event to the next.
//!
//! It promises: a seed gives the same run to the last line, on every machine, and a broken one the same short schedule that
//! breaks the same check; what it counts it counts at the model provider or in the model journal, never inside the core;
//! after every step the checks of `checks` and of [`Coordinator::inconsistency`](forbear_core::Coordinator::inconsistency)
//! hold, or the run ends with the one that broke. It refuses real clocks and files, and threads within a schedule.
//!
//! ```text
//!   agents ──asks, leaves, repeats──▶ world ──Input──▶ Coordinator (two, while one takes over from the other)
//!                                       ▲                  │ Commands
//!      provider ◀─first byte── driver ◀─┴──── store ◀──────┘
//!         └──head, body end, silence──▶ (queue of happenings, ordered by time)
//! ```
//!
//! Not modelled, since the core does not do it yet: lookups of unknown effects, and with them providers that show an
//! effect late to who looks; cases; leases of a scope between processes.

mod agents;
mod calls;
mod chance;
mod checks;
mod coverage;
mod disk;
mod driver;
mod end_checks;
mod intents;
mod ledger;
mod lives;
pub mod moods;
mod node;
mod plan;
mod policy;
mod provider;
mod queue;
mod shrink;
mod store;
#[cfg(test)]
mod tests;
mod trace;
mod world;
mod write_checks;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use serde::Serialize;

use self::chance::{Chance, Draw};
use self::coverage::Coverage;
use self::intents::Fixtures;
use self::plan::{Foreseen, Schedule};
use self::shrink::{Smaller, shrink};
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
    /// Steps of all schedules.
    pub steps: u64,
    /// In how many schedules each of these was met.
    pub coverage: BTreeMap<&'static str, u64>,
}

/// One broken check, with how it came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub seed: u64,
    pub step: u64,
    pub check: String,
    pub message: String,
    /// The end of the whole run.
    pub trace: Vec<String>,
    /// The same check, broken by less.
    pub shrunk: Option<Shrunk>,
}

/// A broken schedule made small.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shrunk {
    pub calls: usize,
    pub faults: Vec<String>,
    pub steps: u64,
    pub message: String,
    pub trace: Vec<String>,
    /// What it took.
    pub runs: u32,
}

/// How far a run of many seeds has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub of: u64,
    pub broken: u64,
}

/// Runs the seeds, on as many cores as there are: each is a world of its own, and they are counted in their order. The first
/// broken one is made small.
#[must_use]
// The report says how fast the host was; no decision reads this clock.
pub fn run(options: SimOptions, mut progress: impl FnMut(Progress)) -> SimReport {
    let started = Instant::now();
    let mut report =
        SimReport { seeds: 0, broken: 0, first_broken: None, seeds_per_second: 0, steps: 0, coverage: BTreeMap::new() };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    'batches: while report.seeds < options.seeds {
        let first = options.first_seed.wrapping_add(report.seeds);
        let batch = (PROGRESS_EVERY * cores).min(options.seeds - report.seeds);
        for (seed, ran) in side_by_side(first, batch, cores, options.steps_max) {
            report.seeds += 1;
            report.steps += ran.steps;
            ran.coverage.count_into(&mut report.coverage);
            if ran.broken {
                report.broken += 1;
                if report.first_broken.is_none() {
                    report.first_broken = broken(&Fixtures::default(), seed, options.steps_max);
                }
                if options.stop_at_first {
                    break 'batches;
                }
            }
        }
        progress(Progress { done: report.seeds, of: options.seeds, broken: report.broken });
    }
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    report.seeds_per_second = report.seeds.saturating_mul(1_000) / ms;
    report
}

/// What is counted of a schedule.
struct Counted {
    steps: u64,
    coverage: Coverage,
    broken: bool,
}

/// `n` seeds from `first` on, in their order.
fn side_by_side(first: u64, n: u64, cores: u64, steps_max: u64) -> Vec<(u64, Counted)> {
    let share = n.div_ceil(cores);
    let some = |from: u64| {
        let fixtures = Fixtures::default();
        let seeds = (from..n.min(from + share)).map(|i| first.wrapping_add(i));
        let count = |seed| {
            let ran = Ran::new(&fixtures, Schedule::draw(seed), steps_max, How::Quiet);
            (seed, Counted { steps: ran.steps, coverage: ran.coverage, broken: ran.broken.is_some() })
        };
        seeds.map(count).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|i| scope.spawn(move || some(i * share))).collect();
        // What a schedule panics with was caught: this is a panic of the simulator's own.
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    })
}

/// Every step of one seed, as text: the same at every call.
#[must_use]
pub fn trace(seed: u64) -> Vec<String> {
    Ran::new(&Fixtures::default(), Schedule::draw(seed), STEPS_MAX, How::Traced).trace
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Quiet,
    Traced,
    /// Which draws were made is wanted.
    Recorded,
}

/// One schedule, run.
struct Ran {
    steps: u64,
    broken: Option<(String, String)>,
    trace: Vec<String>,
    asked: BTreeSet<Draw>,
    coverage: Coverage,
}

impl Ran {
    fn new(fixtures: &Fixtures, schedule: Schedule, steps_max: u64, how: How) -> Self {
        let mut world = World::new(fixtures, schedule, how == How::Traced, how == How::Recorded);
        let panicked = catch_unwind(AssertUnwindSafe(|| world.run(steps_max))).err();
        let broken = match panicked {
            Some(why) => Some(("no_panic".to_owned(), words(&*why))),
            None => world.broken.take().map(|(check, message)| (check.to_owned(), message)),
        };
        Self {
            steps: world.step,
            broken,
            coverage: world.coverage.with(world.provider.saw),
            trace: world.trace.map(trace::Trace::into_lines).unwrap_or_default(),
            asked: Chance::into_asked(world.chance),
        }
    }
}

fn broken(fixtures: &Fixtures, seed: u64, steps_max: u64) -> Option<Broken> {
    let ran = Ran::new(fixtures, Schedule::draw(seed), steps_max, How::Traced);
    let (check, message) = ran.broken?;
    let mut trace = ran.trace;
    trace.drain(..trace.len().saturating_sub(TRACE_LINES_MAX));
    let shrunk = shrunk(fixtures, seed, &check, steps_max);
    Some(Broken { seed, step: ran.steps, check, message, trace, shrunk })
}

fn shrunk(fixtures: &Fixtures, seed: u64, check: &str, steps_max: u64) -> Option<Shrunk> {
    let Smaller { schedule, runs } = shrink(Schedule::draw(seed), |candidate| {
        let ran = Ran::new(fixtures, candidate.clone(), steps_max, How::Recorded);
        ran.broken.filter(|(broken, _)| broken == check).map(|_| ran.asked)
    });
    let is_call = |what: &Foreseen| matches!(what, Foreseen::Asks { .. });
    let calls = schedule.atoms.iter().filter(|a| is_call(&a.what)).count();
    let faults = schedule.atoms.iter().filter(|a| !is_call(&a.what));
    let faults = faults.map(|a| format!("{:?} after {} ms", a.what, a.at_ms)).collect();
    let ran = Ran::new(fixtures, schedule, steps_max, How::Traced);
    let (_, message) = ran.broken?;
    let mut trace = ran.trace;
    trace.drain(..trace.len().saturating_sub(TRACE_LINES_MAX));
    Some(Shrunk { calls, faults, steps: ran.steps, message, trace, runs })
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".to_owned())
}
