//! What the journal must look like, event by event, whoever reads it: dense, chained, every end after its beginning,
//! boundaries that only move later, budgets that are kept.

use std::collections::BTreeMap;

use forbear_core::durable::Durable;
use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{ActionFinished, ActionRequested, Event, Fact, Outcome};
use forbear_core::ids::{ActionId, AttemptNo, ScopeId, Seq, TaskId};
use forbear_core::time::{Mono, Now, Wall};

use super::plan::{Plan, SCOPES_MAX, TASKS_MAX};
use super::world::World;

const MINUTE_MS: u64 = 60_000;

/// What the events and the provider's answers said so far.
pub(super) struct Ledger {
    pub(super) trails: BTreeMap<ActionId, Trail>,
    pub(super) scopes: [ScopeLedger; SCOPES_MAX],
    pub(super) cancelled: [bool; TASKS_MAX],
    /// Retries charged and not given back.
    pub(super) charged: [u64; TASKS_MAX],
    /// Retries that left, counted at the provider.
    pub(super) retries_left: [u64; TASKS_MAX],
    /// Retries taken back by a cancel when nobody could tell whether they had left.
    pub(super) unsure: [u64; TASKS_MAX],
    /// A crash or a failed flush lost events that nothing waited for.
    pub(super) lossy: bool,
    pub(super) clock_stepped: bool,
    pub(super) thawing: bool,
    pub(super) slack_ms: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Trail {
    last: Option<Seq>,
    pub(super) requested: bool,
    sent: u32,
    /// The retry that was charged and neither left nor came back.
    charged: Option<AttemptNo>,
    pub(super) ended: Option<(Outcome, Effect)>,
    pub(super) open_unknown: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ScopeLedger {
    /// By the journal.
    pub(super) until: Mono,
    /// By the answers that were read.
    pub(super) told_until: Mono,
    retries: Vec<(Mono, Option<ActionId>)>,
}

impl Ledger {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            trails: BTreeMap::new(),
            scopes: Default::default(),
            cancelled: [false; TASKS_MAX],
            charged: [0; TASKS_MAX],
            retries_left: [0; TASKS_MAX],
            unsure: [0; TASKS_MAX],
            lossy: false,
            clock_stepped: false,
            thawing: false,
            // A late timer, a late driver, a slow disk and a slow dial, each twice.
            slack_ms: 2 * (plan.wake_late_ms + plan.command_late_ms + plan.flush_ms_max + 17_000),
        }
    }
}

impl World<'_> {
    pub(super) fn scope_index(&self, scope: &ScopeId) -> usize {
        self.fixtures.scopes.iter().position(|s| s == scope).unwrap_or(0)
    }

    fn task_index(&self, task: &TaskId) -> usize {
        self.fixtures.tasks.iter().position(|t| t == task).unwrap_or(0)
    }

    /// Before the event enters the journal.
    pub(super) fn check_event(&mut self, event: &Event) {
        let due = self.store.appended + 1;
        if event.seq.0 != due {
            return self.fail("journal_is_dense", |_| format!("event {} where {due} is due", event.seq.0));
        }
        if let Err((check, message)) = self.read(event, self.now, true) {
            self.fail(check, |_| message);
        }
    }

    /// The journal was read back: the ledger knows what it knows, and nothing more.
    pub(super) fn rebuild_ledger(&mut self) {
        self.ledger.trails.clear();
        self.ledger.cancelled = [false; TASKS_MAX];
        self.ledger.charged = [0; TASKS_MAX];
        let crashed = self.core.is_none();
        if crashed {
            self.ledger.scopes = Default::default();
        }
        for scope in &mut self.ledger.scopes {
            scope.retries.clear();
        }
        let journal = std::mem::take(&mut self.store.journal);
        for entry in &journal {
            let read = self.read(&entry.event, entry.at, crashed);
            if let Err((check, message)) = read {
                self.fail(check, |_| format!("on reading back: {message}"));
            }
        }
        self.store.journal = journal;
    }

    fn read(&mut self, event: &Event, at: Now, scopes_too: bool) -> Result<(), (&'static str, String)> {
        if let Some(action) = event.action {
            self.read_trail(action, event)?;
        }
        match &event.fact {
            Fact::ActionRequested(requested) => self.same_key(event.action, requested),
            Fact::RetryScheduled { scope, task, wait_ms, scheduled_retry_at, retry_not_before, .. } => {
                let task = self.task_index(task);
                self.ledger.charged[task] += 1;
                if self.ledger.charged[task] > u64::from(self.plan.settings.task.max_retries) {
                    return Err(("budget_is_kept", format!("task t{task}: {} retries", self.ledger.charged[task])));
                }
                if retry_not_before.is_some_and(|b| *scheduled_retry_at < b) {
                    return Err((
                        "no_jitter_undercuts",
                        format!("event {}: scheduled before the boundary", event.seq.0),
                    ));
                }
                if *wait_ms < self.plan.settings.backoff.floor_ms {
                    return Err(("no_jitter_undercuts", format!("event {}: a wait of {wait_ms} ms", event.seq.0)));
                }
                self.scope_retry(scope, event.action, at)
            }
            Fact::RetryReturned { scope, task, .. } => {
                let (task, scope) = (self.task_index(task), self.scope_index(scope));
                self.ledger.charged[task] = self.ledger.charged[task].saturating_sub(1);
                let retries = &mut self.ledger.scopes[scope].retries;
                if let Some(i) = retries.iter().rposition(|(_, a)| *a == event.action) {
                    retries.remove(i);
                }
                Ok(())
            }
            Fact::ScopeUpdated(update) if scopes_too => self.moves_later(&update.scope, update.retry_not_before, at),
            Fact::TaskCancelled { task, .. } => {
                let task = self.task_index(task);
                self.ledger.cancelled[task] = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_trail(&mut self, action: ActionId, event: &Event) -> Result<(), (&'static str, String)> {
        let writes = self.call(action).is_some_and(|c| c.request.rank.writes());
        // What a read spent may be lost with a failed append.
        let whole = writes || !self.ledger.lossy;
        let trail = self.ledger.trails.entry(action).or_default();
        let name = format_args!("a{} event {}", action.0, event.seq.0);
        if event.prev != trail.last {
            return Err(("journal_is_chained", format!("{name}: prev {:?}, not {:?}", event.prev, trail.last)));
        }
        if trail.ended.is_some() {
            return Err(("one_outcome", format!("{name}: {:?} after {:?}", event.fact, trail.ended)));
        }
        trail.last = Some(event.seq);
        match &event.fact {
            Fact::ActionRequested(_) if trail.requested => {
                return Err(("one_outcome", format!("{name}: requested twice")));
            }
            Fact::ActionRequested(_) => trail.requested = true,
            Fact::ActionSent { attempt } => {
                if !trail.requested || attempt.0 <= trail.sent {
                    return Err(("intent_first", format!("{name}: sent #{} after #{}", attempt.0, trail.sent)));
                }
                trail.sent = attempt.0;
            }
            Fact::RetryScheduled { attempt, .. } => {
                let unspent = trail.charged.replace(*attempt).filter(|_| whole);
                return match unspent {
                    Some(last) => Err(("charged_once", format!("{name}: charged while #{} is unspent", last.0))),
                    None => Ok(()),
                };
            }
            Fact::RetryStarted { .. } if trail.charged.is_none() && whole => {
                return Err(("charged_once", format!("{name}: a retry that nothing charged")));
            }
            Fact::RetryReturned { attempt, .. } => {
                let spent = trail.charged.take();
                return match spent {
                    Some(charged) if charged == *attempt => Ok(()),
                    _ => Err(("charged_once", format!("{name}: #{} comes back", attempt.0))),
                };
            }
            Fact::ActionResult(result) if result.evidence != Evidence::NotSent => trail.charged = None,
            Fact::ActionFinished(finished) => return end(trail, finished, writes, &name),
            _ => {}
        }
        Ok(())
    }

    fn same_key(&self, action: Option<ActionId>, requested: &ActionRequested) -> Result<(), (&'static str, String)> {
        let given = action.and_then(|a| self.call(a)).map(|c| &c.request.key);
        match given {
            Some(key) if *key != requested.key => {
                Err(("key_is_unchanged", format!("{key:?} became {:?}", requested.key)))
            }
            _ => Ok(()),
        }
    }

    fn scope_retry(
        &mut self,
        scope: &ScopeId,
        action: Option<ActionId>,
        at: Now,
    ) -> Result<(), (&'static str, String)> {
        let (index, max) = (self.scope_index(scope), u64::from(self.plan.limits.max_retries_per_minute));
        let retries = &mut self.ledger.scopes[index].retries;
        retries.retain(|(when, _)| at.mono.ms_since(*when) < MINUTE_MS);
        retries.push((at.mono, action));
        let spent = retries.len() as u64;
        if spent > max && !self.ledger.clock_stepped {
            return Err(("budget_is_kept", format!("{scope}: {spent} retries in a minute")));
        }
        Ok(())
    }

    fn moves_later(&mut self, scope: &ScopeId, to: Option<Wall>, at: Now) -> Result<(), (&'static str, String)> {
        if self.ledger.thawing {
            // What was decided earlier is written now, in its old order.
            return Ok(());
        }
        if self.ledger.clock_stepped && self.core.is_some() {
            // Wall times of before and after a step are not comparable; what was told of heads still is.
            return Ok(());
        }
        let index = self.scope_index(scope);
        let known = &mut self.ledger.scopes[index].until;
        // Read back, it counts from the clock that is read now, or where that is behind from the one that wrote it.
        let back = Now { wall: self.now.wall.max(at.wall), ..self.now };
        let from = if self.core.is_none() { back } else { at };
        let until = to.map_or(Mono(0), |wall| from.mono_at(wall));
        if until < *known && *known > at.mono && self.core.is_some() {
            return Err(("boundary_moves_later", format!("{scope}: from {known:?} to {until:?}")));
        }
        *known = until;
        Ok(())
    }

    /// Reading the journal again gives the state that decides now.
    pub(super) fn check_replay(&mut self) {
        let Some(core) = self.core.as_ref().filter(|c| c.not_ready().is_none()) else { return };
        let mut again = Durable::default();
        for entry in &self.store.journal {
            again.apply(&entry.event);
        }
        if again != *core.durable_state() {
            let what = format!("replayed {again:?}\nlive {:?}", core.durable_state());
            self.fail("replay_is_exact", |_| what);
        }
    }
}

fn end(
    trail: &mut Trail,
    finished: &ActionFinished,
    writes: bool,
    name: &std::fmt::Arguments<'_>,
) -> Result<(), (&'static str, String)> {
    if trail.requested == finished.straight.is_some() {
        return Err(("one_outcome", format!("{name}: requested {} and straight", trail.requested)));
    }
    if !finished.outcome.is_terminal() {
        if std::mem::replace(&mut trail.open_unknown, true) {
            return Err(("one_outcome", format!("{name}: left unknown twice")));
        }
        return Ok(());
    }
    if writes && finished.effect == Effect::Unknown {
        return Err(("unknown_is_looked_up", format!("{name}: {} with an unknown effect", finished.outcome.as_str())));
    }
    trail.ended = Some((finished.outcome, finished.effect));
    Ok(())
}
