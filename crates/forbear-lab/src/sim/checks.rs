//! What must hold, counted at the model provider, the model journal and the model agents: DESIGN section 3.

use forbear_core::classify::Kind;
use forbear_core::command::Command;
use forbear_core::durable::Phase;
use forbear_core::effect::{Effect, Evidence};
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::HeadSeen;
use forbear_core::policy::Rank;

use super::driver::is_success;
pub(super) use super::journal_checks::Ledger;
use super::world::World;

impl World<'_> {
    /// After every step.
    pub(super) fn check_step(&mut self) {
        if let Some(what) = self.core.as_ref().and_then(|c| c.inconsistency()) {
            self.fail("core_agrees_with_itself", |_| what);
        }
    }

    /// As the core gives a command, before anybody runs it.
    pub(super) fn check_command(&mut self, command: &Command) {
        match command {
            Command::Dispatch(d) => {
                let stage = self.core.as_ref().and_then(|c| c.live_view(self.now, d.action)).map(|v| v.stage);
                if stage != Some("in_flight") {
                    self.fail("cancelled_never_wakes", |_| format!("a{} is dispatched and {stage:?}", d.action.0));
                }
                self.check_may_leave(d.action);
            }
            Command::Relay { action, attempt, .. } => {
                let frozen = self.store.failed;
                let proof = self.store.proof(*action);
                let uncertain = self.call(*action).is_some_and(|c| c.request.rank == Rank::UncertainWrite);
                if uncertain && !frozen && proof.result < attempt.0 {
                    self.fail("result_before_answer", |_| {
                        format!("a{} is answered before its result is durable", action.0)
                    });
                }
                if let Some(call) = self.call_mut(*action) {
                    call.on_wire = true;
                }
                self.check_one_answer(*action);
            }
            Command::Answer { action, .. } | Command::Share { action, .. } => self.check_one_answer(*action),
            Command::CancelUpstream { action, .. } => {
                let Some(call) = self.call_mut(*action) else { return };
                call.on_wire = false;
                call.dead = true;
                let (unsure, intent) = (call.is_retry, call.intent);
                if unsure {
                    let task = self.intents[intent].task;
                    self.ledger.unsure[task] += 1;
                }
            }
            Command::ForgetContent { action } => {
                if !self.store.proof(*action).ended {
                    self.fail("content_is_kept", |_| format!("a{}: forgotten before its end is durable", action.0));
                }
            }
            Command::Append { .. } | Command::ReadBody { .. } => {}
        }
    }

    fn check_one_answer(&mut self, action: ActionId) {
        let Some(call) = self.call_mut(action) else { return };
        call.promised += 1;
        if call.promised > 1 {
            self.fail("one_answer", |_| format!("a{} is answered twice", action.0));
        }
    }

    pub(super) fn count_answer(&mut self, action: ActionId) {
        let (now, slack) = (self.now.mono, self.ledger.slack_ms);
        let Some(call) = self.call_mut(action) else { return };
        call.answers += 1;
        let late_ms = now.ms_since(call.deadline);
        if late_ms > slack {
            self.fail("no_one_starves", |_| format!("a{} is answered {late_ms} ms after its deadline", action.0));
        }
    }

    /// Invariants 1 and 7, at the decision and again at the first byte.
    fn check_may_leave(&mut self, action: ActionId) {
        let Some(call) = self.call(action) else { return };
        let intent = &self.intents[call.intent];
        let (scope, task) = (&self.ledger.scopes[intent.scope], intent.task);
        let until = scope.until.max(scope.told_until);
        if self.now.mono < until {
            let early_ms = until.ms_since(self.now.mono);
            return self.fail("closed_scope_is_left_alone", |_| format!("a{} leaves {early_ms} ms early", action.0));
        }
        if self.now.mono < call.not_before {
            let early_ms = call.not_before.ms_since(self.now.mono);
            return self
                .fail("closed_scope_is_left_alone", |_| format!("a{} leaves {early_ms} ms before its own", action.0));
        }
        if self.ledger.cancelled[task] {
            self.fail("cancelled_never_wakes", |_| format!("a{} leaves after t{task} was cancelled", action.0));
        }
    }

    pub(super) fn check_first_byte(&mut self, action: ActionId, attempt: AttemptNo) {
        self.check_may_leave(action);
        self.check_intent(action, attempt);
        self.check_resend(action);
        let Some(call) = self.call(action) else { return };
        let (rule, intent) = (&call.request.rule, &self.intents[call.intent]);
        if call.sends - call.refused >= rule.max_attempts {
            return self.fail("budget_is_kept", |_| format!("a{} leaves a time too many", action.0));
        }
        if self.now.mono > call.deadline {
            return self.fail("no_one_starves", |_| format!("a{} leaves after its deadline", action.0));
        }
        let queued_ms = self.now.mono.ms_since(call.came);
        if call.sends == 0 && !call.is_retry && queued_ms > rule.max_queue_seconds * 1_000 + self.ledger.slack_ms {
            return self.fail("no_one_starves", |_| format!("a{} first leaves after {queued_ms} ms", action.0));
        }
        let scope = intent.scope;
        let others = self.calls.iter().filter(|c| c.on_wire && self.intents[c.intent].scope == scope).count();
        if others >= self.plan.limits.max_concurrent_requests as usize {
            self.fail("slots_are_kept", |_| format!("a{} leaves beside {others}", action.0));
        }
    }

    /// Invariants 3 and 10.
    fn check_intent(&mut self, action: ActionId, attempt: AttemptNo) {
        let Some(call) = self.call(action) else { return };
        let must = call.request.rank.writes() || call.request.journal_before;
        let proof = self.store.proof(action);
        if must && !(proof.requested && proof.sent == attempt.0) {
            self.fail("intent_first", |_| format!("a{}#{} leaves, and the disk knows {proof:?}", action.0, attempt.0));
        }
    }

    /// Invariant 5.
    fn check_resend(&mut self, action: ActionId) {
        let now = self.now.mono;
        let Some(call) = self.call(action).filter(|c| c.unknown && c.request.rank.writes()) else { return };
        let retention = call.request.key.as_ref().and_then(|k| k.retention_seconds);
        let honoured = retention.zip(call.key_since).is_some_and(|(s, since)| now.ms_since(since) < s * 1_000);
        let may = call.request.rank == Rank::IdempotentWrite && (honoured || call.request.repeatable);
        if !may {
            self.fail("unknown_is_not_resent", |_| format!("a{} leaves again, its fate unknown", action.0));
        }
    }

    /// What an answer teaches whoever reads it.
    pub(super) fn learn_head(&mut self, action: ActionId, _: AttemptNo, evidence: Evidence, head: Option<&HeadSeen>) {
        let now = self.now;
        let Some(call) = self.call_mut(action).filter(|c| !c.dead) else { return };
        call.on_wire = false;
        call.is_retry = true;
        call.refused += u32::from(evidence == Evidence::Refused);
        call.heads += u32::from(head.is_some());
        let scope = call.intent;
        let Some(head) = head else {
            call.unknown |= evidence == Evidence::Unknown;
            return;
        };
        let c = &head.classification;
        let settled = is_success(Some(head)) || c.before_work || matches!(c.kind, Kind::Rejected | Kind::Conflict);
        call.unknown |= !settled;
        let Some(wait_ms) = c.boundary.as_ref().map(|b| b.wait_ms) else { return };
        let until = now.mono.plus_ms(wait_ms);
        call.not_before = until;
        if matches!(c.kind, Kind::Throttled | Kind::Exhausted | Kind::Unavailable | Kind::Success) {
            let told = &mut self.ledger.scopes[self.intents[scope].scope].told_until;
            *told = (*told).max(until);
        }
    }

    /// Invariant 2, when an effect happens.
    pub(super) fn check_effect(&mut self, action: ActionId) {
        let Some(call) = self.call(action) else { return };
        let intent = &self.intents[call.intent];
        if !intent.rank.writes() || intent.repeatable {
            return;
        }
        let (by_call, by_intent) = (call.effects, intent.effects);
        // A clock set back while the process was away makes every key look younger: nothing left can tell.
        let untold = self.ledger.clock_stepped && self.incarnation > 0;
        if by_call > 1 || (by_intent > 1 && !intent.loose && !untold) {
            self.fail("one_effect", |_| {
                format!("a{}: {by_call} effects of the call, {by_intent} of its intent", action.0)
            });
        }
    }

    pub(super) fn check_recovered(&mut self) {
        for call in &mut self.calls {
            call.on_wire = false;
            call.dead = true;
        }
        let Some(core) = &self.core else { return };
        let standing = core.durable_state().open.iter().find(|(_, o)| o.phase != Phase::Unknown);
        if let Some((action, open)) = standing {
            let what = format!("a{} is {:?} after the start", action.0, open.phase);
            self.fail("one_outcome", |_| what);
        }
    }

    /// Nothing is left to happen.
    pub(super) fn check_end(&mut self) {
        let Some(core) = &self.core else { return };
        let live = core.live_actions();
        let slots: u32 = core.scopes_view(self.now, usize::MAX).iter().map(|s| s.in_flight + s.delayed).sum();
        if live > 0 || slots > 0 {
            return self.fail("never_stuck", |_| format!("{live} actions live and {slots} places taken at the end"));
        }
        self.check_replay();
        self.check_charges();
        for index in 0..self.calls.len() {
            self.check_call_at_end(ActionId(index as u128 + 1));
        }
    }

    fn check_call_at_end(&mut self, action: ActionId) {
        let Some(call) = self.call(action) else { return };
        if !call.gone && call.answers != 1 {
            let answers = call.answers;
            return self.fail("one_answer", |_| format!("a{} stays and gets {answers} answers", action.0));
        }
        let trail = self.ledger.trails.get(&action).cloned().unwrap_or_default();
        if trail.requested && trail.ended.is_none() && !trail.open_unknown {
            return self.fail("one_outcome", |_| format!("a{} never ends", action.0));
        }
        let intent = &self.intents[call.intent];
        match trail.ended {
            Some((outcome, Effect::NotApplied)) if call.effects > 0 && intent.rank.writes() => {
                let outcome = outcome.as_str();
                self.fail("effect_is_true", |_| format!("a{} is {outcome}, not applied, and was", action.0));
            }
            Some((outcome, Effect::Applied)) if intent.effects == 0 && intent.rank.writes() => {
                let outcome = outcome.as_str();
                self.fail("effect_is_true", |_| format!("a{} is {outcome}, applied, and was not", action.0));
            }
            _ => {}
        }
    }

    /// Invariant 6: what left was charged once, and what was charged left.
    fn check_charges(&mut self) {
        if self.ledger.lossy {
            return;
        }
        for task in 0..self.ledger.charged.len() {
            let (charged, left) = (self.ledger.charged[task], self.ledger.retries_left[task]);
            let unsure = self.ledger.unsure[task];
            if charged < left || charged > left + unsure {
                self.fail("charged_once", |_| format!("t{task}: {charged} charged, {left} left, {unsure} unsure"));
            }
            let name = &self.fixtures.tasks[task];
            let counted = self.core.as_ref().and_then(|c| c.durable_state().tasks.get(name)).map_or(0, |t| t.retries);
            if u64::from(counted) != charged {
                self.fail("charged_once", |_| format!("t{task}: {charged} by the journal, {counted} by the budget"));
            }
        }
    }
}
