//! Who waits at a home scope, and whose turn is next.
//!
//! Turns go by priority first, each class with its weight, so that the lowest waits longer and never for ever. Inside a class
//! the lanes whose scopes are open take turns, inside a lane the tenants, inside a tenant the tasks, and inside a task who
//! came first goes first. With weights `w` of `W` in all, `l` lanes, `t` tenants in the lane and `k` tasks of the tenant, the
//! `n`th waiting action of a task leaves after at most `n · k · t · l` turns of its class, and its class has `w` of every
//! `W` turns of the scope: `n · k · t · l · ⌈W / w⌉` turns while its lane stays open.
//!
//! Tasks take turns by rounds: what comes is put into the round after its task's last one and after the current one. So
//! neither a long queue of one task nor a stream of tasks with new names holds anybody up for more than a round each.
//!
//! It knows no clock but the instants that it is given, and nothing of what keeps a lane closed.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::ids::{ActionId, TaskId, TenantId};
use crate::lane::Lane;
use crate::policy::Priority;
use crate::time::Mono;

const CLASSES: usize = Priority::ALL.len();

/// Who waits, with all that its turn depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    pub lane: Lane,
    pub priority: Priority,
    pub tenant: TenantId,
    pub task: TaskId,
    /// In which order actions came.
    pub order: u64,
    pub action: ActionId,
    /// Nothing was sent for it yet: it may be told to come again where a full line has no place for a higher priority.
    pub is_new: bool,
}

/// Where an action stands in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// It leaves no sooner, whoever else may.
    pub due: Mono,
    pub order: u64,
    /// Its turn among the tasks of its tenant, once it is due.
    pub round: Option<u64>,
}

#[derive(Debug)]
pub struct Line {
    /// Not due yet: retries that wait for themselves.
    later: BTreeMap<(Mono, u64), Waiter>,
    lanes: BTreeMap<Lane, [Class; CLASSES]>,
    weights: [u32; CLASSES],
    /// Turns that each class has left before all have theirs again.
    turns: [u32; CLASSES],
    /// The lane that each class served last.
    last_lane: [Option<Lane>; CLASSES],
    /// Those that are new, by when they came.
    new: [BTreeMap<u64, ActionId>; CLASSES],
    waiting: usize,
}

impl Line {
    #[must_use]
    pub const fn new(weights: [u32; CLASSES]) -> Self {
        Self {
            later: BTreeMap::new(),
            lanes: BTreeMap::new(),
            weights,
            turns: weights,
            last_lane: [const { None }; CLASSES],
            new: [const { BTreeMap::new() }; CLASSES],
            waiting: 0,
        }
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.waiting
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub const fn set_weights(&mut self, weights: [u32; CLASSES]) {
        self.weights = weights;
    }

    /// Puts an action in: where its turn comes, and is told in which round.
    pub fn enter(&mut self, waiter: Waiter) -> u64 {
        self.counts(&waiter);
        self.line_up(waiter)
    }

    fn counts(&mut self, waiter: &Waiter) {
        self.waiting += 1;
        if waiter.is_new {
            self.new[waiter.priority.index()].insert(waiter.order, waiter.action);
        }
    }

    /// Who gives its place up for one of `priority`: of the lowest below it the one that came last, of those that are new.
    #[must_use]
    pub fn gives_way_to(&self, priority: Priority) -> Option<ActionId> {
        let below = self.new.iter().skip(priority.index() + 1);
        below.rev().find_map(|new| new.last_key_value()).map(|(_, action)| *action)
    }

    /// Puts an action aside until it is due.
    pub fn set_aside(&mut self, due: Mono, waiter: Waiter) {
        self.counts(&waiter);
        self.later.insert((due, waiter.order), waiter);
    }

    /// The next one that became due, with the round that it was given.
    pub fn take_due(&mut self, now: Mono) -> Option<(ActionId, u64)> {
        let first = self.later.first_entry().filter(|entry| entry.key().0 <= now)?;
        let waiter = first.remove();
        Some((waiter.action, self.line_up(waiter)))
    }

    fn line_up(&mut self, waiter: Waiter) -> u64 {
        let Waiter { lane, priority, tenant, task, order, action, .. } = waiter;
        let classes = self.lanes.entry(lane).or_default();
        classes[priority.index()].tenants.entry(tenant).or_default().enter(task, order, action)
    }

    /// Takes an action out, wherever it stands. False: it does not wait here.
    pub fn leave(&mut self, place: &Place, waiter: &Waiter) -> bool {
        let was_here = match place.round {
            None => self.later.remove(&(place.due, place.order)).is_some(),
            Some(round) => self.take(waiter, round),
        };
        self.waiting -= usize::from(was_here);
        self.new[waiter.priority.index()].remove(&waiter.order);
        was_here
    }

    fn take(&mut self, waiter: &Waiter, round: u64) -> bool {
        let Some(classes) = self.lanes.get_mut(&waiter.lane) else { return false };
        let class = &mut classes[waiter.priority.index()];
        let Some(tasks) = class.tenants.get_mut(&waiter.tenant) else { return false };
        let was_here = tasks.leave(round, waiter.order);
        if tasks.waiting.is_empty() {
            class.tenants.remove(&waiter.tenant);
        }
        if classes.iter().all(|class| class.tenants.is_empty()) {
            self.lanes.remove(&waiter.lane);
        }
        was_here
    }

    /// Whose turn it is, of those that `may_leave` lets. The turn is taken only by [`Line::serve`].
    pub fn next(&self, may_leave: impl Fn(&Lane, Priority, ActionId) -> bool) -> Option<Turn> {
        let of_class = |priority: Priority| {
            let lane = self.lane_in_turn(priority, |lane, action| may_leave(lane, priority, action))?;
            Some(Turn { priority, lane: lane.clone(), action: self.head(lane, priority)? })
        };
        let has_turns = |priority: &&Priority| self.turns[priority.index()] > 0;
        let with_turns = Priority::ALL.iter().filter(has_turns).find_map(|priority| of_class(*priority));
        // Nobody who still has a turn can use it: all have theirs again.
        with_turns.or_else(|| Priority::ALL.iter().filter(|p| !has_turns(p)).find_map(|priority| of_class(*priority)))
    }

    /// The lane after the one that this class served last, in a circle, whose head may leave.
    fn lane_in_turn(&self, priority: Priority, may_leave: impl Fn(&Lane, ActionId) -> bool) -> Option<&Lane> {
        let can = |(lane, classes): &(&Lane, &[Class; CLASSES])| {
            classes[priority.index()].head().is_some_and(|action| may_leave(lane, action))
        };
        let found = match &self.last_lane[priority.index()] {
            Some(last) => self
                .lanes
                .range::<Lane, _>((Excluded(last), Unbounded))
                .chain(self.lanes.range::<Lane, _>(..=last))
                .find(can),
            None => self.lanes.iter().find(can),
        };
        found.map(|(lane, _)| lane)
    }

    fn head(&self, lane: &Lane, priority: Priority) -> Option<ActionId> {
        self.lanes.get(lane).and_then(|classes| classes[priority.index()].head())
    }

    /// The turn is taken: the action is out of the line.
    pub fn serve(&mut self, turn: &Turn) {
        let class = turn.priority.index();
        if self.turns[class] == 0 {
            self.turns = self.weights;
        }
        self.turns[class] = self.turns[class].saturating_sub(1);
        let Some(classes) = self.lanes.get_mut(&turn.lane) else { return };
        let Some(order) = classes[class].serve() else { return };
        self.new[class].remove(&order);
        self.waiting -= 1;
        if classes.iter().all(|class| class.tenants.is_empty()) {
            self.lanes.remove(&turn.lane);
        }
        self.last_lane[class] = Some(turn.lane.clone());
    }

    /// The head of each lane and class whose turn has come, and the instant and lane of the next that becomes due.
    pub fn heads(&self) -> impl Iterator<Item = (&Lane, Priority, ActionId)> {
        self.lanes.iter().flat_map(|(lane, classes)| {
            let head = move |priority: &Priority| Some((lane, *priority, classes[priority.index()].head()?));
            Priority::ALL.iter().filter_map(head)
        })
    }

    /// Who becomes due next, and when.
    #[must_use]
    pub fn next_due(&self) -> Option<(Mono, &Waiter)> {
        self.later.first_key_value().map(|((due, _), waiter)| (*due, waiter))
    }

    /// Whether somebody stands in this lane whose turn only its scopes hold up.
    #[must_use]
    pub fn has_lane(&self, lane: &Lane) -> bool {
        self.lanes.contains_key(lane)
    }

    /// Everybody who waits, in no order that a turn depends on.
    pub fn all(&self) -> impl Iterator<Item = (&Lane, ActionId)> {
        let later = self.later.values().map(|waiter| (&waiter.lane, waiter.action));
        let lined_up = self.lanes.iter().flat_map(|(lane, classes)| {
            let tenants = classes.iter().flat_map(|class| class.tenants.values());
            tenants.flat_map(|tasks| tasks.waiting.values()).map(move |(action, _)| (lane, *action))
        });
        later.chain(lined_up)
    }
}

/// One turn: whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub priority: Priority,
    pub lane: Lane,
    pub action: ActionId,
}

/// Those of one priority in one lane.
#[derive(Debug, Default)]
struct Class {
    tenants: BTreeMap<TenantId, Tasks>,
    last: Option<TenantId>,
}

impl Class {
    fn tenant_in_turn(&self) -> Option<&TenantId> {
        let after =
            self.last.as_ref().and_then(|last| self.tenants.range::<TenantId, _>((Excluded(last), Unbounded)).next());
        after.or_else(|| self.tenants.first_key_value()).map(|(tenant, _)| tenant)
    }

    fn head(&self) -> Option<ActionId> {
        let tasks = self.tenants.get(self.tenant_in_turn()?)?;
        tasks.waiting.first_key_value().map(|(_, (action, _))| *action)
    }

    fn serve(&mut self) -> Option<u64> {
        let tenant = self.tenant_in_turn().cloned()?;
        let tasks = self.tenants.get_mut(&tenant)?;
        let order = tasks.serve();
        if tasks.waiting.is_empty() {
            self.tenants.remove(&tenant);
        }
        self.last = Some(tenant);
        order
    }
}

/// The tasks of one tenant in one lane and class.
#[derive(Debug, Default)]
struct Tasks {
    /// By round, then by who came first.
    waiting: BTreeMap<(u64, u64), (ActionId, TaskId)>,
    /// The round of what was served last.
    current: u64,
    /// Of each task that waits.
    rounds: BTreeMap<TaskId, Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    last: u64,
    waiting: u32,
}

impl Tasks {
    fn enter(&mut self, task: TaskId, order: u64, action: ActionId) -> u64 {
        let rounds = self.rounds.entry(task.clone()).or_default();
        rounds.last = rounds.last.max(self.current) + 1;
        rounds.waiting += 1;
        let round = rounds.last;
        self.waiting.insert((round, order), (action, task));
        round
    }

    fn leave(&mut self, round: u64, order: u64) -> bool {
        let Some((_, task)) = self.waiting.remove(&(round, order)) else { return false };
        self.forget(&task);
        true
    }

    fn serve(&mut self) -> Option<u64> {
        let ((round, order), (_, task)) = self.waiting.pop_first()?;
        self.current = round;
        self.forget(&task);
        Some(order)
    }

    fn forget(&mut self, task: &TaskId) {
        let Some(rounds) = self.rounds.get_mut(task) else { return };
        rounds.waiting -= 1;
        if rounds.waiting == 0 {
            self.rounds.remove(task);
        }
    }
}

#[cfg(test)]
mod tests;
