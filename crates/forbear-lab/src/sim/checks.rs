//! What must hold, counted at the model provider, the model journal and the model agents: DESIGN section 3.
//!
//! With two processes over one journal the following still holds and is checked over both: an action has at most one effect;
//! its key is the same; no write leaves whose intent was not durable before the fence; nothing unknown is sent again but under
//! a key that the provider honours; whatever either tells its agent of an effect is true. The journal is the owner's alone.
//! What one process knows and the other cannot holds for each by itself: boundaries, slots, pacing, cancelled tasks and
//! retries that the other charged. Until a new owner waits out `send_not_after` and takes over what the old one knew, the
//! provider may see both, each within its limits.

use forbear_core::breaker::Circuit;
use forbear_core::classify::{Closes, Kind};
use forbear_core::command::Command;
use forbear_core::effect::Evidence;
use forbear_core::event::{Event, Fact};
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{HeadSeen, Request};
use forbear_core::policy::{Limits, Rank};

use super::coverage::Seen;
use super::driver::is_success;
use super::intents::TASKS_MAX;
use super::plan::Plan;
use super::world::World;

/// What was counted outside the processes.
pub(super) struct Tally {
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

impl Tally {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
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
    /// After every step.
    pub(super) fn check_step(&mut self) {
        let nodes = self.owner.iter().chain(&self.old);
        if let Some(what) = nodes.filter_map(|n| n.core.inconsistency()).next() {
            self.fail("core_agrees_with_itself", |_| what);
        }
        self.check_drained();
    }

    /// Once a drain is over nobody waits for an answer's head.
    fn check_drained(&mut self) {
        let drained = self.owner.iter().chain(&self.old).filter(|n| n.is_drained);
        let untold = drained.flat_map(|n| self.calls.iter().filter(|c| c.home == n.number).map(move |c| (n, c)));
        let untold =
            untold.filter_map(|(n, c)| Some((c.request.action, n.core.live_view(self.now, c.request.action)?)));
        let found = untold
            .filter(|(_, view)| !matches!(view.stage, "relaying" | "telling"))
            .map(|(action, view)| (action, view.stage))
            .next();
        if let Some((action, stage)) = found {
            self.fail("a_drain_ends", |_| format!("a{} is {stage} when the drain is over", action.0));
        }
    }

    /// As a core gives a command, before anybody runs it. What is `withdrawn` in the same breath was given before that, and
    /// is stopped at its first byte.
    pub(super) fn check_command(&mut self, by: u32, command: &Command, withdrawn: &[ActionId]) {
        match command {
            Command::Dispatch(d) => {
                let stage = self.node(by).and_then(|n| n.core.live_view(self.now, d.action)).map(|v| v.stage);
                if stage != Some("in_flight") && !withdrawn.contains(&d.action) {
                    self.fail("cancelled_never_wakes", |_| format!("a{} is dispatched and {stage:?}", d.action.0));
                }
                self.check_given(d.action, d.attempt);
                if !self.calls.get(d.action).is_some_and(|c| c.request.rank.writes() || c.request.journal_before) {
                    self.check_pace(by, d.action);
                    self.check_circuits(by, d.action, d.attempt);
                }
                self.check_may_leave(by, d.action);
            }
            Command::Relay { action, attempt, .. } => {
                let disk = self.node(by).is_some_and(|n| !n.disk.failed && n.fenced_at.is_none());
                let proof = self.store.proof(*action);
                let uncertain = self.calls.get(*action).is_some_and(|c| c.request.rank == Rank::UncertainWrite);
                if uncertain && disk && proof.result < attempt.0 {
                    self.fail("result_before_answer", |_| {
                        format!("a{} is answered before its result is durable", action.0)
                    });
                }
                if let Some(call) = self.calls.get_mut(*action) {
                    call.on_wire = true;
                }
                self.check_one_answer(*action);
            }
            Command::Answer { action, answer } => {
                self.check_one_answer(*action);
                self.check_tenants(*action, answer.about);
                // A refusal speaks of its own call and names another.
                let is_said = answer.about == *action || answer.joined.is_some();
                if let Some(call) = self.calls.get_mut(*action) {
                    call.told = is_said.then_some((answer.about, answer.effect));
                }
            }
            Command::Share { action, of, .. } => {
                self.check_one_answer(*action);
                self.check_tenants(*action, *of);
                let task = self.calls.get(*action).map(|c| c.task);
                if task.zip(self.node(by)).is_some_and(|(task, node)| node.ledger.cancelled[task]) {
                    self.fail("cancelled_never_wakes", |_| format!("a{} still waited for another's result", action.0));
                }
            }
            Command::CancelUpstream { action, .. } => {
                let Some(call) = self.calls.get_mut(*action) else { return };
                call.on_wire = false;
                call.dead = true;
                if call.is_retry {
                    self.tally.unsure[call.task] += 1;
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

    /// A write's attempt is decided when it is written, and leaves when that is durable.
    pub(super) fn check_decided(&mut self, by: u32, event: &Event) {
        let (Fact::ActionSent { attempt }, Some(action)) = (&event.fact, event.action) else { return };
        let of_write = self.calls.get(action).is_some_and(|c| c.request.rank.writes() || c.request.journal_before);
        // Written again after a failure, it was decided before.
        if of_write && !self.tally.thawing {
            self.check_pace(by, action);
            self.check_circuits(by, action, *attempt);
        }
    }

    /// At the decision to send: in no window is more let out than its rate allows.
    fn check_pace(&mut self, by: u32, action: ActionId) {
        let (now, policy) = (self.now.mono, &self.plan.policies[self.policy]);
        let Some((amount, per_ms)) = policy.rate else { return };
        let Some(scopes) = self.calls.get(action).map(|c| self.intents[c.intent].scopes()) else { return };
        let Some(node) = self.node_mut(by) else { return };
        let mut most = 0;
        for scope in scopes.into_iter().flatten() {
            let let_out = &mut node.ledger.scopes[scope].let_out;
            let_out.push_back(now);
            while let_out.front().is_some_and(|at| at.plus_ms(per_ms) <= now) {
                let_out.pop_front();
            }
            most = most.max(let_out.len());
        }
        if most as u64 > amount {
            self.fail("rates_are_kept", |_| format!("a{} is one of {most} in {per_ms} ms", action.0));
        }
    }

    /// At the decision to send: what is open is left alone, but for a probe once its time is up. A retry goes on.
    fn check_circuits(&mut self, by: u32, action: ActionId, attempt: AttemptNo) {
        let (Some(call), Some(node)) = (self.calls.get(action), self.node(by)) else { return };
        // While nothing can be written, what opens and closes is not heard.
        if attempt.0 != 1 || node.core.not_ready().is_some() {
            return;
        }
        let closed = covering(&call.request).into_iter().find(|circuit| {
            let until = node.ledger.circuits.get(circuit);
            until.is_some_and(|until| self.now.mono < *until)
        });
        if let Some(circuit) = closed {
            let what = circuit.as_str();
            self.fail("an_open_circuit_is_left_alone", |_| format!("a{} is sent over an open {what}", action.0));
        }
    }

    /// Nothing stops a driver that is handed one attempt twice: the core must not do so.
    fn check_given(&mut self, action: ActionId, attempt: AttemptNo) {
        let step = self.step;
        let Some(call) = self.calls.get_mut(action) else { return };
        let last = std::mem::replace(&mut call.given, attempt.0);
        if call.took.0 != attempt.0 {
            call.took = (attempt.0, step);
        }
        if last >= attempt.0 {
            self.fail("an_attempt_is_given_once", |_| format!("a{}#{} after #{last}", action.0, attempt.0));
        }
    }

    fn check_one_answer(&mut self, action: ActionId) {
        let Some(call) = self.calls.get_mut(action) else { return };
        call.promised += 1;
        if call.promised > 1 {
            self.fail("one_answer", |_| format!("a{} is answered twice", action.0));
        }
    }

    pub(super) fn count_answer(&mut self, action: ActionId) {
        let (now, slack) = (self.now.mono, self.tally.slack_ms);
        let Some(call) = self.calls.get_mut(action) else { return };
        call.answers += 1;
        let late_ms = now.ms_since(call.deadline);
        if late_ms > slack {
            self.fail("no_one_starves", |_| format!("a{} is answered {late_ms} ms after its deadline", action.0));
        }
    }

    /// A call came and is taken in, or not: the line is bounded, and the limits it brought may be in force from now on.
    pub(super) fn check_admitted(&mut self, by: u32, action: ActionId, limits: Limits) {
        let now = self.now;
        let Some(scope) = self.calls.get(action).map(|c| self.intents[c.intent].scope) else { return };
        let here = |c: &&super::calls::Call| c.home == by && self.intents[c.intent].scope == scope;
        let on_wire = self.calls.iter().filter(|c| c.on_wire).filter(here).count();
        let step = self.step;
        let Some(node) = self.node(by) else { return };
        let stage = node.core.live_view(now, action).map(|v| v.stage);
        if stage == Some("waiting") {
            let waits = |a: ActionId| node.core.live_view(now, a).is_some_and(|v| v.stage == "waiting");
            let line = self.calls.iter().filter(here).filter(|c| waits(c.request.action)).count();
            let most = self.plan.policies[self.policy].limits.max_delayed_requests.max(limits.max_delayed_requests);
            if line > most as usize {
                return self.fail("line_is_bounded", |_| format!("a{} waits as one of {line}", action.0));
            }
        }
        if node.number != self.owner.as_ref().map_or(by, |n| n.number) {
            self.cover(Seen::FencedAsked);
        }
        let most = limits.max_concurrent_requests;
        if on_wire > most as usize {
            self.cover(Seen::FewerSlots);
        }
        let narrow_most =
            self.calls.get(action).and_then(|c| c.request.quota.lane.narrow().first()?.max_concurrent_requests);
        let narrow = self.calls.get(action).map(|c| self.intents[c.intent].narrow.clone()).unwrap_or_default();
        let loaded = self.plan.policies[self.policy].settings.digest;
        let is_current = self.calls.get(action).is_some_and(|c| c.request.policy == loaded);
        let surely = stage.is_some() && is_current;
        if let Some(node) = self.node_mut(by) {
            let narrow = narrow.into_iter().map(|scope| (scope, narrow_most.unwrap_or(u32::MAX)));
            for (scope, most) in std::iter::once((scope, most)).chain(narrow) {
                let limits = &mut node.ledger.scopes[scope].limits;
                // What a call says that was understood by a policy of before holds where nothing else is known.
                if is_current || !limits.iter().any(|(_, _, surely)| *surely) {
                    limits.push((step, most, surely));
                }
            }
        }
    }

    /// Every home that a process knows keeps to them at once.
    pub(super) fn limits_are_loaded(&mut self, policy: usize) {
        let most = self.plan.policies[policy].limits.max_concurrent_requests;
        let (now, step) = (self.now, self.step);
        for node in self.owner.iter_mut().chain(&mut self.old) {
            for view in node.core.scopes_view(now, usize::MAX).iter().filter(|view| view.limits.is_some()) {
                if let Some(scope) = self.fixtures.scopes.iter().position(|s| *s == view.scope) {
                    node.ledger.scopes[scope].limits.push((step, most, true));
                }
            }
        }
    }

    /// Invariants 1 and 7, at the decision and again at the first byte.
    fn check_may_leave(&mut self, by: u32, action: ActionId) {
        let (Some(call), Some(node)) = (self.calls.get(action), self.node(by)) else { return };
        let intent = &self.intents[call.intent];
        let task = call.task;
        let closed = |scope: usize| node.ledger.scopes[scope].until.max(node.ledger.scopes[scope].told_until);
        let until = intent.scopes().into_iter().flatten().map(closed).max().unwrap_or_default();
        if self.now.mono < until {
            let early_ms = until.ms_since(self.now.mono);
            return self.fail("closed_scope_is_left_alone", |_| format!("a{} leaves {early_ms} ms early", action.0));
        }
        if self.now.mono < call.not_before {
            let early_ms = call.not_before.ms_since(self.now.mono);
            return self
                .fail("closed_scope_is_left_alone", |_| format!("a{} leaves {early_ms} ms before its own", action.0));
        }
        if node.ledger.cancelled[task] {
            return self.fail("cancelled_never_wakes", |_| format!("a{} leaves after t{task} was cancelled", action.0));
        }
        if node.ledger.run_cancelled && call.request.run_named {
            return self.fail("cancelled_never_wakes", |_| format!("a{} leaves after its run was cancelled", action.0));
        }
        if node.ledger.stopped.contains(&action) {
            self.fail("cancelled_never_wakes", |_| format!("a{} leaves after it was cancelled", action.0));
        }
    }

    pub(super) fn check_first_byte(&mut self, by: u32, action: ActionId, attempt: AttemptNo) {
        self.check_may_leave(by, action);
        self.check_intent(action, attempt);
        self.check_resend(action);
        self.check_slot(by, action);
        self.check_name(action);
        self.check_equals(by, action);
        let Some(call) = self.calls.get(action) else { return };
        let rule = &call.request.rule;
        if call.sends - call.refused >= rule.max_attempts {
            return self.fail("budget_is_kept", |_| format!("a{} leaves a time too many", action.0));
        }
        if self.now.mono > call.deadline {
            return self.fail("no_one_starves", |_| format!("a{} leaves after its deadline", action.0));
        }
        let queued_ms = self.now.mono.ms_since(call.came);
        if call.sends == 0 && !call.is_retry && queued_ms > rule.max_queue_seconds * 1_000 + self.tally.slack_ms {
            self.fail("no_one_starves", |_| format!("a{} first leaves after {queued_ms} ms", action.0));
        }
    }

    /// Whoever took a slot last found fewer than the limit of that time. A limit that is lowered takes no slot away.
    fn check_slot(&mut self, by: u32, action: ActionId) {
        let (Some(call), Some(node)) = (self.calls.get(action), self.node(by)) else { return };
        let (_, took) = call.took;
        for scope in self.intents[call.intent].scopes().into_iter().flatten() {
            let beside = |c: &&super::calls::Call| c.on_wire && c.home == by && self.intents[c.intent].needs(scope);
            let others = self.calls.iter().filter(beside).count();
            let limits = &node.ledger.scopes[scope].limits;
            let first = limits.iter().rposition(|(step, _, surely)| *surely && *step <= took).unwrap_or(0);
            let most = limits[first..].iter().map(|(_, most, _)| *most).max().unwrap_or(0);
            if others >= most as usize {
                return self.fail("slots_are_kept", |_| format!("a{} leaves beside {others}", action.0));
            }
        }
    }

    /// Invariants 3 and 10. What a fenced process appended after the fence is not on the disk, and lets nothing leave.
    fn check_intent(&mut self, action: ActionId, attempt: AttemptNo) {
        let Some(call) = self.calls.get(action) else { return };
        let must = call.request.rank.writes() || call.request.journal_before;
        let proof = self.store.proof(action);
        if must && !(proof.requested && proof.sent == attempt.0) {
            self.fail("intent_first", |_| format!("a{}#{} leaves, and the disk knows {proof:?}", action.0, attempt.0));
        }
    }

    /// What an answer teaches whoever reads it.
    pub(super) fn learn_head(&mut self, by: u32, action: ActionId, evidence: Evidence, head: Option<&HeadSeen>) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(action).filter(|c| !c.dead) else { return };
        call.on_wire = false;
        call.is_retry = true;
        call.refused += u32::from(evidence == Evidence::Refused);
        call.heads += u32::from(head.is_some());
        let Some(head) = head else {
            call.unknown |= evidence == Evidence::Unknown;
            return;
        };
        let c = &head.classification;
        // The refusal of the last of several sends says nothing of those before.
        let is_refusal = c.before_work || matches!(c.kind, Kind::Rejected | Kind::Conflict);
        let settled = is_success(Some(head)) || is_refusal && c.below.is_none();
        call.unknown |= !settled;
        let Some(wait_ms) = c.boundary.as_ref().map(|b| b.wait_ms) else { return };
        call.not_before = now.mono.plus_ms(wait_ms);
        // What it says counts from its head, which was told before: nothing is promised beyond that.
        if call.head_told != call.attempt {
            self.learn_scope(by, action, head);
        }
    }

    /// What a head says of the scope holds for everybody, as soon as it was read.
    pub(super) fn learn_scope(&mut self, by: u32, action: ActionId, head: &HeadSeen) {
        let c = &head.classification;
        let Some(wait_ms) = c.boundary.as_ref().map(|b| b.wait_ms) else { return };
        let until = self.now.mono.plus_ms(wait_ms);
        let Some(intent) = self.calls.get(action).map(|call| &self.intents[call.intent]) else { return };
        let narrowest = intent.narrow.last().copied().filter(|_| c.closes == Closes::Narrowest);
        let scope = narrowest.unwrap_or(intent.scope);
        if matches!(c.kind, Kind::Throttled | Kind::Exhausted | Kind::Unavailable | Kind::Success)
            && let Some(node) = self.node_mut(by)
        {
            let told = &mut node.ledger.scopes[scope].told_until;
            *told = (*told).max(until);
        }
    }
}

/// Whatever would keep this request from being sent, said without the core's own words for it.
fn covering(request: &Request) -> Vec<Circuit> {
    let (owner, scope, route) = (request.owner(), request.scope.clone(), request.route.clone());
    let run = request.run_named.then(|| request.run.clone());
    let mut all = vec![
        Circuit::Credential { owner: owner.clone() },
        Circuit::Endpoint { scope: scope.clone(), route: route.clone() },
        Circuit::Scope { scope },
    ];
    if let Some(run) = run.clone() {
        all.push(Circuit::Path { owner: owner.clone(), run, route: route.clone() });
    }
    if let Some(digest) = request.request_digest {
        all.push(Circuit::Request { owner, run, route, digest });
    }
    all
}
