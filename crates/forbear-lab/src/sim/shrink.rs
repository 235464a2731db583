//! Makes a broken schedule small: leaves out calls and faults, calms what chance made worse, and simplifies the plan, for
//! as long as the same check still breaks. What is left is a short trace that a person can read.
//!
//! It promises the same result for the same seed, and that the result breaks the check; not that nothing smaller would. It
//! stops after [`RUNS_MAX`] runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use forbear_core::policy::{PacingRule, Priority};

use super::chance::Draw;
use super::intents::Intent;
use super::plan::{Plan, Schedule};

/// Runs that shrinking one schedule may cost, most of them much shorter than the first.
const RUNS_MAX: u32 = 3_000;
const ROUNDS_MAX: u32 = 4;

pub(super) struct Smaller {
    pub(super) schedule: Schedule,
    pub(super) runs: u32,
}

/// `breaks` runs a schedule and, if it still breaks the check, says which draws it made.
pub(super) fn shrink(schedule: Schedule, breaks: impl FnMut(&Schedule) -> Option<BTreeSet<Draw>>) -> Smaller {
    let mut search = Search { best: schedule, asked: BTreeSet::new(), runs: 0, breaks };
    let first = search.best.clone();
    if !search.accepts(first) {
        return Smaller { schedule: search.best, runs: search.runs };
    }
    for _ in 0..ROUNDS_MAX {
        let before = search.size();
        search.leave_out_atoms();
        search.calm_draws();
        search.simplify();
        if search.size() == before {
            break;
        }
    }
    Smaller { schedule: search.best, runs: search.runs }
}

struct Search<B> {
    best: Schedule,
    /// The draws of the best.
    asked: BTreeSet<Draw>,
    runs: u32,
    breaks: B,
}

impl<B: FnMut(&Schedule) -> Option<BTreeSet<Draw>>> Search<B> {
    fn size(&self) -> (usize, usize) {
        (self.best.atoms.len(), self.asked.len())
    }

    fn accepts(&mut self, candidate: Schedule) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let Some(asked) = (self.breaks)(&candidate) else { return false };
        self.best = candidate;
        self.asked = asked;
        true
    }

    fn leave_out_atoms(&mut self) {
        self.in_chunks(self.best.atoms.len(), |best, from, to| {
            let mut smaller = best.clone();
            smaller.atoms.drain(from..to);
            smaller
        });
    }

    fn calm_draws(&mut self) {
        let draws: Vec<Draw> = self.asked.iter().copied().collect();
        let mut size = draws.len();
        while size > 0 {
            for chunk in draws.chunks(size) {
                let mut calmer = self.best.clone();
                calmer.calm.extend(chunk.iter().filter(|d| self.asked.contains(d)));
                if calmer.calm.len() > self.best.calm.len() {
                    self.accepts(calmer);
                }
            }
            size /= 2;
        }
    }

    fn simplify(&mut self) {
        for step in PLAN_STEPS {
            let mut simpler = self.best.clone();
            step(&mut simpler.plan);
            self.accepts(simpler);
        }
        for index in 0..self.best.intents.len() {
            for step in INTENT_STEPS {
                let mut simpler = self.best.clone();
                if step(&mut simpler.intents[index]) {
                    self.accepts(simpler);
                }
            }
        }
    }

    /// Tries without halves, quarters, and so on down to single ones.
    fn in_chunks(&mut self, len: usize, without: impl Fn(&Schedule, usize, usize) -> Schedule) {
        let mut size = len.div_ceil(2);
        let mut len = len;
        while size > 0 {
            let mut from = 0;
            while from < len {
                let to = (from + size).min(len);
                let smaller = without(&self.best, from, to);
                if self.accepts(smaller) {
                    len -= to - from;
                } else {
                    from = to;
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

const PLAN_STEPS: &[fn(&mut Plan)] = &[
    |p| p.store_fails_permille = 0,
    |p| p.leaves_permille = 0,
    |p| p.again_permille = 0,
    |p| p.snapshots_permille = 0,
    |p| p.storm.slow_permille = 0,
    |p| p.command_late_ms = 0,
    |p| p.wake_late_ms = 0,
    |p| p.flush_ms_max = 1,
    |p| p.policies.iter_mut().for_each(|policy| policy.rate = None),
    |p| p.policies.iter_mut().for_each(|policy| policy.narrow_slots = None),
    |p| {
        for policy in &mut p.policies {
            let calm = PacingRule { release_gap_ms: 0, jitter_ms: 0, target_share_bp: 9_500, arrival_spread_ms: 0 };
            Arc::make_mut(&mut policy.settings).pacing = calm;
        }
    },
];

/// Each says whether it changed anything.
const INTENT_STEPS: &[fn(&mut Intent) -> bool] = &[
    |i| std::mem::take(&mut i.body_pending),
    |i| std::mem::take(&mut i.journal_before),
    |i| i.reference.take().is_some(),
    |i| i.tenant.take().is_some(),
    |i| !std::mem::take(&mut i.narrow).is_empty(),
    |i| std::mem::take(&mut i.priority) != Priority::Normal,
];
