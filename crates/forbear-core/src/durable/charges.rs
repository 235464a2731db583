//! What retries cost: a task's budget, and a scope's by the minute. Charged when one is planned, by a layer above that makes
//! it, or when a layer below says that it made some; given back where one never left.

use serde::{Deserialize, Serialize};

use super::{Durable, ScopeRecord, TASKS_MAX, keep_newest};
use crate::classify::RETRIES_BELOW_MAX;
use crate::durable::Phase;
use crate::event::{ActionResult, Event};
use crate::ids::{ActionId, AttemptNo, ScopeId, TaskId};
use crate::time::Wall;

/// Retries of one scope remembered for its minute.
pub const RETRIES_REMEMBERED_MAX: usize = 10_000;
const MINUTE_MS: u64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub attempt: AttemptNo,
    pub scope: ScopeId,
    pub task: TaskId,
    pub wait_ms: u64,
    pub at: Wall,
}

/// What a task's actions spent on retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskSpent {
    pub retries: u32,
    pub wait_ms: u64,
    pub last_at: Wall,
}

impl Durable {
    pub(super) fn charge(&mut self, action: Option<ActionId>, charge: Charge) {
        self.spend(&charge.task, charge.wait_ms, charge.at);
        let at = charge.at;
        self.remember_retry(&charge.scope, at);
        if let Some(open) = action.and_then(|a| self.open.get_mut(&a)) {
            open.phase = Phase::Planned;
            open.charged = Some(charge);
        }
        self.bound_scopes(at);
    }

    /// What a layer below sent again by itself costs as many retries. Its word came with a result, which is on record once.
    pub(super) fn charge_below(&mut self, event: &Event, result: &ActionResult) {
        let said = result.classification.as_ref().and_then(|c| c.below.as_ref());
        let open = event.action.and_then(|a| self.open.get(&a));
        let (Some(below), Some(open)) = (said, open) else { return };
        let (scope, task) = (open.requested.scope.clone(), open.requested.task.clone());
        for _ in 0..below.retries.min(RETRIES_BELOW_MAX) {
            self.spend(&task, 0, event.at);
            self.remember_retry(&scope, event.at);
        }
        self.bound_scopes(event.at);
    }

    fn remember_retry(&mut self, scope: &ScopeId, at: Wall) {
        let record = self.scopes.entry(scope.clone()).or_default();
        record.forget_before(at);
        if record.retries.len() >= RETRIES_REMEMBERED_MAX {
            record.retries.pop_front();
        }
        record.retries.push_back(at);
    }

    /// One retry of a task.
    pub(super) fn spend(&mut self, task: &TaskId, wait_ms: u64, at: Wall) {
        let spent = self.tasks.entry(task.clone()).or_default();
        spent.retries = spent.retries.saturating_add(1);
        spent.wait_ms = spent.wait_ms.saturating_add(wait_ms);
        spent.last_at = at;
        // A margin, so that a walk over all pays for many that came.
        if self.tasks.len() > TASKS_MAX + TASKS_MAX / 8 {
            keep_newest(&mut self.tasks, TASKS_MAX, |spent| spent.last_at);
        }
    }

    pub(super) fn give_back(&mut self, action: Option<ActionId>) {
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
}

impl ScopeRecord {
    fn forget_before(&mut self, now: Wall) {
        while self.retries.front().is_some_and(|at| !is_recent(*at, now)) {
            self.retries.pop_front();
        }
    }
}

pub(super) const fn is_recent(at: Wall, now: Wall) -> bool {
    at.ms_until(now) < MINUTE_MS
}
