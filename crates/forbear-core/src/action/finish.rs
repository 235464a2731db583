//! Ends: the one place where an action gets its outcome, and where Forbear's own answers are made.

use crate::action::admit::write_for;
use crate::action::live::Live;
use crate::command::{Answer, Command, Commands, Problem, SafeNext, Stamp};
use crate::coordinator::{Coordinator, Write};
use crate::effect::Effect;
use crate::event::{ActionFinished, Fact, Outcome, Straight, WaitedFor};
use crate::ids::{AttemptNo, Seq};
use crate::input::Request;
use crate::register::closed_wall;
use crate::time::{Now, Wall};

impl Coordinator {
    /// Records the outcome. The live half is gone after this; the slot is the caller's to give back.
    pub(crate) fn finish(
        &mut self,
        now: Now,
        live: &mut Live,
        outcome: Outcome,
        reason: Option<String>,
        out: &mut Commands,
    ) -> Seq {
        // Who joined is given a copy, and nobody hears whether it came.
        let heard = live.agent_here;
        let r = &live.request;
        let straight = (!live.recorded).then(|| Straight {
            task: r.task.clone(),
            run: r.run.clone(),
            scope: r.scope.clone(),
            tenant: r.tenant.clone(),
            route: r.route.clone(),
            class: r.class.clone(),
        });
        let finished = ActionFinished {
            outcome,
            effect: live.effect,
            attempts: live.sends,
            waited_ms: live.waited_ms,
            status: live.last.as_ref().map(|l| l.status),
            reason,
            waited_for: live
                .waited_for
                .filter(|_| live.waited_ms > 0)
                .map(|(reason, until)| WaitedFor { reason: reason.as_str().to_owned(), until }),
            straight,
            agent_left: live.recorded && r.rank.writes() && !heard,
            refused: live.refused,
        };
        // A proven end follows from what is already written; an open one must be found again after a crash.
        let write = match write_for(r) {
            Write::Ahead if outcome.is_terminal() && live.recorded => Write::Kept,
            _ if outcome.is_terminal() => Write::Behind,
            _ => Write::Ahead,
        };
        if r.rank.writes() && (outcome == Outcome::OutcomeUnknown || finished.agent_left) {
            // An equal one that has not left yet must not.
            self.doubts += 1;
        }
        let action = r.action;
        self.forget_call(r);
        self.owned.leave(&r.task, r.run_name(), action);
        let seq = self.emit(now, Some(action), Fact::ActionFinished(Box::new(finished)), write, out);
        live.last_seq = Some(seq);
        if live.recorded && outcome.is_terminal() && live.request.rank.writes() {
            self.gate.after(seq, Command::ForgetContent { action }, out);
        }
        seq
    }

    /// Ends without a further attempt. What this means to the agent depends on what the attempts left behind.
    pub(crate) fn stop(&mut self, now: Now, mut live: Box<Live>, wanted: Outcome, why: &str, out: &mut Commands) {
        let attempt = AttemptNo(live.tried);
        self.give_back(now, &mut live, out);
        match stopped(&live, wanted) {
            Outcome::OutcomeUnknown => self.leave_unknown(now, live, attempt, why, out),
            outcome => self.end_with_answer(now, live, outcome, why, None, out),
        }
    }

    pub(crate) fn defer(&mut self, now: Now, mut live: Box<Live>, why: &str, seconds: u64, out: &mut Commands) {
        self.give_back(now, &mut live, out);
        self.end_with_answer(now, live, Outcome::Deferred, why, Some(seconds), out);
    }

    /// Nobody knows whether it was done: the action stays open, and the agent is told all that is known.
    pub(crate) fn leave_unknown(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        attempt: AttemptNo,
        why: &str,
        out: &mut Commands,
    ) {
        let action = live.request.action;
        let answer = self.answer_of(now, &live, Outcome::OutcomeUnknown, why);
        let fact = Fact::ReconciliationRequired { attempt, reason: why.to_owned() };
        self.emit(now, Some(action), fact, Write::Ahead, out);
        let seq = self.finish(now, &mut live, Outcome::OutcomeUnknown, Some(why.to_owned()), out);
        self.tell(&mut live, answer, seq, out);
    }

    /// Ends. The answer is given also where the agent has gone: it is the call's end, and whoever carries it waits for it.
    pub(crate) fn end_with_answer(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        outcome: Outcome,
        why: &str,
        retry_after_seconds: Option<u64>,
        out: &mut Commands,
    ) {
        let mut answer = self.answer_of(now, &live, outcome, why);
        answer.retry_after_seconds = retry_after_seconds;
        let told_after = self.boundary_seq(&live.request);
        self.finish(now, &mut live, outcome, Some(why.to_owned()), out);
        if matches!(outcome, Outcome::BudgetExhausted | Outcome::DeadlineExhausted) {
            self.keep_result(now, &live, &answer);
        }
        self.tell(&mut live, answer, told_after, out);
    }

    /// What an answer of this scope waits for: who is told of a boundary can rely on it, whatever crashes then.
    pub(crate) fn boundary_seq(&self, request: &Request) -> Seq {
        let seq = self.scopes.get(&request.scope).map_or(Seq(0), |home| home.boundary_seq(&request.quota.lane));
        // After a thaw the journal may count from less.
        seq.min(self.gate.last_seq())
    }

    pub(crate) fn answer_of(&self, now: Now, live: &Live, outcome: Outcome, why: &str) -> Answer {
        let writes = live.request.rank.writes();
        let provider_status = live.last.as_ref().map(|l| l.status);
        let next = self.closed_wall(now, &live.request);
        let own = live.last.as_ref().and_then(|l| l.classification.boundary.as_ref()).map(|b| b.until);
        Answer {
            status: http_status(outcome, writes, provider_status),
            stamp: Stamp { outcome, attempts: live.sends, waited_ms: live.waited_ms },
            sent: live.sends > 0,
            answered: live.last.is_some(),
            effect: live.effect,
            provider_status,
            provider_code: live.last.as_ref().and_then(|l| l.classification.code.clone()),
            next_allowed_at: later_than(now.wall, next.into_iter().chain(own).max()),
            retry_after_seconds: None,
            about: live.request.action,
            reason: why.to_owned(),
            safe_next: safe_next(live, outcome),
            problem: Problem::OfOutcome,
            joined: None,
        }
    }

    /// The wall time until which one of the call's scopes is closed.
    fn closed_wall(&self, now: Now, request: &Request) -> Option<Wall> {
        let home = self.scopes.get(&request.scope)?;
        let ids = std::iter::once(&request.scope).chain(request.quota.lane.scopes());
        let closed = ids.filter_map(|id| {
            let written = self.durable.scopes.get(id).and_then(|record| record.retry_not_before);
            closed_wall(home.scope_of(&request.scope, id)?, written, now)
        });
        closed.max()
    }

    /// A charged retry that never left costs nothing.
    pub(crate) fn give_back(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        let Some((attempt, wait_ms)) = live.charged.take() else { return };
        let fact = Fact::RetryReturned {
            attempt,
            scope: live.request.scope.clone(),
            task: live.request.task.clone(),
            wait_ms,
        };
        let write = write_for(&live.request);
        let seq = self.emit(now, Some(live.request.action), fact, write, out);
        live.last_seq = Some(seq);
    }
}

/// How an action ends that is to end without a further attempt.
pub(crate) fn stopped(live: &Live, wanted: Outcome) -> Outcome {
    let writes = live.request.rank.writes();
    if writes && live.effect == Effect::Unknown {
        Outcome::OutcomeUnknown
    } else if writes && live.last.is_none() && wanted == Outcome::BudgetExhausted {
        Outcome::NotApplied
    } else {
        wanted
    }
}

fn later_than(now: Wall, at: Option<Wall>) -> Option<Wall> {
    at.filter(|at| *at > now)
}

/// The table of DESIGN section 5. 409, 502 and 503 are never ours: clients repeat them.
pub(crate) fn http_status(outcome: Outcome, writes: bool, provider: Option<u16>) -> u16 {
    match outcome {
        Outcome::Shed | Outcome::Deferred => 429,
        Outcome::Cancelled => 410,
        Outcome::Denied => 403,
        Outcome::OutcomeUnknown | Outcome::NotApplied => 422,
        Outcome::DeadlineExhausted if writes => 422,
        Outcome::DeadlineExhausted => 504,
        Outcome::BudgetExhausted
        | Outcome::CircuitOpen
        | Outcome::Succeeded
        | Outcome::Rejected
        | Outcome::StreamIncomplete => match provider {
            // An error inside a success must not come back as one.
            Some(status) if status >= 400 && (!writes || !matches!(status, 408 | 409 | 500..=599)) => status,
            _ if writes => 422,
            _ => 504,
        },
    }
}

fn safe_next(live: &Live, outcome: Outcome) -> Vec<SafeNext> {
    let agent_key = live
        .request
        .key
        .as_ref()
        .is_some_and(|k| k.retention_seconds.is_some() && k.origin != crate::event::KeyOrigin::Made);
    match outcome {
        Outcome::OutcomeUnknown if agent_key => {
            vec![SafeNext::WatchAction, SafeNext::LookUp, SafeNext::CallAgainSameKey]
        }
        Outcome::OutcomeUnknown => vec![SafeNext::WatchAction, SafeNext::LookUp],
        Outcome::Shed | Outcome::Deferred | Outcome::NotApplied => vec![SafeNext::CallAgain],
        Outcome::BudgetExhausted | Outcome::DeadlineExhausted => vec![SafeNext::CallAgain, SafeNext::AskPerson],
        Outcome::Cancelled | Outcome::Denied => vec![SafeNext::AskPerson],
        Outcome::Rejected => vec![SafeNext::ChangeRequest],
        Outcome::CircuitOpen => vec![SafeNext::ChangeRequest, SafeNext::AskPerson],
        Outcome::Succeeded | Outcome::StreamIncomplete => Vec::new(),
    }
}
