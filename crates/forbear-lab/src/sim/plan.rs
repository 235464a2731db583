//! What one seed is like, drawn before its first step: its policies, what its agents want, how stormy the provider is and
//! how bad the machine. What is foreseen is a list of [`Atom`]s, so that a broken schedule can be made smaller by leaving
//! some out.

use std::collections::BTreeSet;

use super::chance::{Chance, Draw, Rng, Site};
use super::intents::{self, Intent, TASKS_MAX};
use super::policy::Policy;

const DAY_MS: u64 = 86_400_000;

/// Everything that a run depends on.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) intents: Vec<Intent>,
    pub(super) atoms: Vec<Atom>,
    /// What chance may not make worse.
    pub(super) calm: BTreeSet<Draw>,
}

/// Something that happens at an instant whatever else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) at_ms: u64,
    pub(super) what: Foreseen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreseen {
    Asks {
        intent: usize,
    },
    Cancels {
        task: usize,
    },
    /// One of the actions that are live then.
    CancelsOne {
        of: u64,
    },
    CancelsRun,
    Reopens {
        task: usize,
    },
    ReopensRun,
    Crashes,
    WallSteps {
        ms: i64,
    },
    Suspends {
        ms: u64,
    },
    Fills {
        full: bool,
    },
    LoadsPolicy {
        number: usize,
    },
    TakesOver,
    Drains,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The first is in force at the start.
    pub(super) policies: Vec<Policy>,
    pub(super) retention_seconds: u64,
    pub(super) storm: Storm,
    /// How late the driver's timer fires, at most.
    pub(super) wake_late_ms: u64,
    /// How long a command may lie before the driver runs it, at most.
    pub(super) command_late_ms: u64,
    pub(super) flush_ms_max: u64,
    pub(super) span_ms: u64,
    /// Nothing happens for so long in the middle.
    pub(super) gap_ms: u64,
    /// The store fails so often in a thousand commits.
    pub(super) store_fails_permille: u64,
    pub(super) leaves_permille: u64,
    /// A call is made a second time while the first is open, so often in a thousand.
    pub(super) again_permille: u64,
    pub(super) snapshots_permille: u64,
    /// The body of a refusal is slow, so often in a thousand: its head is told before.
    pub(super) slow_refusals_permille: u64,
}

/// The weights of a provider's moods, in the order of [`super::provider::Fate`].
#[derive(Debug, Clone)]
pub(super) struct Storm {
    pub(super) weights: [u64; 16],
    pub(super) retry_after_s_max: u64,
    pub(super) slow_permille: u64,
}

impl Schedule {
    pub(super) fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, BTreeSet::new(), false);
        let mut rng = chance.at(Site::Plan, 0, 0);
        let kind = Kind { rough: rng.permille(500), crowded: rng.permille(200) };
        let mut plan = Plan::draw(&mut rng, kind);
        plan.slow_refusals_permille = chance.at(Site::SlowRefusals, 0, 0).pick(&[0, 0, 0, 300]);
        let mut rng = chance.at(Site::Intents, 0, 0);
        let mut intents = intents::draw(&mut rng, plan.retention_seconds, kind.crowded);
        intents::call(&mut chance.at(Site::Invocations, 0, 0), &mut intents);
        let mut quotas = chance.at(Site::Quotas, 0, 0);
        if quotas.permille(500) {
            intents::cut(&mut quotas, &mut intents);
            let rate = quotas.pick(&[None, None, Some((5, 1_000)), Some((2, 10_000))]);
            for policy in &mut plan.policies {
                policy.rate = rate;
                policy.narrow_slots = quotas.pick(&[None, Some(1), Some(3)]);
                policy.limits.kept_for_interactive = quotas.pick(&[0, 0, 1]);
            }
        }
        let mut breakers = chance.at(Site::Breakers, 0, 0);
        if breakers.permille(300) {
            plan.policies.iter_mut().for_each(|policy| policy.break_circuits(&mut breakers));
        }
        let mut atoms: Vec<Atom> = (0..intents.len())
            .map(|intent| Atom { at_ms: rng.range(0, plan.span_ms), what: Foreseen::Asks { intent } })
            .collect();
        faults(&mut chance.at(Site::Faults, 0, 0), &plan, kind, &mut atoms);
        stops(&mut chance.at(Site::Stops, 0, 0), &mut plan, &mut atoms);
        plan.policies.iter_mut().for_each(Policy::rule_homes);
        for atom in &mut atoms {
            if atom.at_ms > plan.span_ms / 2 {
                atom.at_ms += plan.gap_ms;
            }
        }
        Self { seed, plan, intents, atoms, calm: BTreeSet::new() }
    }
}

/// What a schedule is about.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// The machine and the disk are bad.
    rough: bool,
    /// Everybody wants the same at once, and many leave: one scope with few slots, few tasks, and calls made again.
    crowded: bool,
}

impl Plan {
    fn draw(rng: &mut Rng, kind: Kind) -> Self {
        let reloads = rng.pick(&[0, 0, 0, 1, 2]);
        let policies = (0..=reloads).map(|n| Policy::draw(rng, n + 1, kind.crowded)).collect();
        let calm = rng.permille(300);
        let weights = if calm {
            [60, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
        } else {
            std::array::from_fn(|i| if i == 0 { rng.range(2, 20) } else { rng.pick(&[0, 1, 3, 6]) })
        };
        Self {
            policies,
            retention_seconds: rng.pick(&[30, 120, 600, 86_400]),
            storm: Storm {
                weights,
                retry_after_s_max: rng.pick(&[2, 10, 40, 150]),
                slow_permille: rng.pick(&[0, 50, 300]),
            },
            wake_late_ms: rng.pick(&[0, 0, 3, 40, 2_000]),
            command_late_ms: rng.pick(&[0, 0, 1, 20, 3_000]),
            flush_ms_max: if kind.crowded { rng.pick(&[20, 4_000]) } else { rng.pick(&[1, 1, 20, 4_000]) },
            span_ms: rng.pick(&[200, 5_000, 60_000]),
            gap_ms: if rng.permille(40) { DAY_MS } else { 0 },
            store_fails_permille: if kind.rough { rng.pick(&[0, 10, 60]) } else { 0 },
            leaves_permille: if kind.crowded { 300 } else { rng.pick(&[0, 50, 300]) },
            again_permille: if kind.crowded { 500 } else { rng.pick(&[0, 0, 100, 400]) },
            snapshots_permille: rng.pick(&[0, 10, 100]),
            slow_refusals_permille: 0,
        }
    }
}

/// What a person stops beside whole tasks, and takes back; and how much of it is told at once.
fn stops(rng: &mut Rng, plan: &mut Plan, atoms: &mut Vec<Atom>) {
    if rng.permille(700) {
        return;
    }
    let at_once = rng.pick(&[1, 2, 1_000]);
    plan.policies.iter_mut().for_each(|policy| policy.stop_at_once(at_once));
    let span = plan.span_ms;
    let mut foresee = |at_ms: u64, what: Foreseen| atoms.push(Atom { at_ms, what });
    for _ in 0..rng.pick(&[0, 1, 3]) {
        foresee(rng.range(0, span), Foreseen::CancelsOne { of: rng.range(0, 1_000) });
    }
    if rng.permille(300) {
        foresee(rng.range(0, span), Foreseen::CancelsRun);
        foresee(rng.range(0, span), Foreseen::ReopensRun);
    }
    for _ in 0..rng.pick(&[0, 1, 2]) {
        let task = index(rng.range(0, TASKS_MAX as u64 - 1));
        foresee(rng.range(0, span), Foreseen::Cancels { task });
        foresee(rng.range(0, span * 2), Foreseen::Reopens { task });
    }
}

fn faults(rng: &mut Rng, plan: &Plan, kind: Kind, atoms: &mut Vec<Atom>) {
    let span = plan.span_ms;
    let mut foresee = |at_ms: u64, what: Foreseen| atoms.push(Atom { at_ms, what });
    let tasks = if kind.crowded { 1 } else { TASKS_MAX as u64 - 1 };
    for _ in 0..if kind.crowded { rng.pick(&[1, 2]) } else { rng.pick(&[0, 0, 0, 1, 2]) } {
        foresee(rng.range(0, span), Foreseen::Cancels { task: index(rng.range(0, tasks)) });
    }
    for _ in 0..if kind.rough { rng.pick(&[0, 0, 1, 2, 3]) } else { 0 } {
        foresee(rng.range(1, span * 2), Foreseen::Crashes);
    }
    for _ in 0..rng.pick(&[0, 0, 0, 0, 0, 1, 1, 2]) {
        foresee(rng.range(1, span * 3 / 2), Foreseen::TakesOver);
    }
    for _ in 0..rng.pick(&[0, 0, 0, 0, 1, 2]) {
        foresee(rng.range(0, span), Foreseen::WallSteps { ms: rng.pick(&[-3_600_000, -5_000, 5_000, 3_600_000]) });
    }
    for _ in 0..rng.pick(&[0, 0, 0, 0, 1]) {
        foresee(rng.range(0, span), Foreseen::Suspends { ms: rng.range(1_000, 3_600_000) });
    }
    for number in 1..plan.policies.len() {
        foresee(rng.range(0, span), Foreseen::LoadsPolicy { number });
    }
    if rng.permille(50) {
        foresee(rng.range(0, span), Foreseen::Fills { full: true });
        foresee(rng.range(0, span), Foreseen::Fills { full: false });
    }
    if rng.permille(50) {
        foresee(rng.range(span / 2, span), Foreseen::Drains);
    }
}

pub(super) fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(0)
}
