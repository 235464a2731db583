//! The state that outlives the process, and the one function that changes it. Replay and decision take the same path:
//! [`Durable::apply`].
//!
//! Reads that went straight leave nothing here. Everything is bounded; at its bound the oldest settled entry goes, and
//! never one that is still open.

mod known;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::breaker::Circuits;
use crate::classify::{Boundary, Window};
use crate::effect::{Effect, Evidence};
use crate::event::{ActionFinished, ActionRequested, Event, Fact};
use crate::identity::{Index, Memory};
use crate::ids::{ActionId, AttemptNo, RunId, ScopeId, Seq, TaskId};
use crate::marked::Marked;
use crate::time::Wall;

mod charges;

use charges::is_recent;
pub use charges::{Charge, RETRIES_REMEMBERED_MAX, TaskSpent};

pub const TASKS_MAX: usize = 100_000;
pub const SCOPES_MAX: usize = 100_000;
/// Cancelled tasks that are remembered, and as many runs; at the bound those that were cancelled longest ago are forgotten.
pub const CANCELLED_MAX: usize = 10_000;

/// The version of a snapshot that this code writes.
pub const SNAPSHOT_VERSION: u8 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Durable {
    pub version: u8,
    /// The last event applied.
    pub seq: Seq,
    pub open: BTreeMap<ActionId, OpenAction>,
    pub scopes: BTreeMap<ScopeId, ScopeRecord>,
    pub tasks: BTreeMap<TaskId, TaskSpent>,
    /// Ended writes that may be asked for again.
    #[serde(default)]
    pub ended: Memory,
    /// Ended writes without a name that a client's mark may mean.
    #[serde(default)]
    pub marked: Marked,
    /// Made anew from `open` and `ended` when a snapshot is read.
    #[serde(skip)]
    index: Index,
    /// Cancelled tasks, with when: their actions never wake.
    pub cancelled: BTreeMap<TaskId, Wall>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cancelled_runs: BTreeMap<RunId, Wall>,
    #[serde(default, skip_serializing_if = "Circuits::is_empty")]
    pub circuits: Circuits,
}

impl Default for Durable {
    fn default() -> Self {
        Self {
            version: SNAPSHOT_VERSION,
            seq: Seq(0),
            open: BTreeMap::new(),
            scopes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            ended: Memory::default(),
            marked: Marked::default(),
            index: Index::default(),
            cancelled: BTreeMap::new(),
            cancelled_runs: BTreeMap::new(),
            circuits: Circuits::default(),
        }
    }
}

/// An action with events and without a terminal outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenAction {
    pub requested: ActionRequested,
    pub requested_at: Wall,
    pub phase: Phase,
    /// The worst that the attempts so far leave open.
    pub effect: Effect,
    pub attempts: Vec<AttemptRecord>,
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// A charged retry that has not left yet.
    pub charged: Option<Charge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing is on the wire: before the first send, or between two.
    Planned,
    Sending(AttemptNo),
    /// The head says that it was done; the answer is on its way to the agent.
    Answered(AttemptNo),
    /// Nobody knows whether it was done. Not terminal.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub attempt: AttemptNo,
    pub sent_at: Wall,
    pub evidence: Option<Evidence>,
    pub status: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScopeRecord {
    /// The boundary in force, until it passes.
    pub retry_not_before: Option<Wall>,
    pub boundary: Option<Boundary>,
    pub windows: Vec<Window>,
    /// What stood where a boundary should, and could not be read.
    #[serde(default)]
    pub malformed: Vec<String>,
    pub updated_at: Wall,
    /// When each retry of the last minute was charged.
    pub retries: VecDeque<Wall>,
}

impl Durable {
    pub fn apply(&mut self, event: &Event) {
        self.seq = event.seq;
        if let Some(open) = event.action.and_then(|a| self.open.get_mut(&a)) {
            open.last_seq = event.seq;
        }
        match &event.fact {
            Fact::ActionRequested(requested) => self.requested(event, requested),
            Fact::ActionSent { attempt } => self.sent(event, *attempt),
            Fact::ActionResult(result) => {
                if let Some(open) = event.action.and_then(|a| self.open.get_mut(&a)) {
                    open.result(result);
                    self.charge_below(event, result);
                }
            }
            Fact::RetryScheduled { attempt, scope, task, wait_ms, .. } => {
                let charge = Charge {
                    attempt: *attempt,
                    scope: scope.clone(),
                    task: task.clone(),
                    wait_ms: *wait_ms,
                    at: event.at,
                };
                self.charge(event.action, charge);
            }
            Fact::RetryReturned { .. } => self.give_back(event.action),
            Fact::ScopeUpdated(update) => {
                let record = self.scopes.entry(update.scope.clone()).or_default();
                record.retry_not_before = update.retry_not_before;
                record.boundary.clone_from(&update.boundary);
                record.windows.clone_from(&update.windows);
                record.malformed.clone_from(&update.malformed);
                record.updated_at = event.at;
                self.bound_scopes(event.at);
            }
            Fact::TaskCancelled { task, .. } => cancel(&mut self.cancelled, task, event.at),
            Fact::RunCancelled { run, .. } => cancel(&mut self.cancelled_runs, run, event.at),
            Fact::TaskReopened { task, .. } => {
                self.cancelled.remove(task);
            }
            Fact::RunReopened { run, .. } => {
                self.cancelled_runs.remove(run);
            }
            Fact::CircuitOpened(opened) => self.circuits.open(opened),
            Fact::CircuitClosed { circuit, .. } => self.circuits.close(circuit),
            Fact::ActionFinished(finished) => {
                let Some(action) = event.action else { return };
                self.settle(event.at, action, finished);
            }
            Fact::CallJoined { charged: Some(task), .. } => self.spend(task, 0, event.at),
            Fact::PolicyLoaded { .. }
            | Fact::ActionCancelled { .. }
            | Fact::RetryStarted { .. }
            | Fact::ReconciliationRequired { .. }
            | Fact::CallJoined { charged: None, .. }
            | Fact::DecisionObserved { .. }
            | Fact::LogGap { .. } => {}
        }
    }

    fn requested(&mut self, event: &Event, requested: &ActionRequested) {
        let Some(action) = event.action else { return };
        let open = OpenAction {
            requested: requested.clone(),
            requested_at: event.at,
            phase: Phase::Planned,
            effect: Effect::NotApplied,
            attempts: Vec::new(),
            first_seq: event.seq,
            last_seq: event.seq,
            charged: None,
        };
        self.index.open(action, &open.requested);
        self.open.insert(action, open);
    }

    fn sent(&mut self, event: &Event, attempt: AttemptNo) {
        if let Some(open) = event.action.and_then(|a| self.open.get_mut(&a)) {
            open.phase = Phase::Sending(attempt);
            open.attempts.push(AttemptRecord { attempt, sent_at: event.at, evidence: None, status: None });
        }
    }

    fn settle(&mut self, at: Wall, action: ActionId, finished: &ActionFinished) {
        if finished.outcome.is_terminal() {
            if let Some(open) = self.open.remove(&action) {
                self.index.close(action, &open.requested);
                self.ended.remember(&mut self.index, action, &open, finished, at);
                self.marked.remember(action, &open.requested, finished, at);
            }
        } else if let Some(open) = self.open.get_mut(&action) {
            open.phase = Phase::Unknown;
            open.charged = None;
        }
    }

    /// A snapshot was read: what is made from it is made.
    pub(crate) fn reindex(&mut self) {
        self.index = Index::default();
        for (action, open) in &self.open {
            self.index.open(*action, &open.requested);
        }
        self.ended.enter(&mut self.index);
    }

    /// What a snapshot holds.
    #[must_use]
    pub fn to_snapshot(&self) -> Self {
        Self {
            version: SNAPSHOT_VERSION,
            seq: self.seq,
            open: self.open.clone(),
            scopes: self.scopes.clone(),
            tasks: self.tasks.clone(),
            cancelled: self.cancelled.clone(),
            cancelled_runs: self.cancelled_runs.clone(),
            circuits: self.circuits.clone(),
            ended: self.ended.clone(),
            marked: self.marked.clone(),
            index: Index::default(),
        }
    }

    /// The first event that an open action still needs; the next one where none is open.
    #[must_use]
    pub fn oldest_needed(&self) -> Seq {
        let open = self.open.values().map(|o| o.first_seq).min();
        open.unwrap_or(Seq(self.seq.0 + 1))
    }

    fn bound_scopes(&mut self, now: Wall) {
        // A margin, so that a walk over all pays for many that came.
        if self.scopes.len() > SCOPES_MAX + SCOPES_MAX / 8 {
            // A scope that is still closed is kept: forgetting a boundary would send into it.
            let recent = |r: &ScopeRecord| r.retries.back().is_some_and(|at| is_recent(*at, now));
            self.scopes.retain(|_, r| r.retry_not_before.is_some_and(|b| b > now) || recent(r));
        }
    }
}

impl OpenAction {
    fn result(&mut self, result: &crate::event::ActionResult) {
        if let Some(record) = self.attempts.iter_mut().rev().find(|r| r.attempt == result.attempt) {
            record.evidence = Some(result.evidence);
            record.status = result.status;
        }
        // What was cut takes back what its own head had promised.
        self.effect = if result.evidence == Evidence::AnsweredPartially {
            result.effect
        } else {
            fold(self.effect, result.effect)
        };
        if result.evidence != Evidence::NotSent {
            self.charged = None;
        }
        self.phase = match result.effect {
            Effect::Applied => Phase::Answered(result.attempt),
            Effect::NotApplied | Effect::Unknown => Phase::Planned,
        };
    }
}

/// What two attempts of one action leave open together. `unknown` is only settled by a proof that it was done.
#[must_use]
pub const fn fold(so_far: Effect, next: Effect) -> Effect {
    match (so_far, next) {
        (Effect::Applied, _) | (_, Effect::Applied) => Effect::Applied,
        (Effect::Unknown, _) | (_, Effect::Unknown) => Effect::Unknown,
        (Effect::NotApplied, Effect::NotApplied) => Effect::NotApplied,
    }
}

fn cancel<K: Ord + Clone>(cancelled: &mut BTreeMap<K, Wall>, name: &K, at: Wall) {
    cancelled.insert(name.clone(), at);
    // A margin, so that a walk over all pays for many that came.
    if cancelled.len() > CANCELLED_MAX + CANCELLED_MAX / 8 {
        keep_newest(cancelled, CANCELLED_MAX, |at| *at);
    }
}

fn keep_newest<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, max: usize, age: impl Fn(&V) -> Wall) {
    let mut by_age: Vec<(Wall, K)> = map.iter().map(|(k, v)| (age(v), k.clone())).collect();
    by_age.sort_unstable();
    for (_, key) in by_age.iter().take(map.len().saturating_sub(max)) {
        map.remove(key);
    }
}
