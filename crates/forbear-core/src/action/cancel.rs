//! Cancelling: what a person stops by its task, its run or itself, and taking that back.
//!
//! One event stops all of a task, and from then on none of its actions leaves, wherever it stands: who has its turn is asked,
//! and so is what is about to leave. They are told in batches, so that no visit is long however many there are.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::action::admit::write_for;
use crate::action::live::{Live, Stage};
use crate::command::Commands;
use crate::coordinator::{Coordinator, Write};
use crate::event::{Fact, Outcome};
use crate::ids::{ActionId, RunId, TaskId};
use crate::input::{Request, Whose};
use crate::time::{Mono, Now};

pub(crate) const TASK_CANCELLED: &str = "its task was cancelled";
pub(crate) const RUN_CANCELLED: &str = "its run was cancelled";
const CANCELLED: &str = "it was cancelled";

/// Actions and joined calls of this process by what they may be cancelled by.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    by_task: BTreeSet<(TaskId, ActionId)>,
    by_run: BTreeSet<(RunId, ActionId)>,
}

impl Owned {
    pub(crate) fn enter(&mut self, request: &Request) {
        self.by_task.insert((request.task.clone(), request.action));
        if let Some(run) = request.run_name() {
            self.by_run.insert((run.clone(), request.action));
        }
    }

    pub(crate) fn leave(&mut self, task: &TaskId, run: Option<&RunId>, action: ActionId) {
        self.by_task.remove(&(task.clone(), action));
        if let Some(run) = run {
            self.by_run.remove(&(run.clone(), action));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_task.len()
    }

    pub(crate) fn has(&self, action: ActionId) -> bool {
        self.by_task.iter().any(|(_, known)| *known == action)
    }

    /// Those after `after`, in the order of their ids, at most `max`. An action that is cancelled alone is told at once.
    fn following(&self, whose: &Whose, after: Option<ActionId>, max: usize) -> Vec<ActionId> {
        match whose {
            Whose::Task(task) => following(&self.by_task, task, after).take(max).collect(),
            Whose::Run(run) => following(&self.by_run, run, after).take(max).collect(),
            Whose::Action(_) => Vec::new(),
        }
    }
}

fn following<'a, K: Ord + Clone>(
    all: &'a BTreeSet<(K, ActionId)>,
    of: &K,
    after: Option<ActionId>,
) -> impl Iterator<Item = ActionId> + use<'a, K> {
    let of = of.clone();
    let from = after.map_or(Included((of.clone(), ActionId(0))), |after| Excluded((of.clone(), after)));
    all.range((from, Unbounded)).take_while(move |(owner, _)| *owner == of).map(|(_, action)| *action)
}

/// What is cancelled and has actions here that were not told yet.
#[derive(Debug)]
pub(crate) struct Stopping {
    whose: Whose,
    since: Mono,
    /// The last that was.
    after: Option<ActionId>,
}

/// In the order in which they are told: where a slot comes back, fewer are asked whether they may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    InLine,
    OnTheWire,
    /// It waits for another's result.
    Joined,
}

pub(crate) type AllStopping = VecDeque<Stopping>;

impl Coordinator {
    /// Why nothing of this task or run is sent, where a person said so.
    pub(crate) fn cancelled(&self, task: &TaskId, run: Option<&RunId>) -> Option<&'static str> {
        if self.durable.cancelled.contains_key(task) {
            return Some(TASK_CANCELLED);
        }
        run.is_some_and(|run| self.durable.cancelled_runs.contains_key(run)).then_some(RUN_CANCELLED)
    }

    /// As [`Coordinator::cancelled`], for a call that came before that was said: it costs nothing while nothing is stopped.
    pub(crate) fn stopped(&self, task: &TaskId, run: Option<&RunId>) -> Option<&'static str> {
        if self.stopping.is_empty() { None } else { self.cancelled(task, run) }
    }

    pub(crate) fn cancel(&mut self, now: Now, whose: Whose, by: String, out: &mut Commands) {
        let fact = match &whose {
            Whose::Task(task) => Fact::TaskCancelled { task: task.clone(), by },
            Whose::Run(run) => Fact::RunCancelled { run: run.clone(), by },
            Whose::Action(action) => return self.cancel_action(now, *action, by, out),
        };
        self.emit(now, None, fact, Write::Ahead, out);
        self.stopping.push_back(Stopping { whose, since: now.mono, after: None });
        self.stop_some(now, out);
    }

    fn cancel_action(&mut self, now: Now, action: ActionId, by: String, out: &mut Commands) {
        if self.waiters.contains_key(&action) {
            return self.let_go(now, action, Outcome::Cancelled, CANCELLED, out);
        }
        let Some(live) = self.live.get(&action).filter(|live| is_under_way(live)) else { return };
        // With its beginning it is written, and with that it may be lost.
        let write = write_for(&live.request);
        self.record_on_the_way(now, action, out);
        self.emit(now, Some(action), Fact::ActionCancelled { by }, write, out);
        self.withdraw(now, action, CANCELLED, out);
    }

    /// Calls of it that come from now on are taken. Those that came before have ended.
    pub(crate) fn reopen(&mut self, now: Now, whose: &Whose, by: String, out: &mut Commands) {
        let fact = match whose {
            Whose::Task(task) if self.durable.cancelled.contains_key(task) => {
                Fact::TaskReopened { task: task.clone(), by }
            }
            Whose::Run(run) if self.durable.cancelled_runs.contains_key(run) => {
                Fact::RunReopened { run: run.clone(), by }
            }
            _ => return,
        };
        while self.stopping.iter().any(|stopping| stopping.whose == *whose) {
            self.stop_some(now, out);
        }
        self.emit(now, None, fact, Write::Ahead, out);
    }

    /// When there is something left to stop.
    pub(crate) fn next_stop(&self) -> Option<Mono> {
        self.stopping.front().map(|stopping| stopping.since)
    }

    /// Tells the next of those that are cancelled.
    pub(crate) fn stop_some(&mut self, now: Now, out: &mut Commands) {
        let mut left = self.settings.cancelled_at_once.max(1);
        while left > 0 {
            let Some(stopping) = self.stopping.front() else { return };
            let batch = self.owned.following(&stopping.whose, stopping.after, left);
            let why = if matches!(stopping.whose, Whose::Run(_)) { RUN_CANCELLED } else { TASK_CANCELLED };
            left -= batch.len();
            let last = batch.last().copied();
            let mut batch: Vec<(Standing, ActionId)> = batch.into_iter().map(|a| (self.stands(a), a)).collect();
            batch.sort_unstable();
            for (standing, action) in batch {
                match standing {
                    Standing::InLine | Standing::OnTheWire => self.withdraw(now, action, why, out),
                    Standing::Joined => self.let_go(now, action, Outcome::Cancelled, why, out),
                }
            }
            if let Some(stopping) = self.stopping.front_mut().filter(|_| left == 0) {
                stopping.after = last;
            } else {
                self.stopping.pop_front();
            }
        }
    }

    fn stands(&self, action: ActionId) -> Standing {
        match self.live.get(&action).map(|live| live.stage) {
            Some(Stage::Waiting { .. }) => Standing::InLine,
            Some(_) => Standing::OnTheWire,
            None => Standing::Joined,
        }
    }

    /// It was given its turn, and is not sent: its slot goes back.
    pub(crate) fn stopped_at_its_turn(&mut self, now: Now, action: ActionId, out: &mut Commands) -> bool {
        let Some(live) = self.live.get(&action) else { return false };
        let Some(why) = self.stopped(&live.request.task, live.request.run_name()) else { return false };
        let Some(live) = self.live.remove(&action) else { return false };
        self.release_only(&live);
        self.stop(now, live, Outcome::Cancelled, why, out);
        true
    }

    /// Whether calls of this task or run are refused.
    #[must_use]
    pub fn is_cancelled(&self, whose: &Whose) -> bool {
        match whose {
            Whose::Task(task) => self.durable.cancelled.contains_key(task),
            Whose::Run(run) => self.durable.cancelled_runs.contains_key(run),
            Whose::Action(_) => false,
        }
    }

    /// Actions and joined calls in this process that cancelling would stop.
    #[must_use]
    pub fn owned_by(&self, whose: &Whose) -> usize {
        match whose {
            Whose::Action(action) => {
                let is_live = self.live.get(action).is_some_and(|live| is_under_way(live));
                usize::from(is_live || self.waiters.contains_key(action))
            }
            whose => self.owned.following(whose, None, usize::MAX).len(),
        }
    }
}

/// There is something left to cancel: the provider has not given all of its answer yet.
const fn is_under_way(live: &Live) -> bool {
    !matches!(live.stage, Stage::Telling(_))
}
