//! Leaving: an agent that hung up, what is cancelled, a shutdown, and a journal that cannot be written.
//!
//! What is in line goes; a read on the wire is cancelled upstream; a write on the wire is followed to its end, because
//! cancelling it would only hide what it did.

use crate::action::admit::must_be_durable;
use crate::action::live::{Live, Stage};
use crate::command::{Command, Commands};
use crate::coordinator::Coordinator;
use crate::effect::Effect;
use crate::event::Outcome;
use crate::ids::ActionId;
use crate::time::Now;

pub(crate) const AGENT_LEFT: &str = "client_cancelled: the agent left";
pub(crate) const UNJOURNALED: &str = "the journal cannot be written, so it was not sent; see /-/ready";

impl Coordinator {
    pub(crate) fn agent_left(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        if self.waiters.contains_key(&action) {
            return self.let_go(now, action, Outcome::Cancelled, AGENT_LEFT, out);
        }
        let Some(live) = self.live.get_mut(&action) else { return };
        live.agent_here = false;
        self.unheard(now, action, out);
    }

    /// If nobody is there any more to hear of its result, it is withdrawn.
    pub(crate) fn unheard(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        if !self.is_heard(action) && !self.may_come_back(now, action) {
            self.withdraw(now, action, AGENT_LEFT, out);
        }
    }

    /// Whether somebody waits for the action's result: its own agent, or one that repeats it.
    #[must_use]
    pub fn is_heard(&self, action: ActionId) -> bool {
        self.live.get(&action).is_some_and(|live| live.is_heard())
    }

    pub(crate) fn withdraw(&mut self, now: Now, action: ActionId, why: &'static str, out: &mut Commands) {
        self.doubts += 1;
        let Some(live) = self.live.get_mut(&action) else { return };
        match live.stage {
            Stage::Waiting { .. } => {
                if let Some(mut live) = self.live.remove(&action) {
                    self.unline(now, &mut live);
                    self.stop(now, live, Outcome::Cancelled, why, out);
                }
            }
            Stage::InFlight(_) if self.gate.withdraw(action) => {
                self.never_left(now, action, Outcome::Cancelled, why, out);
            }
            Stage::InFlight(_) | Stage::Relaying(_) if live.request.rank.writes() => {
                // A cancelled task stays cancelled, whoever leaves then: a call that joins takes only a leaving back.
                if live.follow_only.is_none_or(|before| before == AGENT_LEFT) {
                    live.follow_only = Some(why);
                }
            }
            Stage::InFlight(attempt) => {
                if let Some(mut live) = self.live.remove(&action) {
                    let scope = live.request.scope.clone();
                    // It may have left: it counts, and its charge stays.
                    live.sends += 1;
                    live.charged = None;
                    out.push(Command::CancelUpstream { action, attempt });
                    self.release_only(&live);
                    self.stop(now, live, Outcome::Cancelled, why, out);
                    self.pump(now, &scope, out);
                }
            }
            // The body's end is reported by whoever relays it.
            Stage::Relaying(attempt) => out.push(Command::CancelUpstream { action, attempt }),
            // The provider has given its answer: nothing is left to cancel.
            Stage::Telling(_) => {}
        }
    }

    pub(crate) fn drain(&mut self, now: Now, out: &mut Commands) {
        self.draining = true;
        for action in self.waiting() {
            if let Some(mut live) = self.live.remove(&action) {
                self.unline(now, &mut live);
                let why = "Forbear is shutting down";
                if live.request.rank.writes() && live.effect == Effect::Unknown {
                    self.stop(now, live, Outcome::BudgetExhausted, why, out);
                } else {
                    self.defer(now, live, why, 1, out);
                }
            }
        }
    }

    /// What is still on the wire without an answer's head is given up: its agent had better hear that than a closed
    /// connection.
    pub(crate) fn drain_over(&mut self, now: Now, out: &mut Commands) {
        let on_the_wire = self.live.values().filter_map(|l| match l.stage {
            Stage::InFlight(attempt) => Some((l.request.action, attempt)),
            Stage::Waiting { .. } | Stage::Relaying(_) | Stage::Telling(_) => None,
        });
        for (action, attempt) in on_the_wire.collect::<Vec<_>>() {
            if self.gate.withdraw(action) {
                self.never_left(now, action, Outcome::Deferred, "Forbear is shutting down", out);
            } else {
                out.push(Command::CancelUpstream { action, attempt });
                self.give_up_attempt(now, action, attempt, "Forbear shut down before an answer came", out);
            }
        }
    }

    /// The append failed: what was held will never be safe to send, and is told so; answers that are true are given.
    pub(crate) fn freeze(&mut self, now: Now, why: String, out: &mut Commands) {
        if self.gate.frozen().is_some() {
            return;
        }
        let held = self.gate.freeze(why);
        // Those in line first: a slot that comes back must not let one out that cannot be journaled.
        for action in self.waiting() {
            if self.live.get(&action).is_some_and(|l| must_be_durable(&l.request))
                && let Some(mut live) = self.live.remove(&action)
            {
                self.unline(now, &mut live);
                self.stop_unjournaled(now, live, out);
            }
        }
        for command in held {
            match command {
                Command::Dispatch(dispatch) => self.never_left(now, dispatch.action, Outcome::Shed, UNJOURNALED, out),
                // Deleting what the journal may still need is the one thing that must not happen now.
                Command::ForgetContent { .. } => {}
                truth => out.push(truth),
            }
        }
    }

    /// Its attempt was decided and has not left: it ends here, its slot and its charge go back.
    pub(crate) fn never_left(
        &mut self,
        now: Now,
        action: ActionId,
        wanted: Outcome,
        why: &'static str,
        out: &mut Commands,
    ) {
        let Some(mut live) = self.live.remove(&action) else { return };
        let scope = live.request.scope.clone();
        if let Some(attempt) = live.attempt() {
            self.record_unsent(now, &mut live, attempt, why, out);
        }
        self.release_only(&live);
        self.stop(now, live, wanted, why, out);
        self.pump(now, &scope, out);
    }

    pub(crate) fn stop_unjournaled(&mut self, now: Now, live: Box<Live>, out: &mut Commands) {
        self.stop(now, live, Outcome::Shed, UNJOURNALED, out);
    }

    fn waiting(&self) -> Vec<ActionId> {
        let waiting = self.live.values().filter(|l| matches!(l.stage, Stage::Waiting { .. }));
        waiting.map(|l| l.request.action).collect()
    }
}
