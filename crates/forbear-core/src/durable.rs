//! The state that outlives the process, and the one function that changes it. Replay and decision take the same path:
//! [`Durable::apply`].
//!
//! Reads that went straight leave nothing here. Everything is bounded; at its bound the oldest settled entry goes, and
//! never one that is still open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::classify::{Boundary, Window};
use crate::effect::{Effect, Evidence};
use crate::event::{ActionRequested, Event, Fact};
use crate::ids::{ActionId, AttemptNo, Digest, Route, ScopeId, Seq, TaskId};
use crate::time::Wall;

pub const TASKS_MAX: usize = 100_000;
pub const SCOPES_MAX: usize = 100_000;
pub const CANCELLED_TASKS_MAX: usize = 10_000;
/// Retries of one scope remembered for its minute.
pub const RETRIES_REMEMBERED_MAX: usize = 10_000;
const MINUTE_MS: u64 = 60_000;

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
    /// Open actions of unknown effect by their content, so that a repeat of one is recognised.
    pub unknown: BTreeMap<Digest, BTreeSet<ActionId>>,
    /// Cancelled tasks, with when: their actions never wake.
    pub cancelled: BTreeMap<TaskId, Wall>,
}

impl Default for Durable {
    fn default() -> Self {
        Self {
            version: SNAPSHOT_VERSION,
            seq: Seq(0),
            open: BTreeMap::new(),
            scopes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            unknown: BTreeMap::new(),
            cancelled: BTreeMap::new(),
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub attempt: AttemptNo,
    pub scope: ScopeId,
    pub task: TaskId,
    pub wait_ms: u64,
    pub at: Wall,
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

/// What a task's actions spent on retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskSpent {
    pub retries: u32,
    pub wait_ms: u64,
    pub last_at: Wall,
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
            Fact::TaskCancelled { task, .. } => {
                self.cancelled.insert(task.clone(), event.at);
                evict(&mut self.cancelled, CANCELLED_TASKS_MAX, |at| *at);
            }
            Fact::ActionFinished(finished) => {
                let Some(action) = event.action else { return };
                self.settle(action, finished.outcome.is_terminal());
            }
            Fact::PolicyLoaded { .. }
            | Fact::RetryStarted { .. }
            | Fact::ReconciliationRequired { .. }
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
        self.open.insert(action, open);
    }

    fn sent(&mut self, event: &Event, attempt: AttemptNo) {
        if let Some(open) = event.action.and_then(|a| self.open.get_mut(&a)) {
            open.phase = Phase::Sending(attempt);
            open.attempts.push(AttemptRecord { attempt, sent_at: event.at, evidence: None, status: None });
        }
    }

    fn charge(&mut self, action: Option<ActionId>, charge: Charge) {
        let spent = self.tasks.entry(charge.task.clone()).or_default();
        spent.retries = spent.retries.saturating_add(1);
        spent.wait_ms = spent.wait_ms.saturating_add(charge.wait_ms);
        spent.last_at = charge.at;
        evict(&mut self.tasks, TASKS_MAX, |spent| spent.last_at);
        let at = charge.at;
        let record = self.scopes.entry(charge.scope.clone()).or_default();
        record.forget_before(at);
        if record.retries.len() >= RETRIES_REMEMBERED_MAX {
            record.retries.pop_front();
        }
        record.retries.push_back(at);
        if let Some(open) = action.and_then(|a| self.open.get_mut(&a)) {
            open.phase = Phase::Planned;
            open.charged = Some(charge);
        }
        self.bound_scopes(at);
    }

    fn give_back(&mut self, action: Option<ActionId>) {
        let Some(charge) = action.and_then(|a| self.open.get_mut(&a)).and_then(|open| open.charged.take()) else {
            return;
        };
        if let Some(spent) = self.tasks.get_mut(&charge.task) {
            spent.retries = spent.retries.saturating_sub(1);
            spent.wait_ms = spent.wait_ms.saturating_sub(charge.wait_ms);
        }
        if let Some(record) = self.scopes.get_mut(&charge.scope)
            && let Some(i) = record.retries.iter().rposition(|at| *at == charge.at)
        {
            record.retries.remove(i);
        }
    }

    /// The retries charged to a scope in the minute before `now`.
    #[must_use]
    pub fn retries_in_minute(&self, scope: &ScopeId, now: Wall) -> usize {
        self.scopes.get(scope).map_or(0, |r| r.retries.iter().filter(|at| is_recent(**at, now)).count())
    }

    fn settle(&mut self, action: ActionId, terminal: bool) {
        let Some(open) = self.open.get_mut(&action) else { return };
        let digest = open.requested.content_digest;
        if terminal {
            self.open.remove(&action);
            if let Some(digest) = digest
                && let Some(twins) = self.unknown.get_mut(&digest)
            {
                twins.remove(&action);
                if twins.is_empty() {
                    self.unknown.remove(&digest);
                }
            }
        } else {
            open.phase = Phase::Unknown;
            open.charged = None;
            if let Some(digest) = digest {
                self.unknown.entry(digest).or_default().insert(action);
            }
        }
    }

    /// The open actions whose effect is unknown and whose content a new write of the same credential repeats, the
    /// oldest first.
    pub fn unknown_twins<'a>(
        &'a self,
        scope: &'a ScopeId,
        route: &'a Route,
        digest: Digest,
    ) -> impl Iterator<Item = (ActionId, &'a OpenAction)> {
        let ids = self.unknown.get(&digest).into_iter().flatten();
        let twins = ids.filter_map(|id| Some((*id, self.open.get(id)?)));
        twins.filter(|(_, o)| o.requested.scope == *scope && o.requested.route == *route)
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
    /// A repeat brings the same key again, and the provider honours it.
    pub(crate) fn has_stable_key(&self) -> bool {
        let key = self.requested.key.as_ref();
        key.is_some_and(|k| k.retention_seconds.is_some() && k.origin != crate::event::KeyOrigin::Made)
    }

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

impl ScopeRecord {
    fn forget_before(&mut self, now: Wall) {
        while self.retries.front().is_some_and(|at| !is_recent(*at, now)) {
            self.retries.pop_front();
        }
    }
}

const fn is_recent(at: Wall, now: Wall) -> bool {
    at.ms_until(now) < MINUTE_MS
}

/// Lets the oldest go once there are an eighth more than `max`: looking for them walks over all, and one walk pays for
/// many that came.
fn evict<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, max: usize, age: impl Fn(&V) -> Wall) {
    if map.len() <= max + max / 8 {
        return;
    }
    let mut all: Vec<(Wall, K)> = map.iter().map(|(k, v)| (age(v), k.clone())).collect();
    all.sort_unstable();
    for (_, key) in all.iter().take(map.len() - max) {
        map.remove(key);
    }
}
