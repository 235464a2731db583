//! Only watching: a call is forwarded once, as it is, and what would have been decided of it is recorded.
//!
//! The decisions are those of always, asked of the same functions; here they become words ([`Would`]). It promises that
//! nothing is held, joined, refused or sent again. What a provider's answers prove is learned as always, so that a record
//! of watching stays true when Forbear begins to decide. It refuses what no forwarding could make good: a write that
//! cannot be journaled, a task that a person cancelled, a server that stops.

use crate::action::admit::Entry;
use crate::action::finish::stopped;
use crate::action::live::Live;
use crate::action::repeat::Repeat;
use crate::action::resend::Resend;
use crate::action::verdict::Verdict;
use crate::breaker::Opened;
use crate::classify::Kind;
use crate::command::{Command, Commands};
use crate::coordinator::{Coordinator, Write};
use crate::effect::Effect;
use crate::event::{Fact, Joined, Outcome, Refused, Would};
use crate::ids::ActionId;
use crate::time::Now;

/// How long an answer's head may take: its agent's patience counts, not a deadline of ours. The transport has its own bound.
pub(crate) const ANSWER_MS_MAX: u64 = 24 * 3_600_000;
/// Why a write stands open whose answer was passed on.
pub(crate) const LEFT_OPEN: &str = "the answer leaves open whether it was done";

impl Coordinator {
    /// Sends the call now, and says what would have been decided: `would` of what it repeats, or else where it would stand.
    pub(crate) fn forward(&mut self, now: Now, mut live: Box<Live>, would: Option<Would>, out: &mut Commands) {
        let action = live.request.action;
        if live.request.body_pending {
            return out.push(Command::ReadBody { action });
        }
        let would = would.or_else(|| of_entry(now, self.entry(now, &live)));
        live.would_not_leave = matches!(would, Some(Would::Join { .. } | Would::Refuse { .. } | Would::End { .. }));
        if would.is_some() {
            // What is said of it is said of an action on record, which ends there too, whatever crashes.
            self.record(now, &mut live, out);
            self.owned.enter(&live.request);
        } else {
            self.record_if_due(now, &mut live, out);
        }
        self.take_slot(now, &live);
        self.live.insert(action, live);
        if let Some(would) = would {
            self.emit(now, Some(action), Fact::DecisionObserved { would }, Write::Behind, out);
        }
        self.send(now, action, out);
    }

    /// Records what would have followed an attempt, where that is something else than what the agent gets now.
    pub(crate) fn observe_verdict(&mut self, now: Now, live: &mut Live, next: &Verdict, out: &mut Commands) {
        if live.would_not_leave || live.follow_only.is_some() {
            return;
        }
        let end =
            |live: &Live, wanted, why: &str| Would::End { outcome: stopped(live, wanted), reason: why.to_owned() };
        let would = match next {
            Verdict::Relay(_) => return,
            Verdict::Retry(_) => match self.plan(now, live) {
                Ok(plan) => Would::Retry { wait_ms: plan.wait_ms, reason: plan.reason.as_str().to_owned() },
                Err((outcome, why)) => end(live, outcome, why),
            },
            // Without an answer there is nothing else to say than what is said.
            Verdict::Unknown(_) | Verdict::Stop(_) if live.last.is_none() => return,
            Verdict::Unknown(why) => end(live, Outcome::OutcomeUnknown, why),
            Verdict::Stop(why) => end(live, Outcome::BudgetExhausted, why),
        };
        let fact = Fact::DecisionObserved { would };
        live.last_seq = Some(self.emit(now, Some(live.request.action), fact, Write::Behind, out));
    }
}

/// What an equal call would have made of this one.
pub(crate) fn of_repeat(repeat: Repeat, in_time: bool) -> Option<Would> {
    let refuse = |why, of: ActionId| Some(Would::Refuse { why, of });
    match repeat {
        Repeat::No | Repeat::SameKey { .. } => None,
        Repeat::Done(done) => refuse(Refused::AlreadyDone, done),
        Repeat::Open(open) => refuse(Refused::Open, open),
        Repeat::OtherContent(known) => refuse(Refused::KeyMismatch, known),
        Repeat::Joins(to, how) => in_time.then_some(Would::Join { to, how }),
    }
}

/// What a call that a layer above makes again would have got.
pub(crate) const fn of_resend(resend: Resend, in_time: bool) -> Option<Would> {
    match resend {
        Resend::Joins(_) if !in_time => None,
        Resend::Joins(to) | Resend::Again(to) => Some(Would::Join { to, how: Joined::MarkedRepeat }),
        Resend::No | Resend::Retry(_) => None,
    }
}

/// What an open circuit would have made of it.
pub(crate) fn of_circuit(blocked: &Opened) -> Would {
    Would::End { outcome: Outcome::CircuitOpen, reason: blocked.reason() }
}

/// Where the call would stand.
fn of_entry(now: Now, entry: Entry) -> Option<Would> {
    match entry {
        Entry::Now => None,
        Entry::Line { due, reason, .. } => {
            let hold_ms = (due > now.mono).then(|| due.ms_since(now.mono));
            Some(Would::Hold { reason: reason.as_str().to_owned(), hold_ms })
        }
        Entry::End(outcome, why, _) => Some(Would::End { outcome, reason: why.to_owned() }),
    }
}

/// What follows instead of a verdict: the provider's answer, whatever it is, and without one the end.
pub(crate) fn forwarded(next: Verdict, live: &Live) -> Verdict {
    match (next, &live.last) {
        (_, Some(_)) if live.request.rank.writes() && live.effect == Effect::Unknown => {
            Verdict::Relay(Outcome::OutcomeUnknown)
        }
        (Verdict::Relay(outcome), _) => Verdict::Relay(outcome),
        (_, Some(last)) if last.classification.kind == Kind::Success => Verdict::Relay(Outcome::Succeeded),
        (_, Some(_)) => Verdict::Relay(Outcome::Rejected),
        (Verdict::Retry(why), None) => Verdict::Stop(why),
        (next, None) => next,
    }
}
