//! What the journal must look like, event by event, whoever reads it: dense, chained, every end after its beginning,
//! boundaries that only move later, budgets that are kept by the policy in force, and that policy named.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forbear_core::breaker::Circuit;
use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{ActionFinished, ActionRequested, Event, Fact, Outcome, ScopeUpdated};
use forbear_core::ids::{ActionId, AttemptNo, ScopeId, Seq, TaskId};
use forbear_core::time::{Mono, Now, Wall};

use super::calls::Calls;
use super::intents::{Fixtures, SCOPES_MAX, TASKS_MAX};
use super::policy::Policy;

const MINUTE_MS: u64 = 60_000;

/// What the events of one process said so far, and the answers that it read.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) trails: BTreeMap<ActionId, Trail>,
    pub(super) scopes: [ScopeLedger; SCOPES_MAX],
    pub(super) cancelled: [bool; TASKS_MAX],
    /// The run that all who name one have.
    pub(super) run_cancelled: bool,
    /// Actions that were here when they were cancelled: they stay so, whatever is taken back.
    pub(super) stopped: BTreeSet<ActionId>,
    /// What is open, and until when.
    pub(super) circuits: BTreeMap<Circuit, Mono>,
    /// Retries charged and not given back, and their waits.
    pub(super) charged: [u64; TASKS_MAX],
    /// Those of them that are repeats which were joined, and never sent.
    pub(super) joined: [u64; TASKS_MAX],
    /// Those of them that a layer below made.
    pub(super) below: [u64; TASKS_MAX],
    waited_ms: [u64; TASKS_MAX],
    /// Which policy is in force by what was decided last.
    pub(super) policy: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Trail {
    last: Option<Seq>,
    pub(super) requested: bool,
    sent: u32,
    /// The retry that was charged and neither left nor came back.
    pub(super) charged: Option<AttemptNo>,
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
    /// The limits that calls brought: at which step, how many at once, and whether the core surely took them over.
    pub(super) limits: Vec<(u64, u32, bool)>,
    /// When attempts were let out, as far as a window reaches.
    pub(super) let_out: VecDeque<Mono>,
}

/// How an event is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As it is decided.
    Live,
    /// Decided while the journal could not be written, and written now.
    Thawing,
    /// Read back by a process that goes on.
    Again,
    /// Read back by a new process, which knows nothing else.
    Afresh,
}

/// What a reader of the journal may know besides.
pub(super) struct Known<'a> {
    pub(super) fixtures: &'a Fixtures,
    pub(super) calls: &'a Calls,
    pub(super) policies: &'a [Policy],
    /// Which of them is loaded now.
    pub(super) loaded: usize,
    pub(super) now: Now,
    /// A crash or a failed flush lost events that nothing waited for.
    pub(super) lossy: bool,
    pub(super) clock_stepped: bool,
}

pub(super) type Finding = (&'static str, String);

impl Ledger {
    /// The journal was read back: the ledger knows what it says, and of what was heard since only what `how` allows.
    pub(super) fn forget(&mut self, how: Reading) {
        if how == Reading::Afresh {
            *self = Self::default();
            return;
        }
        let (scopes, policy) = (std::mem::take(&mut self.scopes), self.policy);
        let (circuits, stopped) = (std::mem::take(&mut self.circuits), std::mem::take(&mut self.stopped));
        let scopes = scopes.map(|s| ScopeLedger { retries: Vec::new(), ..s });
        *self = Self { scopes, policy, circuits, stopped, ..Self::default() };
    }

    pub(super) fn read(&mut self, event: &Event, at: Now, how: Reading, known: &Known<'_>) -> Result<(), Finding> {
        if let Fact::PolicyLoaded { digest, .. } = &event.fact {
            self.policy = known.policies.iter().position(|p| p.settings.digest == *digest).unwrap_or(0);
        }
        if how == Reading::Live && event.policy != known.policies[self.policy].name {
            return Err(("policy_is_named", format!("event {} names {}", event.seq.0, event.policy)));
        }
        if let Some(action) = event.action {
            self.read_trail(action, event, known)?;
        }
        match &event.fact {
            Fact::ActionRequested(requested) => same_key(event.action, requested, known),
            Fact::RetryScheduled { .. } => self.scheduled(event, decided(event, at), how, known),
            Fact::CallJoined { charged: Some(task), .. } => {
                let task = known.task_index(task);
                self.charged[task] += 1;
                self.joined[task] += 1;
                Ok(())
            }
            Fact::ActionResult(result) => {
                if let Some(below) = result.classification.as_ref().and_then(|c| c.below.as_ref()) {
                    self.revealed(event, below.retries, decided(event, at), known);
                }
                Ok(())
            }
            Fact::RetryReturned { scope, task, wait_ms, .. } => {
                let (task, scope) = (known.task_index(task), known.scope_index(scope));
                self.charged[task] = self.charged[task].saturating_sub(1);
                self.waited_ms[task] = self.waited_ms[task].saturating_sub(*wait_ms);
                let retries = &mut self.scopes[scope].retries;
                if let Some(i) = retries.iter().rposition(|(_, a)| *a == event.action) {
                    retries.remove(i);
                }
                Ok(())
            }
            Fact::ScopeUpdated(update) => self.moves_later(update, event.at, at, how, known),
            Fact::TaskCancelled { task, .. } => {
                self.cancelled[known.task_index(task)] = true;
                Ok(())
            }
            Fact::TaskReopened { task, .. } => {
                self.cancelled[known.task_index(task)] = false;
                Ok(())
            }
            Fact::RunCancelled { .. } => {
                self.run_cancelled = true;
                Ok(())
            }
            Fact::RunReopened { .. } => {
                self.run_cancelled = false;
                Ok(())
            }
            fact => {
                match how {
                    Reading::Live => self.switches(fact, at),
                    // Decided while nothing could be written: then by which clock is not known where that was stepped.
                    Reading::Thawing if known.clock_stepped && matches!(fact, Fact::CircuitOpened(_)) => {}
                    Reading::Thawing => self.switches(fact, decided(event, at)),
                    // Known already.
                    Reading::Again => {}
                    Reading::Afresh => self.switches_at_the_start(fact, event.at, known),
                }
                Ok(())
            }
        }
    }

    /// A circuit opens or closes.
    fn switches(&mut self, fact: &Fact, at: Now) {
        match fact {
            Fact::CircuitOpened(opened) => {
                self.circuits.insert(opened.circuit.clone(), at.mono_at(opened.until));
            }
            Fact::CircuitClosed { circuit, .. } => {
                self.circuits.remove(circuit);
            }
            _ => {}
        }
    }

    /// Read back, a circuit counts from the clock that is read now, or where that is behind from the one that wrote it; and
    /// not longer than if it had opened now.
    fn switches_at_the_start(&mut self, fact: &Fact, written: Wall, known: &Known<'_>) {
        self.switches(fact, Now { wall: known.now.wall.max(written), ..known.now });
        if let Fact::CircuitOpened(opened) = fact {
            let rule = &known.policies[known.loaded].settings.breakers;
            let longest = known.now.mono.plus_ms(rule.open_ms(&opened.circuit));
            self.circuits.entry(opened.circuit.clone()).and_modify(|until| *until = longest.min(*until));
        }
    }

    /// A layer below sent it more often than it was asked to.
    fn revealed(&mut self, event: &Event, retries: u32, at: Now, known: &Known<'_>) {
        let Some(request) = event.action.and_then(|a| known.calls.get(a)).map(|call| &call.request) else { return };
        let (task, scope) = (known.task_index(&request.task), known.scope_index(&request.scope));
        self.charged[task] += u64::from(retries);
        self.below[task] += u64::from(retries);
        // Of no action's: what is returned later is another retry.
        self.scopes[scope].retries.extend((0..retries).map(|_| (at.mono, None)));
    }

    /// A retry was planned: it costs its task and its scope, and waits long enough.
    fn scheduled(&mut self, event: &Event, at: Now, how: Reading, known: &Known<'_>) -> Result<(), Finding> {
        let Fact::RetryScheduled { attempt, scope, task, wait_ms, scheduled_retry_at, retry_not_before, .. } =
            &event.fact
        else {
            return Ok(());
        };
        let (task, scope) = (known.task_index(task), known.scope_index(scope));
        self.charged[task] += 1;
        self.waited_ms[task] += wait_ms;
        if retry_not_before.is_some_and(|b| *scheduled_retry_at < b) {
            return Err(("no_jitter_undercuts", format!("event {}: scheduled before the boundary", event.seq.0)));
        }
        let retries = &mut self.scopes[scope].retries;
        retries.retain(|(when, _)| at.mono.ms_since(*when) < MINUTE_MS);
        retries.push((at.mono, event.action));
        let spent = retries.len();
        if how != Reading::Live {
            // It was decided earlier, under the policy of that time and with what is lost since.
            return Ok(());
        }
        let settings = &known.policies[self.policy].settings;
        let (charged, waited_ms) = (self.charged[task], self.waited_ms[task]);
        if charged > u64::from(settings.task.max_retries) {
            return Err(("budget_is_kept", format!("task t{task}: {charged} retries")));
        }
        if waited_ms > settings.task.max_wait_seconds * 1_000 {
            return Err(("budget_is_kept", format!("task t{task}: {waited_ms} ms of waiting")));
        }
        // Before a first attempt it was the layer above that waited.
        if *wait_ms < settings.backoff.floor_ms && attempt.0 > 1 {
            return Err(("no_jitter_undercuts", format!("event {}: a wait of {wait_ms} ms", event.seq.0)));
        }
        // Whatever the call came with, its scope keeps to the policy that is loaded.
        let max = known.policies[self.policy].limits.max_retries_per_minute;
        if spent > max as usize && !known.clock_stepped {
            return Err(("budget_is_kept", format!("s{scope}: {spent} retries in a minute")));
        }
        Ok(())
    }

    fn read_trail(&mut self, action: ActionId, event: &Event, known: &Known<'_>) -> Result<(), Finding> {
        let writes = known.calls.get(action).is_some_and(|c| c.request.rank.writes());
        // What a read spent may be lost with a failed append.
        let whole = writes || !known.lossy;
        let trail = self.trails.entry(action).or_default();
        let name = format_args!("a{} event {}", action.0, event.seq.0);
        if event.prev != trail.last {
            return Err(("journal_is_chained", format!("{name}: prev {:?}, not {:?}", event.prev, trail.last)));
        }
        if trail.ended.is_some() && !matches!(event.fact, Fact::CallJoined { .. }) {
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

    fn moves_later(
        &mut self,
        update: &ScopeUpdated,
        written: Wall,
        at: Now,
        how: Reading,
        known: &Known<'_>,
    ) -> Result<(), Finding> {
        let from = match how {
            // What was decided earlier is written now in its old order, or known already.
            Reading::Thawing | Reading::Again => return Ok(()),
            // Wall times of before and after a step are not comparable; what was told of heads still is.
            Reading::Live if known.clock_stepped => return Ok(()),
            Reading::Live => at,
            // Read back, it counts from the clock that is read now, or where that is behind from the one that wrote it.
            Reading::Afresh => Now { wall: known.now.wall.max(written), ..known.now },
        };
        let scope = &update.scope;
        let until = update.retry_not_before.map_or(Mono(0), |wall| from.mono_at(wall));
        let before = &mut self.scopes[known.scope_index(scope)].until;
        if how == Reading::Live && until < *before && *before > at.mono {
            return Err(("boundary_moves_later", format!("{scope}: from {before:?} to {until:?}")));
        }
        *before = until;
        Ok(())
    }
}

impl Known<'_> {
    fn scope_index(&self, scope: &ScopeId) -> usize {
        self.fixtures.scopes.iter().position(|s| s == scope).unwrap_or(0)
    }

    fn task_index(&self, task: &TaskId) -> usize {
        self.fixtures.tasks.iter().position(|t| t == task).unwrap_or(0)
    }
}

/// When it was decided, which for what was held back by a full disk is before it was written.
fn decided(event: &Event, written: Now) -> Now {
    let since_ns = event.at.ms_until(written.wall).saturating_mul(1_000_000);
    Now { mono: Mono(written.mono.0.saturating_sub(since_ns)), wall: event.at }
}

fn same_key(action: Option<ActionId>, requested: &ActionRequested, known: &Known<'_>) -> Result<(), Finding> {
    let given = action.and_then(|a| known.calls.get(a)).map(|c| &c.request.key);
    match given {
        Some(key) if *key != requested.key => Err(("key_is_unchanged", format!("{key:?} became {:?}", requested.key))),
        _ => Ok(()),
    }
}

fn end(
    trail: &mut Trail,
    finished: &ActionFinished,
    writes: bool,
    name: &std::fmt::Arguments<'_>,
) -> Result<(), Finding> {
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
