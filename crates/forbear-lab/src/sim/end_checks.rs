//! What must hold of the journal as it grows, after a start, and once nothing is left to happen.

use forbear_core::durable::{Durable, Phase};
use forbear_core::effect::Effect;
use forbear_core::event::{Event, Fact};
use forbear_core::ids::{ActionId, AttemptNo};

use super::ledger::{Known, Reading};
use super::world::World;

impl World<'_> {
    /// Before the event enters the journal, if it does.
    pub(super) fn check_event(&mut self, by: u32, event: &Event) {
        if let (Fact::ActionSent { attempt }, step) = (&event.fact, self.step)
            && let Some(call) = event.action.and_then(|a| self.calls.get_mut(a))
            // A read that went straight is recorded long after it took its slot, where a repeat joins it.
            && call.took.0 != attempt.0
        {
            call.took = (attempt.0, step);
        }
        // A first send that is a retry of the layer above.
        if let Fact::RetryScheduled { attempt: AttemptNo(1), .. } = &event.fact
            && let Some(call) = event.action.and_then(|a| self.calls.get_mut(a))
        {
            call.is_retry = true;
        }
        let how = if self.tally.thawing { Reading::Thawing } else { Reading::Live };
        let Some(due) = self.node(by).map(|n| n.disk.appended + 1) else { return };
        if event.seq.0 != due {
            return self.fail("journal_is_dense", |_| format!("event {} where {due} is due", event.seq.0));
        }
        let now = self.now;
        let known = Known {
            fixtures: self.fixtures,
            calls: &self.calls,
            policies: &self.plan.policies,
            loaded: self.policy,
            now,
            lossy: self.tally.lossy,
            clock_stepped: self.tally.clock_stepped,
        };
        let Some(node) = self.owner.iter_mut().chain(&mut self.old).find(|n| n.number == by) else { return };
        if let Err((check, message)) = node.ledger.read(event, now, how, &known) {
            self.fail(check, |_| message);
        }
    }

    /// A process read the journal back: it knows what that says.
    pub(super) fn read_journal(&mut self, by: u32, how: Reading) {
        let known = Known {
            fixtures: self.fixtures,
            calls: &self.calls,
            policies: &self.plan.policies,
            loaded: self.policy,
            now: self.now,
            lossy: self.tally.lossy,
            clock_stepped: self.tally.clock_stepped,
        };
        let Some(node) = self.owner.as_mut().filter(|n| n.number == by) else { return };
        node.ledger.forget(how);
        // Which one was in force at each event is not known any more; from now on it is this one.
        let policy = self.policy;
        let found = self.store.journal.iter().find_map(|e| node.ledger.read(&e.event, e.at, how, &known).err());
        node.ledger.policy = policy;
        if let Some((check, message)) = found {
            self.fail(check, |_| format!("on reading back: {message}"));
        }
    }

    pub(super) fn check_recovered(&mut self) {
        let Some(node) = &self.owner else { return };
        let standing = node.core.durable_state().open.iter().find(|(_, o)| o.phase != Phase::Unknown);
        if let Some((action, open)) = standing {
            let what = format!("a{} is {:?} after the start", action.0, open.phase);
            self.fail("one_outcome", |_| what);
        }
    }

    /// Nothing is left to happen.
    pub(super) fn check_end(&mut self) {
        let Some(node) = &self.owner else {
            return self.fail("never_stuck", |_| "no process at the end".to_owned());
        };
        let live = node.core.live_actions();
        let slots: u32 = node.core.scopes_view(self.now, usize::MAX).iter().map(|s| s.in_flight + s.delayed).sum();
        if live > 0 || slots > 0 {
            return self.fail("never_stuck", |_| format!("{live} actions live and {slots} places taken at the end"));
        }
        self.check_replay();
        self.check_charges();
        let actions: Vec<ActionId> = self.calls.iter().map(|c| c.request.action).collect();
        for action in actions {
            self.check_call_at_end(action);
        }
    }

    fn check_call_at_end(&mut self, action: ActionId) {
        let (Some(call), Some(node)) = (self.calls.get(action), &self.owner) else { return };
        if !call.gone && call.answers != 1 {
            let answers = call.answers;
            return self.fail("one_answer", |_| format!("a{} stays and gets {answers} answers", action.0));
        }
        let intent = &self.intents[call.intent];
        let (effects, of_intent) = (call.effects, intent.effects);
        let done = |of: ActionId| self.calls.get(of).is_some_and(|c| c.effects > 0);
        if let Some((of, Effect::NotApplied)) = call.told.filter(|(of, _)| intent.rank.writes() && done(*of)) {
            return self.fail("effect_is_true", |_| format!("a{} was told not_applied of a{}", action.0, of.0));
        }
        let trail = node.ledger.trails.get(&action).cloned().unwrap_or_default();
        if trail.requested && trail.ended.is_none() && !trail.open_unknown {
            return self.fail("one_outcome", |_| format!("a{} never ends", action.0));
        }
        let unspent = trail.charged.filter(|n| intent.rank.writes() && trail.ended.is_some() && n.0 > call.left);
        if let Some(attempt) = unspent {
            return self.fail("charged_once", |_| format!("a{}#{} is charged and never left", action.0, attempt.0));
        }
        match trail.ended {
            Some((outcome, Effect::NotApplied)) if effects > 0 && intent.rank.writes() => {
                let outcome = outcome.as_str();
                self.fail("effect_is_true", |_| format!("a{} is {outcome}, not applied, and was", action.0));
            }
            Some((outcome, Effect::Applied)) if of_intent == 0 && intent.rank.writes() => {
                let outcome = outcome.as_str();
                self.fail("effect_is_true", |_| format!("a{} is {outcome}, applied, and was not", action.0));
            }
            _ => {}
        }
    }

    /// Invariant 6: what left was charged once, and what was charged left.
    fn check_charges(&mut self) {
        let Some(node) = self.owner.as_ref().filter(|_| !self.tally.lossy) else { return };
        let (charged, joined, below) = (node.ledger.charged, node.ledger.joined, node.ledger.below);
        let by_budget = |task| node.core.durable_state().tasks.get(task).map_or(0, |t| u64::from(t.retries));
        let counted: Vec<u64> = self.fixtures.tasks.iter().map(by_budget).collect();
        for (task, (charged, counted)) in charged.into_iter().zip(counted).enumerate() {
            let left = self.tally.retries_left[task] + joined[task] + below[task];
            let unsure = self.tally.unsure[task];
            if charged < left || charged > left + unsure {
                self.fail("charged_once", |_| format!("t{task}: {charged} charged, {left} left, {unsure} unsure"));
            }
            if counted != charged {
                self.fail("charged_once", |_| format!("t{task}: {charged} by the journal, {counted} by the budget"));
            }
        }
    }

    /// Reading the journal again gives the state that decides now.
    fn check_replay(&mut self) {
        let Some(node) = self.owner.as_ref().filter(|n| n.core.not_ready().is_none()) else { return };
        let mut again = Durable::default();
        for entry in &self.store.journal {
            again.apply(&entry.event);
        }
        if again != *node.core.durable_state() {
            let what = format!("replayed {again:?}\nlive {:?}", node.core.durable_state());
            self.fail("replay_is_exact", |_| what);
        }
    }
}
