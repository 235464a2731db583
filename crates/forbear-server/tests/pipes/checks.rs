//! What must hold, counted where it happens: at the provider's end of the pipes, in the agents' hands, on the disk.
//! DESIGN section 3 gives the numbers.

use forbear_core::effect::Effect;
use forbear_core::event::{Event, Fact};
use forbear_core::policy::Rank;

use crate::http::Head;
use crate::world::{State, wall_at};

/// An agent that leaves behind bytes nobody wants yet is seen so much later.
const SEEN_LEAVING_MS: u64 = 1_000;
/// How old a decision to send may be at the first byte.
const SEND_WINDOW_MS: u64 = 15_000;
/// How long a cancelled read may go on.
const CUT_MS: u64 = 1_000;

/// A call that has come to the provider.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) call: usize,
    pub(crate) scope: usize,
    pub(crate) key: Option<String>,
}

impl State {
    /// A head has come; its first byte at `first_ms`. None where it can be nobody's.
    pub(crate) fn arrived(&mut self, head: &Head, first_ms: u64) -> Option<Arrival> {
        let known = head.number("x-call").and_then(|n| usize::try_from(n).ok());
        let Some(n) = known.filter(|n| *n < self.books.calls.len()) else {
            self.fail("bytes_are_exact", &format!("a head that nobody sent: {head:?}"));
            return None;
        };
        self.note(&format!("provider: c{n} arrives"));
        if head.first.contains("elsewhere") {
            self.fail("no_redirect_is_followed", &format!("c{n} comes to {}", head.first));
        }
        let key = Some(head.field("idempotency-key").to_owned()).filter(|k| !k.is_empty());
        self.check_may_leave(n, first_ms);
        self.check_key(n, key.clone());
        let scope = self.books.intent_of(n).intent.scope;
        let call = &mut self.books.calls[n];
        call.arrivals += 1;
        self.check_intent(n);
        self.check_resend(n);
        self.check_budget(n);
        let (now_ms, call) = (self.now_ms(), &mut self.books.calls[n]);
        call.key_since_ms.get_or_insert(now_ms);
        call.unknown |= std::mem::replace(&mut call.open, true);
        let others = self.books.scopes[scope].on_wire.len() as u64;
        if others >= self.plan.concurrent_max {
            self.fail("slots_are_kept", &format!("c{n} arrives beside {others}"));
        }
        self.books.scopes[scope].on_wire.push(n);
        Some(Arrival { call: n, scope, key })
    }

    /// Invariants 1 and 7.
    fn check_may_leave(&mut self, n: usize, first_ms: u64) {
        let standing = self.books.intent_of(n);
        let (scope, task) = (standing.intent.scope, standing.intent.task);
        let closed = self.books.scopes[scope].told.iter().find(|(at, until)| *at < first_ms && first_ms < *until);
        if let Some((at, until)) = closed.copied() {
            self.fail(
                "closed_scope_is_left_alone",
                &format!("c{n} left at {first_ms}, told at {at} to wait until {until}"),
            );
        }
        let alone = self.books.calls[n].not_before_ms;
        if first_ms < alone {
            self.fail("closed_scope_is_left_alone", &format!("c{n} left at {first_ms}, told to wait until {alone}"));
        }
        if self.books.cancelled_at_ms[task].is_some_and(|at| at < first_ms) {
            self.fail("cancelled_never_wakes", &format!("c{n} left at {first_ms} after t{task} was cancelled"));
        }
        let call = &self.books.calls[n];
        if first_ms > call.deadline_ms {
            self.fail("no_one_starves", &format!("c{n} leaves at {first_ms}, after its deadline"));
        }
        let call = &self.books.calls[n];
        if call.sent_at_ms.is_some_and(|at| first_ms > at + SEND_WINDOW_MS) {
            self.fail("sends_are_fresh", &format!("c{n} leaves at {first_ms}, long after it was decided"));
        }
        let call = &self.books.calls[n];
        if call.arrivals == 0 && call.gone_at_ms.is_some_and(|at| first_ms > at + SEEN_LEAVING_MS) {
            self.fail("who_left_is_not_sent", &format!("c{n} first leaves at {first_ms}, its agent long gone"));
        }
        let retry_at = self.books.calls[n].retry_at.take();
        if let Some(at) = retry_at
            && wall_at(first_ms) < at
        {
            self.fail("waits_are_kept", &format!("c{n} left at {first_ms}, before its retry was due"));
        }
    }

    /// Invariant 4.
    fn check_key(&mut self, n: usize, key: Option<String>) {
        let given = self.books.intent_of(n).intent.key.clone();
        let keys = &mut self.books.calls[n].keys;
        let key = key.unwrap_or_default();
        let differs = keys.first().is_some_and(|first| *first != key);
        keys.push(key.clone());
        if differs || given.as_ref().is_some_and(|given| *given != key) {
            let keys = keys.clone();
            self.fail("key_is_unchanged", &format!("c{n}: given {given:?}, came as {keys:?}"));
        }
    }

    /// Invariants 3 and 10.
    fn check_intent(&mut self, n: usize) {
        let must = self.books.intent_of(n).intent.rank.writes() || self.plan.journal_before;
        let call = &self.books.calls[n];
        if must && !(call.requested && call.sent >= call.arrivals) {
            let (requested, sent, arrivals) = (call.requested, call.sent, call.arrivals);
            self.fail(
                "intent_first",
                &format!("c{n} arrives a time {arrivals}, and the disk knows: requested {requested}, sent {sent}"),
            );
        }
    }

    /// Invariant 5.
    fn check_resend(&mut self, n: usize) {
        let intent = &self.books.intent_of(n).intent;
        let call = &self.books.calls[n];
        if !(call.unknown || call.open) || !intent.rank.writes() {
            return;
        }
        let now_ms = self.now_ms();
        let keyed = intent.deduplicated() && call.keys.last().is_some_and(|k| !k.is_empty());
        let young = call.key_since_ms.is_some_and(|at| now_ms - at < self.plan.retention_s * 1_000);
        let may = intent.rank == Rank::IdempotentWrite && (intent.repeatable || (keyed && young));
        if !may {
            self.fail("unknown_is_not_resent", &format!("c{n} comes again, its fate unknown"));
        }
    }

    /// Invariant 6, as far as it can be seen from outside.
    fn check_budget(&mut self, n: usize) {
        let attempts_max = match self.books.intent_of(n).intent.rank {
            Rank::UncertainWrite => self.plan.uncertain_attempts_max,
            _ => self.plan.attempts_max,
        };
        let arrivals = self.books.calls[n].arrivals;
        if u64::from(arrivals) > attempts_max {
            self.fail("budget_is_kept", &format!("c{n} arrives a time {arrivals} of {attempts_max}"));
        }
    }

    /// The provider sees the call no more on the wire.
    pub(crate) fn off_wire(&mut self, arrival: &Arrival) {
        let on_wire = &mut self.books.scopes[arrival.scope].on_wire;
        if let Some(at) = on_wire.iter().position(|n| *n == arrival.call) {
            on_wire.remove(at);
        }
        let (now_ms, standing) = (self.now_ms(), self.books.intent_of(arrival.call));
        let cancelled = self.books.cancelled_at_ms[standing.intent.task];
        let late = cancelled.is_some_and(|at| now_ms > at + CUT_MS);
        if late && !standing.intent.rank.writes() {
            let n = arrival.call;
            self.fail("cancelled_is_cut", &format!("c{n} goes on though its task was cancelled"));
        }
    }

    /// Invariant 2, when an effect happens.
    pub(crate) fn effect(&mut self, n: usize) {
        self.note(&format!("provider: effect of c{n}"));
        let call = &mut self.books.calls[n];
        call.effects += 1;
        let (by_call, index) = (call.effects, call.intent);
        let standing = &mut self.books.intents[index];
        standing.effects += 1;
        let by_intent = standing.effects;
        let counts = standing.intent.rank.writes() && !standing.intent.repeatable;
        if counts && (by_call > 1 || (by_intent > 1 && !standing.loose)) {
            self.fail("one_effect", &format!("c{n}: {by_call} effects of the call, {by_intent} of its intent"));
        }
    }

    /// What can be seen in the journal's order.
    pub(crate) fn check_event(&mut self, event: &Event, with_content: Option<bool>) {
        let Some(n) = event.action.and_then(|a| self.books.call_of(a)) else { return };
        let intent = &self.books.intent_of(n).intent;
        let kept = intent.rank.writes() && !intent.streamed_once;
        match &event.fact {
            Fact::ActionRequested(_) if with_content.is_some_and(|with| with != kept) => {
                self.fail("content_is_kept", &format!("c{n}: with its intent {with_content:?}"));
            }
            Fact::RetryScheduled { scheduled_retry_at, retry_not_before, reason, .. } => {
                self.books.calls[n].retry_at = Some(*scheduled_retry_at);
                if reason.is_empty() || retry_not_before.is_some_and(|b| *scheduled_retry_at < b) {
                    self.fail("waits_are_said", &format!("c{n}: {:?}", event.fact));
                }
            }
            Fact::ActionSent { .. } if kept => {
                let now_ms = self.now_ms();
                self.books.calls[n].sent_at_ms = Some(now_ms);
            }
            Fact::RetryReturned { .. } => self.books.calls[n].retry_at = None,
            Fact::ActionFinished(end) => {
                let said = end.waited_for.as_ref().is_none_or(|w| !w.reason.is_empty());
                let ours = end.outcome.as_str();
                if intent.rank.writes() && end.outcome.is_terminal() && end.effect == Effect::Unknown {
                    self.fail("unknown_is_looked_up", &format!("c{n}: ends as {ours} with an unknown effect"));
                }
                if !said || (!matches!(ours, "succeeded" | "rejected") && end.reason.is_none()) {
                    self.fail("waits_are_said", &format!("c{n}: ends as {ours} without a reason"));
                }
            }
            _ => {}
        }
    }

    /// The agent has a head.
    pub(crate) fn answered(&mut self, n: usize, head: &Head, problem: &serde_json::Value, slack_ms: u64) {
        let now_ms = self.now_ms();
        let status = head.first.split(' ').nth(1).unwrap_or_default();
        let outcome = head.field("forbear-outcome").to_owned();
        self.note(&format!("agent: c{n} gets {status} {outcome} {}", problem["reason"].as_str().unwrap_or_default()));
        let call = &mut self.books.calls[n];
        call.answers += 1;
        let (answers, arrivals, late_ms) = (call.answers, call.arrivals, now_ms.saturating_sub(call.deadline_ms));
        if answers > 1 {
            self.fail("one_answer", &format!("c{n} is answered a time {answers}"));
        }
        if late_ms > slack_ms {
            self.fail("no_one_starves", &format!("c{n} is answered {late_ms} ms after its deadline"));
        }
        if outcome.is_empty() {
            self.fail("ends_are_said", &format!("c{n} gets {status} without an outcome"));
        }
        if head.number("forbear-attempts").is_some_and(|told| told < u64::from(arrivals)) {
            self.fail("attempts_are_counted", &format!("c{n} arrived {arrivals} times, and is told of fewer"));
        }
        let own = problem["action"] == head.field("forbear-action");
        if !own {
            return;
        }
        if problem["sent"] == false && arrivals > 0 {
            self.fail("evidence_is_true", &format!("c{n} was not sent, it is told, and arrived {arrivals} times"));
        }
        if problem["safe_next"].as_array().is_none_or(Vec::is_empty) {
            self.fail("ends_are_said", &format!("c{n} is not told what may be done: {problem}"));
        }
        self.books.calls[n].told = match problem["effect"].as_str() {
            Some("applied") => Some(Effect::Applied),
            Some("not_applied") => Some(Effect::NotApplied),
            _ => None,
        };
    }

    /// The agent has the body, or as much of it as came.
    pub(crate) fn read(&mut self, n: usize, relayed: bool, body: Option<&[u8]>) {
        let Some(body) = body.filter(|_| relayed) else { return };
        if self.books.calls[n].cut {
            self.fail("cuts_are_seen", &format!("c{n}: its answer was cut, and came as a whole one"));
        }
        let said = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
        let of = said["call"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(n);
        // A write without a name repeats whatever equals it.
        let (mine, its) = (&self.books.intent_of(n).intent, &self.books.intent_of(of).intent);
        if self.books.calls[of].intent != self.books.calls[n].intent && !mine.repeats_nameless(its) {
            self.fail("answers_are_ones_own", &format!("c{n} gets the answer to c{of}"));
        }
    }

    /// Nothing is left to happen.
    pub(crate) fn check_end(&mut self) {
        for n in 0..self.books.calls.len() {
            let (call, standing) = (&self.books.calls[n], self.books.intent_of(n));
            if !call.gone && call.answers != 1 {
                let answers = call.answers;
                self.fail("one_answer", &format!("c{n} stays and gets {answers} answers"));
                continue;
            }
            if call.requested && call.ended.is_none() {
                self.fail("one_outcome", &format!("c{n} never ends"));
                continue;
            }
            if !standing.intent.rank.writes() {
                continue;
            }
            let (effects, by_intent) = (call.effects, standing.effects);
            for said in [call.told, call.ended.map(|(_, effect)| effect)].into_iter().flatten() {
                match said {
                    Effect::NotApplied if effects > 0 => {
                        self.fail("effect_is_true", &format!("c{n} was not applied, it is said, and was"));
                    }
                    Effect::Applied if by_intent == 0 => {
                        self.fail("effect_is_true", &format!("c{n} was applied, it is said, and was not"));
                    }
                    _ => {}
                }
            }
        }
    }
}
