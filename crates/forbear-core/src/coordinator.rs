//! The router: one door for everything that happens, over one small step a concern.
//!
//! `handle` decides and applies; `apply` (in [`crate::durable`]) is the only place where durable state changes;
//! `next_wakeup` says when time alone will matter, and why. The caller holds one lock around it all and runs the
//! commands after giving the lock back, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::action::cancel::{AllStopping, Owned};
use crate::action::live::{Live, Stage};
use crate::action::repeat::Waiter;
use crate::action::resend::Recent;
use crate::advice::Advisor;
use crate::breaker::Breakers;
use crate::command::{Command, Commands};
use crate::durable::Durable;
use crate::event::{EVENT_VERSION, Event, Fact, Outcome};
use crate::gate::Gate;
use crate::home::Home;
use crate::ids::{ActionId, AttemptNo, PolicyMark, ScopeId, Seq};
use crate::input::{Input, Settings};
use crate::register::WaitReason;
use crate::time::{Mono, Now, Wall};

/// Why the core wants to be called at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// More of what was cancelled is to be told.
    Stop,
    /// A waiting action reaches its deadline or the end of its waiting budget.
    Expiry,
    /// Somebody in a scope's line becomes due.
    Line(WaitReason),
}

#[derive(Debug)]
pub struct Coordinator {
    pub(crate) settings: Arc<Settings>,
    pub(crate) policy: PolicyMark,
    pub(crate) seed: u64,
    pub(crate) gate: Gate,
    pub(crate) durable: Durable,
    /// By the home scope.
    pub(crate) scopes: BTreeMap<ScopeId, Home>,
    /// Scopes below all homes.
    pub(crate) narrow_scopes: usize,
    /// Boundaries that the journal knew at the start, of scopes that no one has asked for since.
    pub(crate) closed_at_start: BTreeMap<ScopeId, Mono>,
    pub(crate) live: BTreeMap<ActionId, Box<Live>>,
    /// Calls that wait for the result of a live action.
    pub(crate) waiters: BTreeMap<ActionId, Waiter>,
    /// Calls without lasting effect that may be made again.
    pub(crate) recent: Recent,
    /// When each of those that wait gives up.
    pub(crate) expiries: BTreeSet<(Mono, ActionId)>,
    /// When each scope's line is to be looked at; one entry a scope.
    pub(crate) looks: BTreeSet<(Mono, ScopeId)>,
    pub(crate) next_look: BTreeMap<ScopeId, (Mono, WaitReason)>,
    pub(crate) order: u64,
    pub(crate) draining: bool,
    pub(crate) store_full: bool,
    pub(crate) doubts: u64,
    pub(crate) advisor: Advisor,
    pub(crate) breakers: Breakers,
    pub(crate) owned: Owned,
    pub(crate) stopping: AllStopping,
    /// When idle scopes may be looked for again.
    pub(crate) next_sweep: Mono,
    /// The furthest that the wall clock was seen ahead of the monotonic one, in milliseconds.
    ahead_ms: i64,
}

impl Coordinator {
    #[must_use]
    pub fn new(settings: Arc<Settings>, seed: u64, durable: Durable) -> Self {
        let mut this = Self {
            policy: PolicyMark::new(""),
            settings: Arc::clone(&settings),
            seed,
            gate: Gate::resume(durable.seq),
            durable,
            scopes: BTreeMap::new(),
            narrow_scopes: 0,
            closed_at_start: BTreeMap::new(),
            live: BTreeMap::new(),
            waiters: BTreeMap::new(),
            recent: Recent::default(),
            expiries: BTreeSet::new(),
            looks: BTreeSet::new(),
            next_look: BTreeMap::new(),
            order: 0,
            draining: false,
            store_full: false,
            doubts: 0,
            advisor: Advisor::default(),
            breakers: Breakers::default(),
            owned: Owned::default(),
            stopping: AllStopping::default(),
            next_sweep: Mono(0),
            ahead_ms: i64::MIN,
        };
        this.use_settings(settings);
        this
    }

    /// Decides, applies, and says what is to be done. It cannot fail: what makes no sense (a late result, an unknown
    /// action) changes nothing.
    pub fn handle(&mut self, now: Now, input: Input) -> Commands {
        let mut out = Commands::new();
        self.ahead_ms = self.ahead_ms.max(ahead_ms(now));
        // A timer may be late: whoever gives up before now does so before anything else is decided.
        let gives_up = !matches!(input, Input::AppendFailed { .. });
        let told = if gives_up { self.refusal_of_who_gives_up(now, &input) } else { None };
        if gives_up {
            self.give_up_due(now, &mut out);
        }
        if let Some(told) = told {
            self.close_for_all(now, told, &mut out);
        }
        if !leaves_attempts_alone(&input) {
            self.doubts += 1;
        }
        match input {
            Input::Request(request) => self.admit(now, request, &mut out),
            Input::Result { action, attempt, report } => self.result(now, action, attempt, *report, &mut out),
            Input::AnswerRead { action, attempt, end } => self.answer_read(now, action, attempt, end, &mut out),
            Input::Ended { action, attempt, end } => self.ended(now, action, attempt, end, &mut out),
            Input::AgentLeft { action } => self.agent_left(now, action, &mut out),
            Input::Cancel { whose, by } => self.cancel(now, whose, by, &mut out),
            Input::Reopen { whose, by } => self.reopen(now, &whose, by, &mut out),
            Input::Durable { seq } => self.let_pass(now, seq, &mut out),
            Input::AppendFailed { why } => self.freeze(now, why, &mut out),
            Input::StoreFull(full) => self.store_full = full,
            Input::PolicyLoaded { settings, by } => self.load_policy(now, settings, by, &mut out),
            Input::Refused { action, attempt, scope, lane, head } => {
                self.close_scope(now, &scope, &lane, (action, attempt), &head.classification, &mut out);
            }
            Input::Drain => self.drain(now, &mut out),
            Input::DrainOver => self.drain_over(now, &mut out),
            Input::Wake => {
                self.stop_some(now, &mut out);
                self.wake(now, &mut out);
            }
        }
        // Last: an answer that came as late still says what it says of its scope.
        if gives_up {
            self.stop_expecting(now, &mut out);
        }
        out
    }

    /// The next instant at which time alone changes something.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<(Mono, WakeReason)> {
        let expiry = self.expiries.first().map(|(at, _)| *at).into_iter().chain(self.recent.next_expected()).min();
        let expiry = expiry.map(|at| (at, WakeReason::Expiry));
        let look = self.looks.first().map(|(at, scope)| {
            let reason = self.next_look.get(scope).map_or(WaitReason::Backoff, |(_, reason)| *reason);
            (*at, WakeReason::Line(reason))
        });
        let stop = self.next_stop().map(|at| (at, WakeReason::Stop));
        stop.into_iter().chain(expiry).chain(look).min()
    }

    /// Asked right before an attempt's first byte, when time passed since it was decided. False: it does not leave;
    /// the action waits again or is gone.
    pub fn confirm_send(&mut self, now: Now, action: ActionId, attempt: AttemptNo, out: &mut Commands) -> bool {
        let Some(live) = self.live.get(&action) else { return false };
        if live.stage != Stage::InFlight(attempt) {
            return false;
        }
        let stopped = self.stopped(&live.request.task, live.request.run_name());
        if let Some(why) = live.follow_only.or(stopped) {
            self.never_left(now, action, Outcome::Cancelled, why, out);
            return false;
        }
        if !self.is_still_alone(now, action, attempt, out) {
            return false;
        }
        let Some(live) = self.live.get(&action) else { return false };
        let home = self.scopes.get(&live.request.scope);
        let is_closed = home.is_some_and(|home| home.is_closed(now.mono, &live.request.quota.lane));
        if live.request.observe || !is_closed {
            return true;
        }
        self.hold_back(now, action, attempt, out);
        false
    }

    /// Grows with everything that may take an attempt back that was decided and has not left: a scope that closes, a task
    /// that is cancelled, an agent that leaves, a write that becomes unknown or is done untold. While it stands, [`Coordinator::confirm_send`] says yes.
    #[must_use]
    pub const fn doubts(&self) -> u64 {
        self.doubts
    }

    /// Why new work is refused, if it is.
    #[must_use]
    pub fn not_ready(&self) -> Option<&str> {
        match self.gate.frozen() {
            Some(why) => Some(why),
            None if self.draining => Some("shutting down"),
            None => None,
        }
    }

    #[must_use]
    pub const fn durable_state(&self) -> &Durable {
        &self.durable
    }

    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.gate.last_seq()
    }

    /// Actions that hold a slot or wait for one.
    #[must_use]
    pub fn live_actions(&self) -> usize {
        self.live.len()
    }

    /// Writes an event: applied now, appended in order. While frozen it is applied in memory and kept for the thaw.
    pub(crate) fn emit(
        &mut self,
        now: Now,
        action: Option<ActionId>,
        fact: Fact,
        write: Write,
        out: &mut Commands,
    ) -> Seq {
        let live = action.and_then(|a| self.live.get_mut(&a));
        let last_seq = match live {
            Some(live) => Some(&mut live.last_seq),
            None => action.and_then(|a| self.recent.last_seq(a)),
        };
        let prev = last_seq.as_ref().and_then(|last| **last);
        let prev = prev.or_else(|| action.and_then(|a| self.durable.open.get(&a)).map(|o| o.last_seq));
        let frozen = self.gate.frozen().is_some();
        let seq = if frozen { self.gate.last_seq() } else { self.gate.next_seq() };
        if let Some(last) = last_seq {
            *last = Some(seq);
        }
        let event = Event { v: EVENT_VERSION, seq, at: now.wall, action, prev, policy: self.policy.clone(), fact };
        self.durable.apply(&event);
        if frozen {
            self.gate.keep(now.wall, action, event.fact, write != Write::Behind);
        } else {
            if write != Write::Behind {
                self.gate.remember(seq, now.wall, action, &event.fact);
            }
            out.push(Command::Append { event: Box::new(event), behind: write != Write::Ahead });
        }
        seq
    }

    /// The wall clock as if it had never been stepped back in this process: what ages by it never grows younger.
    pub(crate) fn latest_wall(&self, now: Now) -> Wall {
        Wall(now.wall.0.saturating_add(self.ahead_ms.saturating_sub(ahead_ms(now)).max(0)))
    }

    pub(crate) fn use_settings(&mut self, settings: Arc<Settings>) {
        self.policy = PolicyMark::new(&settings.digest.to_string()[..16]);
        self.settings = settings;
    }
}

/// What only adds to what may leave, or ends what has left. A scope that an answer closes counts for itself.
const fn leaves_attempts_alone(input: &Input) -> bool {
    matches!(
        input,
        Input::Request(_)
            | Input::Result { .. }
            | Input::AnswerRead { .. }
            | Input::Ended { .. }
            | Input::Durable { .. }
            | Input::StoreFull(_)
            | Input::Wake
    )
}

fn ahead_ms(now: Now) -> i64 {
    now.wall.0.saturating_sub((now.mono.0 / 1_000_000).cast_signed())
}

/// How an event reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Somebody waits for it: flush soon.
    Ahead,
    /// In the same order, without waking the writer; kept if the append fails.
    Kept,
    /// In the same order, without waking the writer. A failed append may lose it.
    Behind,
}
