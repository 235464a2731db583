//! The agents: they ask, hang up, ask again under the same key, and repeat keyless writes when told that the effect is
//! unknown, as careless ones do.

use std::sync::Arc;

use forbear_core::command::{Answer, SafeNext};
use forbear_core::event::{KeyOrigin, Outcome};
use forbear_core::ids::{ActionId, Key};
use forbear_core::input::{Input, Request};
use forbear_core::time::Mono;

use super::plan::{Intent, rank_index};
use super::world::{Happening, World};

/// Calls that an agent makes for one intent, at most.
pub(super) const CALLS_MAX: u32 = 4;

/// One call, as its agent, the driver and the provider know it.
pub(super) struct Call {
    pub(super) intent: usize,
    pub(super) request: Request,
    pub(super) came: Mono,
    pub(super) deadline: Mono,
    pub(super) answers: u32,
    /// The agent hung up, or its connection was lost with the process.
    pub(super) gone: bool,
    /// When the driver has run all commands given so far.
    pub(super) commands_at: Mono,
    /// The attempt that the driver has in hand, and whether its first byte left.
    pub(super) attempt: u32,
    pub(super) on_wire: bool,
    pub(super) relaying: bool,
    /// Attempts that reached the wire, and effects at the provider.
    pub(super) sends: u32,
    pub(super) effects: u32,
    pub(super) heads: u32,
    /// The next attempt that leaves was charged as a retry.
    pub(super) is_retry: bool,
    /// What the provider told this call alone.
    pub(super) not_before: Mono,
    /// Attempts that the provider proved unprocessed.
    pub(super) refused: u32,
    /// Answers that the core gave, run or not.
    pub(super) promised: u32,
    /// The attempt was cancelled upstream: nothing more is heard of it.
    pub(super) dead: bool,
    /// An attempt left whose fate is open.
    pub(super) unknown: bool,
    /// When its key first reached the wire.
    pub(super) key_since: Option<Mono>,
}

impl World<'_> {
    pub(super) fn asks(&mut self, index: usize) {
        if self.core.is_none() {
            return self.later(500, Happening::Asks { intent: index });
        }
        let action = ActionId(self.calls.len() as u128 + 1);
        let Some(intent) = self.intents.get_mut(index) else { return };
        intent.calls += 1;
        let intent = intent.clone();
        let request = self.request(action, &intent);
        let deadline = self.now.mono_at(request.deadline);
        self.note(|w| {
            let what = format!("{:?} {} {}", intent.rank, request.scope, request.task);
            let key = request.key.as_ref().map_or("-", |k| k.value.as_str());
            format!("a{} asks (intent {index}, call {}): {what} key {key}", action.0, w.intents[index].calls)
        });
        let leaves = self.rng.permille(self.plan.leaves_permille).then(|| self.rng.pick(&[0, 5, 50, 2_000, 20_000]));
        self.calls.push(Call {
            intent: index,
            request: request.clone(),
            came: self.now.mono,
            deadline,
            answers: 0,
            gone: false,
            commands_at: self.now.mono,
            attempt: 0,
            on_wire: false,
            relaying: false,
            sends: 0,
            effects: 0,
            heads: 0,
            is_retry: false,
            not_before: Mono(0),
            unknown: false,
            refused: 0,
            promised: 0,
            dead: false,
            key_since: None,
        });
        if let Some(in_ms) = leaves {
            self.later(in_ms, Happening::Leaves { action });
        }
        self.tell(Input::Request(Box::new(request)));
    }

    fn request(&self, action: ActionId, intent: &Intent) -> Request {
        let class = rank_index(intent.rank);
        let mut key = intent.key.clone();
        if let Some(made) = key.as_mut().filter(|k| k.origin == KeyOrigin::Made) {
            made.value = Key::new(&format!("m{}", action.0));
        }
        Request {
            action,
            task: self.fixtures.tasks[intent.task].clone(),
            run: self.fixtures.run.clone(),
            provider: self.fixtures.provider.clone(),
            scope: self.fixtures.scopes[intent.scope].clone(),
            limits: self.plan.limits,
            route: self.fixtures.routes[intent.route].clone(),
            class: self.fixtures.classes[class].clone(),
            rank: intent.rank,
            rule: Arc::clone(&self.plan.rules[class]),
            content_digest: intent.digest,
            content_bytes: 10,
            replayable: intent.replayable,
            body_pending: intent.body_pending,
            key,
            repeatable: intent.repeatable,
            deadline: self.now.wall.plus_ms(intent.deadline_ms),
            goal: None,
            reference: intent.reference.clone(),
            journal_before: intent.journal_before,
        }
    }

    /// The body that was held back came.
    pub(super) fn asks_again(&mut self, action: ActionId) {
        let now = self.now;
        let Some(call) = self.call_mut(action).filter(|c| !c.gone && c.answers == 0) else { return };
        call.request.body_pending = false;
        call.deadline = now.mono_at(call.request.deadline);
        let request = call.request.clone();
        self.note(|_| format!("a{} sent its body", action.0));
        self.tell(Input::Request(Box::new(request)));
    }

    pub(super) fn leaves(&mut self, action: ActionId) {
        let Some(call) = self.call_mut(action).filter(|c| !c.gone) else { return };
        let finished = call.answers > 0 && !call.relaying;
        if finished {
            return;
        }
        call.gone = true;
        let index = call.intent;
        self.note(|_| format!("a{} leaves", action.0));
        self.tell(Input::AgentLeft { action });
        let long_retention = self.plan.retention_seconds > 3_600;
        let Some(intent) = self.intents.get_mut(index) else { return };
        if intent.calls >= CALLS_MAX || !self.rng.permille(500) {
            return;
        }
        let keyed = intent.key.as_ref().is_some_and(|k| k.origin == KeyOrigin::Agent && k.retention_seconds.is_some());
        // A repeat of what was not answered: only a key that is still honoured makes one intent of two calls.
        if !(keyed && long_retention) {
            intent.loose = true;
        }
        let in_ms = self.rng.pick(&[0, 20, 1_000, 30_000]);
        self.later(in_ms, Happening::Asks { intent: index });
    }

    pub(super) fn cancels(&mut self, task: usize) {
        if self.core.is_none() {
            return;
        }
        let task = self.fixtures.tasks[task].clone();
        self.note(|_| format!("cancel {task}"));
        self.tell(Input::CancelTask { task, by: "person".into() });
    }

    /// An answer of Forbear's own reached the agent, unless it is gone.
    pub(super) fn answered(&mut self, action: ActionId, answer: &Answer) {
        self.count_answer(action);
        let Some(call) = self.call(action).filter(|c| !c.gone) else { return };
        let index = call.intent;
        let Some(intent) = self.intents.get_mut(index) else { return };
        if intent.calls >= CALLS_MAX {
            return;
        }
        let unknown = answer.stamp.outcome == Outcome::OutcomeUnknown;
        let safe = answer.safe_next.contains(&SafeNext::CallAgain);
        if unknown && intent.digest.is_none() {
            // Nothing can tell a repeat of a body that was streamed once.
            intent.loose = true;
        }
        if (unknown && self.rng.permille(600)) || (safe && self.rng.permille(300)) {
            let wait = answer.retry_after_seconds.unwrap_or(0).saturating_mul(1_000);
            let in_ms = wait + self.rng.pick(&[0, 100, 10_000, 100_000]);
            self.later(in_ms, Happening::Asks { intent: index });
        }
    }
}
