//! Sending: an attempt that has its slot, the plan of the next one, and its budgets.

use crate::action::admit::{must_be_durable, write_for};
use crate::action::leave::UNJOURNALED;
use crate::action::live::{Live, Stage};
use crate::action::observe;
use crate::action::turn::When;
use crate::backoff;
use crate::command::{Command, Commands, Dispatch};
use crate::coordinator::Coordinator;
use crate::effect::{Effect, Evidence};
use crate::event::{ActionResult, Fact, Outcome};
use crate::ids::{ActionId, AttemptNo, Seq};
use crate::policy::Rank;
use crate::register::WaitReason;
use crate::time::{Mono, Now};

/// How long a decision to send stays good: dialling and handshakes fit in, a suspended machine does not.
const SEND_WINDOW_MS: u64 = 15_000;

/// So that the draw of a boundary is no other draw.
const PURPOSE_BOUNDARY: u64 = 2;

/// When the next attempt is to leave, and why not sooner.
pub(crate) struct Plan {
    due: Mono,
    pub reason: WaitReason,
    /// The provider's own word on it.
    told: Option<Mono>,
    pub wait_ms: u64,
    wait_end: Mono,
}

impl Coordinator {
    pub(crate) fn jitter_ms(&self, action: ActionId, attempt: u32) -> u64 {
        let max = self.settings.pacing.jitter_ms;
        backoff::uniform(self.seed, action, AttemptNo(attempt), PURPOSE_BOUNDARY, max)
    }

    /// Its slot is taken: the next attempt goes out, after its intent is durable where that is due.
    pub(crate) fn send(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        let Some(live) = self.live.get_mut(&action) else { return };
        live.tried += 1;
        let attempt = AttemptNo(live.tried);
        live.stage = Stage::InFlight(attempt);
        let send_by = now.mono.plus_ms(SEND_WINDOW_MS);
        let (send_not_after, give_up_at) = if live.request.observe {
            (send_by, now.mono.plus_ms(observe::ANSWER_MS_MAX))
        } else {
            (live.last_instant(send_by), live.deadline)
        };
        let dispatch = Command::Dispatch(Dispatch {
            action,
            attempt,
            send_not_after,
            give_up_at,
            // What was lost on a kept connection may be lost on the next one that the same server gave up.
            fresh_connection: live.request.rank == Rank::UncertainWrite || live.unknown_resends > 0,
            doubts: self.doubts,
        });
        if !live.recorded {
            out.push(dispatch);
            return;
        }
        // Held back before its first byte, a first attempt has a second number and is no retry.
        let (write, retry) = (write_for(&live.request), live.charged.is_some());
        if retry {
            let fact = Fact::RetryStarted { attempt, retry_started_at: now.wall };
            self.emit(now, Some(action), fact, write, out);
        }
        let seq = self.emit(now, Some(action), Fact::ActionSent { attempt }, write, out);
        if write == crate::coordinator::Write::Ahead {
            self.gate.after(seq, dispatch, out);
        } else {
            out.push(dispatch);
        }
    }

    /// What waited for the journal goes on. Its scope may have closed meanwhile, or its task be gone: an attempt is asked
    /// about again.
    pub(crate) fn let_pass(&mut self, now: Now, seq: Seq, out: &mut Commands) {
        let mut passed = Commands::new();
        self.gate.durable(seq, &mut passed);
        for command in passed {
            match command {
                Command::Dispatch(d) if !self.confirm_send(now, d.action, d.attempt, out) => {}
                command => out.push(command),
            }
        }
    }

    /// Plans the next attempt, or ends the action.
    pub(crate) fn plan_retry(&mut self, now: Now, mut live: Box<Live>, why: &'static str, out: &mut Commands) {
        if self.gate.frozen().is_some() && must_be_durable(&live.request) {
            return self.stop_unjournaled(now, live, out);
        }
        if live.was_refused() {
            live.first_refusal.get_or_insert(now.mono);
        }
        let Plan { due, reason, told, wait_ms, wait_end } = match self.plan(now, &live) {
            Ok(plan) => plan,
            Err((outcome, why)) => return self.stop(now, live, outcome, why, out),
        };
        let action = live.request.action;
        let attempt = AttemptNo(live.tried + 1);
        let fact = Fact::RetryScheduled {
            attempt,
            scheduled_retry_at: now.wall_at(due),
            retry_not_before: told.map(|until| now.wall_at(until)),
            reason: format!("{why}; waits for {}", reason.as_str()),
            scope: live.request.scope.clone(),
            task: live.request.task.clone(),
            wait_ms,
        };
        let write = write_for(&live.request);
        live.charged = Some((attempt, wait_ms));
        let seq = self.emit(now, Some(action), fact, write, out);
        live.last_seq = Some(seq);
        let expires = live.last_instant(wait_end);
        self.wait(now, live, (due, When::Due), expires, reason, out);
    }

    /// The next attempt's instant, its reason, and whether every budget bears it. A wait that does not fit ends the action
    /// now instead of sleeping first.
    pub(crate) fn plan(&self, now: Now, live: &Live) -> Result<Plan, (Outcome, &'static str)> {
        let (since, bound_seconds, too_long) = if live.was_refused() {
            let since = live.first_refusal.unwrap_or(now.mono);
            (since, live.request.rule.max_wait_seconds, "the wait is longer than max_wait_seconds of its class")
        } else {
            let seconds = live.request.rule.max_queue_seconds;
            (live.came, seconds, "the wait is longer than max_queue_seconds of its class")
        };
        let (home, lane) = (self.scopes.get(&live.request.scope), &live.request.quota.lane);
        let line = home.and_then(|home| home.opens_at(now.mono, lane));
        let told = home.and_then(|home| home.told_until(now.mono, lane));
        let told = told.max(live.told_until.filter(|until| *until > now.mono));
        let (due, reason) = self.due(now, live, line);
        let wait_ms = due.ms_since(now.mono);
        let wait_end = since.plus_ms(bound_seconds.saturating_mul(1_000));
        let over = if due >= wait_end { Some(too_long) } else { self.over_budget(now, live, wait_ms) };
        if let Some(over) = over {
            return Err((Outcome::BudgetExhausted, over));
        }
        if due >= live.deadline {
            return Err((Outcome::DeadlineExhausted, "the wait would pass its deadline"));
        }
        if live.key_end().is_some_and(|end| due >= end) {
            return Err((Outcome::BudgetExhausted, "the provider may have forgotten its key when the wait ends"));
        }
        Ok(Plan { due, reason, told, wait_ms, wait_end })
    }

    /// The instant of the next attempt: never before the boundary, jitter only on top.
    fn due(&self, now: Now, live: &Live, line: Option<(Mono, WaitReason)>) -> (Mono, WaitReason) {
        let (action, attempt) = (live.request.action, AttemptNo(live.tried));
        // The draw that closed the scope, where it was this one: then it stands in line as all the others do.
        let jitter_ms = self.jitter_ms(action, attempt.0);
        let floor = now.mono.plus_ms(self.settings.backoff.floor_ms.saturating_add(jitter_ms));
        let told = live.told_until.filter(|until| *until > now.mono);
        let alone = told.map(|until| (until.plus_ms(jitter_ms), WaitReason::Boundary));
        if let Some((opens, reason)) = line.into_iter().chain(alone).max() {
            return (opens.max(floor), reason);
        }
        let retry = live.tried.max(1);
        let wait = backoff::wait_ms(&self.settings.backoff, self.seed, action, attempt, retry);
        (now.mono.plus_ms(wait), WaitReason::Backoff)
    }

    pub(crate) fn over_budget(&self, now: Now, live: &Live, wait_ms: u64) -> Option<&'static str> {
        let spent = self.durable.tasks.get(&live.request.task).copied().unwrap_or_default();
        let task = self.settings.task;
        let scope_retries = self.durable.retries_in_minute(&live.request.scope, now.wall);
        // Its scope's, as it is now; before the first call there, what this one brings.
        let limits = self.scopes.get(&live.request.scope).map_or(live.request.limits, |home| home.limits);
        if spent.retries >= task.max_retries {
            Some("its task has used max_retries")
        } else if spent.wait_ms.saturating_add(wait_ms) > task.max_wait_seconds.saturating_mul(1_000) {
            Some("its task has used max_wait_seconds")
        } else if scope_retries >= limits.max_retries_per_minute as usize {
            Some("its scope has used max_retries_per_minute")
        } else {
            None
        }
    }

    /// The scope closed between the decision and the first byte: back into the line, with nothing spent.
    pub(crate) fn hold_back(&mut self, now: Now, action: ActionId, attempt: AttemptNo, out: &mut Commands) {
        if self.draining {
            return self.never_left(now, action, Outcome::Deferred, "Forbear is shutting down", out);
        }
        if self.gate.frozen().is_some() && self.live.get(&action).is_some_and(|l| must_be_durable(&l.request)) {
            return self.never_left(now, action, Outcome::Shed, UNJOURNALED, out);
        }
        let Some(mut live) = self.live.remove(&action) else { return };
        let scope = live.request.scope.clone();
        let line = self.scopes.get(&scope).and_then(|home| home.opens_at(now.mono, &live.request.quota.lane));
        let (due, reason) = line.unwrap_or((now.mono, WaitReason::Boundary));
        self.record_unsent(now, &mut live, attempt, "held back: its scope closed before the first byte", out);
        self.release_only(&live);
        let start = live.first_refusal.unwrap_or(live.came);
        let rule = &live.request.rule;
        let seconds = if live.first_refusal.is_some() { rule.max_wait_seconds } else { rule.max_queue_seconds };
        let expires = live.last_instant(start.plus_ms(seconds.saturating_mul(1_000)));
        if due >= expires {
            self.give_up(now, live, out);
            return self.pump(now, &scope, out);
        }
        self.wait(now, live, (due, When::ItsTurn), expires, reason, out);
    }

    /// An announced attempt did not leave.
    pub(crate) fn record_unsent(
        &mut self,
        now: Now,
        live: &mut Live,
        attempt: AttemptNo,
        why: &str,
        out: &mut Commands,
    ) {
        if !live.recorded {
            return;
        }
        let result = ActionResult {
            attempt,
            evidence: Evidence::NotSent,
            effect: Effect::NotApplied,
            status: None,
            classification: None,
            transport: Some(why.to_owned()),
        };
        let write = write_for(&live.request);
        let seq = self.emit(now, Some(live.request.action), Fact::ActionResult(Box::new(result)), write, out);
        live.last_seq = Some(seq);
    }
}
