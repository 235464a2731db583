//! An attempt came back: what it proves, what the register learns, and what follows.

use crate::action::admit::write_for;
use crate::action::leave::AGENT_LEFT;
use crate::action::live::{LastAnswer, Live, Stage};
use crate::action::observe;
use crate::action::verdict::{Situation, TOO_EARLY, Verdict, may_have_run, verdict};
use crate::classify::{Classification, Window};
use crate::command::{Command, Commands, Stamp};
use crate::coordinator::{Coordinator, Write};
use crate::durable::fold;
use crate::effect::{Answer, Effect, Evidence, effect};
use crate::event::{ActionResult, Fact, Outcome};
use crate::ids::{ActionId, AttemptNo, ScopeId, Seq};
use crate::input::{BodyEnd, Input, Report, Request};
use crate::lane::Lane;
use crate::policy::Rank;
use crate::time::Now;

/// Why a refusal stands as a success.
const GONE: &str = "what it deletes is gone, and an earlier send may have done it";

fn is_success(live: &Live) -> bool {
    live.last.as_ref().is_some_and(|l| l.classification.kind == crate::classify::Kind::Success)
}

fn has_succeeded(live: &Live) -> bool {
    is_success(live) || live.is_gone
}

/// What an answer that was passed on comes to, where its end leaves no effect open.
fn whole(live: &Live, end: BodyEnd) -> (Outcome, Option<String>) {
    match end {
        BodyEnd::Complete if has_succeeded(live) => (Outcome::Succeeded, live.is_gone.then(|| GONE.to_owned())),
        BodyEnd::Complete => (Outcome::Rejected, None),
        BodyEnd::Cut(what) | BodyEnd::ErrorInside(what) => (Outcome::StreamIncomplete, Some(what)),
        BodyEnd::AgentLeft => (Outcome::Cancelled, Some(AGENT_LEFT.into())),
    }
}

/// What an answer says of the scopes of a call that may not be there any more when it is looked at.
pub(crate) struct Told {
    of: (ActionId, AttemptNo),
    scope: ScopeId,
    lane: Lane,
    classification: Classification,
}

impl Coordinator {
    /// Whoever gives up in the same breath takes with it an attempt that nobody else waits for, and perhaps this one: what
    /// its answer says of the scope holds for everybody all the same.
    pub(crate) fn refusal_of_who_gives_up(&self, now: Now, input: &Input) -> Option<Told> {
        let Input::Result { action, attempt, report } = input else { return None };
        let is_due = self.expiries.first().is_some_and(|(at, _)| *at <= now.mono);
        let answer = report.answer.as_ref().filter(|_| is_due)?;
        let live = self.live.get(action).filter(|l| l.stage == Stage::InFlight(*attempt))?;
        Some(Told {
            of: (*action, *attempt),
            scope: live.request.scope.clone(),
            lane: live.request.quota.lane.clone(),
            classification: answer.classification.clone(),
        })
    }

    pub(crate) fn close_for_all(&mut self, now: Now, told: Told, out: &mut Commands) {
        if !self.live.contains_key(&told.of.0) {
            self.close_scope(now, &told.scope, &told.lane, told.of, &told.classification, out);
        }
    }

    pub(crate) fn result(
        &mut self,
        now: Now,
        action: ActionId,
        attempt: AttemptNo,
        report: Report,
        out: &mut Commands,
    ) {
        // A result of an attempt that is not on the wire (late, twice, of a cancelled action) proves nothing new.
        if self.live.get(&action).is_none_or(|l| l.stage != Stage::InFlight(attempt)) {
            return;
        }
        let Some(mut live) = self.live.remove(&action) else { return };
        if let Some(why) = self.stopped(&live.request.task, live.request.run_name()) {
            live.follow_only.get_or_insert(why);
        }
        let result_seq = self.learn(now, &mut live, attempt, &report, out);
        let mut next = self.judge(now, &live, &report);
        if report.answer.is_some() {
            let attempt = AttemptNo(live.tried);
            if let Some(last) = &live.last {
                let (scope, lane) = (&live.request.scope, &live.request.quota.lane);
                self.close_scope(now, scope, lane, (action, attempt), &last.classification, out);
            }
        }
        self.weigh(now, &live, &report, &next, out);
        match &next {
            // Told of an open effect, the provider's refusal is the proof.
            Verdict::Relay(Outcome::Rejected) if live.request.rank.writes() => live.effect = Effect::NotApplied,
            Verdict::Relay(Outcome::Succeeded) if !is_success(&live) => {
                live.effect = Effect::Applied;
                live.is_gone = true;
            }
            Verdict::Retry(_) => match report.evidence {
                Evidence::NotSent | Evidence::Refused => live.unsent += 1,
                Evidence::Unknown => live.unknown_resends += 1,
                Evidence::Answered | Evidence::AnsweredPartially => {
                    let doubt = live.last.as_ref().is_some_and(|l| may_have_run(l.status));
                    live.unknown_resends += u32::from(doubt);
                }
            },
            _ => {}
        }
        if live.request.observe {
            self.observe_verdict(now, &mut live, &next, out);
            next = observe::forwarded(next, &live);
        }
        self.follow(now, live, attempt, next, result_seq, out);
    }

    /// An attempt that may have left is not waited for any longer, and none follows it.
    pub(crate) fn give_up_attempt(
        &mut self,
        now: Now,
        action: ActionId,
        attempt: AttemptNo,
        why: &'static str,
        out: &mut Commands,
    ) {
        let Some(mut live) = self.live.remove(&action) else { return };
        let scope = live.request.scope.clone();
        let report = Report { evidence: Evidence::Unknown, answer: None, transport: Some(why.into()) };
        self.learn(now, &mut live, attempt, &report, out);
        self.release_only(&live);
        if live.request.rank.writes() {
            self.leave_unknown(now, live, attempt, why, out);
        } else {
            self.defer(now, live, why, 1, out);
        }
        self.pump(now, &scope, out);
    }

    /// Counts the attempt, folds its effect, and records it where there is anything to record.
    fn learn(
        &mut self,
        now: Now,
        live: &mut Live,
        attempt: AttemptNo,
        report: &Report,
        out: &mut Commands,
    ) -> Option<Seq> {
        let seen = report.answer.as_ref();
        let said = seen.map(|h| Answer {
            status: h.status,
            kind: h.classification.kind,
            before_work: h.classification.before_work,
            resent_below: h.classification.below.is_some(),
        });
        let this = effect(report.evidence, said);
        live.effect = fold(live.effect, this);
        match report.evidence {
            // A charge whose attempt never left goes back, once that is in the journal.
            Evidence::NotSent => {}
            Evidence::Refused => live.charged = None,
            _ => {
                live.sends += 1;
                live.charged = None;
            }
        }
        live.too_early += u32::from(seen.is_some_and(|h| h.status == TOO_EARLY));
        let below = seen.and_then(|h| h.classification.below.as_ref()).map_or(0, |b| b.retries);
        live.sends_below = live.sends_below.saturating_add(below);
        // What is charged is on record.
        let straight = live.tried == 1
            && below == 0
            && seen.is_some_and(|h| h.classification.kind == crate::classify::Kind::Success);
        if let Some(head) = seen {
            self.learn_windows(now, &live.request, &head.classification.windows);
            let floor_ms = self.settings.backoff.floor_ms;
            let told = head.classification.boundary.as_ref().map(|b| now.mono.plus_ms(b.wait_ms.max(floor_ms)));
            live.told_until = told.or(live.told_until);
            live.last = Some(LastAnswer { status: head.status, classification: head.classification.clone() });
        }
        if !live.recorded && straight {
            return None;
        }
        let first = !live.recorded;
        self.record(now, live, out);
        let write = write_for(&live.request);
        if first {
            // A read enters the journal with its first refusal; its send is told with it.
            self.emit(now, Some(live.request.action), Fact::ActionSent { attempt }, write, out);
        }
        let result = ActionResult {
            attempt,
            evidence: report.evidence,
            effect: this,
            status: seen.map(|h| h.status),
            classification: seen.map(|h| Box::new(h.classification.clone())),
            transport: report.transport.clone(),
        };
        let seq = self.emit(now, Some(live.request.action), Fact::ActionResult(Box::new(result)), write, out);
        if report.evidence == Evidence::NotSent && live.charged.is_some() {
            self.give_back(now, live, out);
        }
        live.last_seq = Some(seq);
        Some(seq)
    }

    fn judge(&self, now: Now, live: &Live, report: &Report) -> Verdict {
        verdict(Situation {
            rank: live.request.rank,
            rule: &live.request.rule,
            evidence: report.evidence,
            answer: report.answer.as_ref(),
            effect: live.effect,
            sends: live.sends.saturating_add(live.sends_below),
            unsent: live.unsent,
            unknown_resends: live.unknown_resends,
            key_honoured: live.key_honoured(now.mono),
            repeatable: live.request.repeatable,
            deletes: live.request.deletes,
            repeats_key: live.repeats_key,
            early_data: live.request.early_data,
            too_early: live.too_early,
            replayable: live.request.replayable,
            follow_only: live.follow_only.is_some() || self.draining,
        })
    }

    fn follow(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        attempt: AttemptNo,
        next: Verdict,
        result_seq: Option<Seq>,
        out: &mut Commands,
    ) {
        let scope = live.request.scope.clone();
        match next {
            Verdict::Relay(outcome) => {
                let action = live.request.action;
                live.stage = Stage::Relaying(attempt);
                let stamp = Stamp { outcome, attempts: live.sends, waited_ms: live.waited_ms };
                let relay = Command::Relay { action, attempt, stamp };
                self.answer_begins(now, &mut live);
                // Who is told of a boundary can rely on it; a plain success tells of none.
                let tells = outcome != Outcome::Succeeded
                    || live.last.as_ref().is_some_and(|l| l.classification.boundary.is_some());
                let boundary = if tells { self.boundary_seq(&live.request) } else { Seq(0) };
                let told_after = match result_seq {
                    // The agent must not know more of an uncertain write than the journal does.
                    Some(seq) if live.request.rank == Rank::UncertainWrite => seq.max(boundary),
                    _ => boundary,
                };
                self.gate.after(told_after, relay, out);
                self.live.insert(action, live);
                return;
            }
            Verdict::Retry(why) => {
                self.release_only(&live);
                self.plan_retry(now, live, why, out);
            }
            Verdict::Unknown(why) => {
                self.release_only(&live);
                self.leave_unknown(now, live, attempt, why, out);
            }
            Verdict::Stop(why) => {
                self.release_only(&live);
                match live.follow_only {
                    Some(gone) => self.stop(now, live, Outcome::Cancelled, gone, out),
                    None => self.stop(now, live, Outcome::BudgetExhausted, why, out),
                }
            }
        }
        self.pump(now, &scope, out);
    }

    /// What an answer says of its limits' windows belongs to the narrowest scope of its call.
    fn learn_windows(&mut self, now: Now, request: &Request, windows: &[Window]) {
        if windows.is_empty() {
            return;
        }
        let id = request.quota.lane.narrowest().unwrap_or(&request.scope);
        let home = self.scopes.get_mut(&request.scope);
        if let Some(scope) = home.and_then(|home| home.scope_of_mut(&request.scope, id)) {
            scope.learn(now.mono, windows);
        }
    }

    /// The slots of a call come back; who waits for them is let out by the next [`Coordinator::pump`].
    pub(crate) fn release_only(&mut self, live: &Live) {
        if let Some(home) = self.scopes.get_mut(&live.request.scope) {
            home.give_slot(&live.request.quota.lane);
        }
    }

    /// The provider is done: its slot comes back now, who waits for the answer too has it now, and the end is recorded once
    /// the agent was told.
    pub(crate) fn answer_read(
        &mut self,
        now: Now,
        action: ActionId,
        attempt: AttemptNo,
        end: BodyEnd,
        out: &mut Commands,
    ) {
        let Some(live) = self.live.get_mut(&action).filter(|l| l.stage == Stage::Relaying(attempt)) else { return };
        live.stage = Stage::Telling(attempt);
        live.read = Some(end);
        let scope = live.request.scope.clone();
        if let Some(home) = self.scopes.get_mut(&scope) {
            home.give_slot(&live.request.quota.lane);
        }
        self.tell_who_joined(now, action, out);
        self.pump(now, &scope, out);
    }

    /// Whoever waits for an answer that was read has it at once, however slowly its first agent takes it.
    pub(crate) fn tell_who_joined(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        let waited_for = self.live.get(&action).filter(|live| !live.joined.is_empty());
        let Some(end) = waited_for.and_then(|live| live.read.clone()) else { return };
        let Some(mut live) = self.live.remove(&action) else { return };
        match whole(&live, end) {
            (outcome @ (Outcome::Succeeded | Outcome::Rejected), _) => self.share(now, &mut live, outcome, out),
            (outcome, reason) => {
                let answer = self.answer_of(now, &live, outcome, reason.as_deref().unwrap_or_default());
                let after = self.boundary_seq(&live.request);
                self.tell_joined(&mut live, &answer, after, out);
            }
        }
        self.live.insert(action, live);
    }

    /// The relayed body ended.
    pub(crate) fn ended(&mut self, now: Now, action: ActionId, attempt: AttemptNo, end: BodyEnd, out: &mut Commands) {
        let is_its = |stage| stage == Stage::Relaying(attempt) || stage == Stage::Telling(attempt);
        if self.live.get(&action).is_none_or(|l| !is_its(l.stage)) {
            return;
        }
        let Some(mut live) = self.live.remove(&action) else { return };
        let holds_slot = live.attempt().is_some();
        let scope = live.request.scope.clone();
        let succeeded = has_succeeded(&live);
        // A write is read on when its agent has left: if that too had to be given up, the rest may have said anything.
        let end = match end {
            BodyEnd::AgentLeft if live.request.rank.writes() => {
                BodyEnd::Cut("the agent left, and the rest of the answer was not waited for any longer".into())
            }
            end => end,
        };
        let (outcome, reason) = match end {
            // Only watched, the provider's answer was passed on, though it leaves open whether it was done.
            _ if live.request.rank.writes() && live.effect == Effect::Unknown => {
                let reason = observe::LEFT_OPEN.to_owned();
                let fact = Fact::ReconciliationRequired { attempt, reason: reason.clone() };
                self.emit(now, Some(action), fact, Write::Ahead, out);
                (Outcome::OutcomeUnknown, Some(reason))
            }
            BodyEnd::Cut(what) if succeeded && live.request.rank.writes() => {
                self.cut_write(now, &mut live, attempt, &what, out);
                (Outcome::OutcomeUnknown, Some(what))
            }
            end => whole(&live, end),
        };
        if holds_slot {
            self.release_only(&live);
        }
        self.over(now, live, outcome, reason, out);
        if holds_slot {
            self.pump(now, &scope, out);
        }
    }

    /// The agent has the answer, as far as it came. Whoever waits for it too gets a copy, or is told how it ended.
    fn over(&mut self, now: Now, mut live: Box<Live>, outcome: Outcome, reason: Option<String>, out: &mut Commands) {
        if matches!(outcome, Outcome::Succeeded | Outcome::Rejected) {
            self.finish(now, &mut live, outcome, reason, out);
            return self.share(now, &mut live, outcome, out);
        }
        let answer = self.answer_of(now, &live, outcome, reason.as_deref().unwrap_or_default());
        let seq = self.finish(now, &mut live, outcome, reason, out);
        // Its own agent has seen the end.
        self.tell_joined(&mut live, &answer, seq, out);
    }

    /// A write's answer was cut: whether it was done is open again.
    fn cut_write(&mut self, now: Now, live: &mut Live, attempt: AttemptNo, what: &str, out: &mut Commands) {
        live.effect = Effect::Unknown;
        let result = ActionResult {
            attempt,
            evidence: Evidence::AnsweredPartially,
            effect: Effect::Unknown,
            status: live.last.as_ref().map(|l| l.status),
            classification: None,
            transport: Some(what.to_owned()),
        };
        self.emit(now, Some(live.request.action), Fact::ActionResult(Box::new(result)), Write::Ahead, out);
        let fact = Fact::ReconciliationRequired { attempt, reason: what.to_owned() };
        self.emit(now, Some(live.request.action), fact, Write::Ahead, out);
    }
}
