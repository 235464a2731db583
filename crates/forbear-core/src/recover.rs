//! Coming back: after a start, and after a journal that could be written again.
//!
//! Volatile state restarts conservatively. What was on the wire when the process ended is `unknown`; what had not left
//! did not happen.

use std::sync::Arc;

use crate::command::Commands;
use crate::coordinator::{Coordinator, Write};
use crate::durable::{Durable, OpenAction, Phase};
use crate::effect::{Effect, Evidence};
use crate::event::{ActionFinished, ActionResult, Event, Fact, Outcome, ScopeUpdated};
use crate::ids::{ActionId, AttemptNo};
use crate::input::Settings;
use crate::time::Now;

impl Coordinator {
    /// Rebuilds from the newest snapshot and the events after it, and settles what no process follows any more.
    pub fn recover<'e>(
        settings: Arc<Settings>,
        seed: u64,
        now: Now,
        snapshot: Option<Durable>,
        tail: impl IntoIterator<Item = &'e Event>,
    ) -> (Self, Commands) {
        let mut this = Self::new(settings, seed, replay(snapshot, tail));
        let mut out = Commands::new();
        this.believe_no_clock_that_was_set_back(now, &mut out);
        let closed = this.durable.scopes.iter().filter_map(|(scope, record)| {
            let until = record.retry_not_before.filter(|until| *until > now.wall)?;
            // The part of a millisecond that was cut off when it was written may have been nearly a whole one.
            Some((scope.clone(), now.mono_at(until).plus_ms(1)))
        });
        this.closed_at_start = closed.collect();
        this.breakers.resume(now, &this.settings.breakers, &this.durable.circuits);
        this.settle_orphans(now, &mut out);
        (this, out)
    }

    /// A boundary that was written by a clock which is behind now has at most what it had then left to run. Said anew, so
    /// that every reader of it has the same instant.
    fn believe_no_clock_that_was_set_back(&mut self, now: Now, out: &mut Commands) {
        let ahead = self.durable.scopes.iter().filter_map(|(scope, record)| {
            let until = record.retry_not_before?;
            let behind_ms = now.wall.ms_until(record.updated_at);
            (behind_ms > 0).then(|| ScopeUpdated {
                scope: scope.clone(),
                retry_not_before: Some(now.wall.plus_ms(record.updated_at.ms_until(until))),
                boundary: record.boundary.clone(),
                windows: record.windows.clone(),
                malformed: record.malformed.clone(),
                reason: format!("the clock is {behind_ms} ms behind the instant at which this boundary was written"),
            })
        });
        for update in ahead.collect::<Vec<_>>() {
            self.emit(now, None, Fact::ScopeUpdated(Box::new(update)), Write::Ahead, out);
        }
    }

    /// Opens a frozen gate with the state that the journal really holds. Live actions go on.
    pub fn thaw<'e>(
        &mut self,
        now: Now,
        snapshot: Option<Durable>,
        tail: impl IntoIterator<Item = &'e Event>,
    ) -> Commands {
        let mut out = Commands::new();
        let Some(why) = self.gate.frozen().map(str::to_owned) else { return out };
        self.doubts += 1;
        self.durable = replay(snapshot, tail);
        self.recent.forget_ended();
        let (kept, lost) = self.gate.thaw(self.durable.seq);
        for live in self.live.values_mut() {
            let open = self.durable.open.get(&live.request.action);
            live.last_seq = open.map(|o| o.last_seq);
        }
        if lost > 0 {
            let fact = Fact::LogGap { events_at_most: lost, reason: why };
            self.emit(now, None, fact, Write::Ahead, &mut out);
        }
        for fact in kept {
            let at = Now { wall: fact.at, ..now };
            self.emit(at, fact.action, fact.fact, Write::Ahead, &mut out);
        }
        for live in self.live.values_mut() {
            let open = self.durable.open.get(&live.request.action);
            live.recorded = open.is_some();
            let known = open.and_then(|o| o.charged.as_ref()).map(|c| c.attempt);
            if known != live.charged.map(|(attempt, _)| attempt) {
                // The charge went with its event: there is nothing to give back.
                live.charged = None;
            }
        }
        self.settle_orphans(now, &mut out);
        out
    }

    fn settle_orphans(&mut self, now: Now, out: &mut Commands) {
        let orphans: Vec<(ActionId, OpenAction)> = self
            .durable
            .open
            .iter()
            .filter(|(id, open)| open.phase != Phase::Unknown && !self.live.contains_key(id))
            .map(|(id, open)| (*id, open.clone()))
            .collect();
        for (action, open) in orphans {
            self.settle_orphan(now, action, &open, out);
        }
    }

    fn settle_orphan(&mut self, now: Now, action: ActionId, open: &OpenAction, out: &mut Commands) {
        let writes = open.requested.rank.writes();
        let mut effect = open.effect;
        if let Phase::Sending(attempt) = open.phase {
            let result = ActionResult {
                attempt,
                evidence: Evidence::Unknown,
                effect: Effect::Unknown,
                status: None,
                classification: None,
                transport: Some("Forbear stopped while it was on the wire".into()),
            };
            self.emit(now, Some(action), Fact::ActionResult(Box::new(result)), Write::Ahead, out);
            effect = crate::durable::fold(effect, Effect::Unknown);
        }
        let last = open.attempts.last();
        if let (Phase::Planned, Some(charge)) = (open.phase, &open.charged) {
            let fact = Fact::RetryReturned {
                attempt: charge.attempt,
                scope: charge.scope.clone(),
                task: charge.task.clone(),
                wait_ms: charge.wait_ms,
            };
            self.emit(now, Some(action), fact, Write::Ahead, out);
        }
        let (outcome, reason) = match effect {
            Effect::Applied => (Outcome::Succeeded, "done; Forbear stopped before the answer was relayed whole"),
            Effect::Unknown if writes => (Outcome::OutcomeUnknown, "Forbear stopped while it was on the wire"),
            _ if writes => (Outcome::NotApplied, "Forbear stopped before it was sent"),
            _ => (Outcome::Cancelled, "Forbear stopped; nobody waits for it any more"),
        };
        if outcome == Outcome::OutcomeUnknown {
            let attempt = last.map_or(AttemptNo(1), |a| a.attempt);
            let fact = Fact::ReconciliationRequired { attempt, reason: reason.into() };
            self.emit(now, Some(action), fact, Write::Ahead, out);
        }
        let finished = ActionFinished {
            outcome,
            effect,
            attempts: u32::try_from(open.attempts.len()).unwrap_or(u32::MAX),
            waited_ms: 0,
            status: last.and_then(|a| a.status),
            reason: Some(reason.into()),
            waited_for: None,
            straight: None,
            // Perhaps it was told: a repeat is treated as if it was not.
            agent_left: writes,
            refused: None,
        };
        let seq = self.emit(now, Some(action), Fact::ActionFinished(Box::new(finished)), Write::Ahead, out);
        if outcome.is_terminal() && writes {
            self.gate.after(seq, crate::command::Command::ForgetContent { action }, out);
        }
    }
}

fn replay<'e>(snapshot: Option<Durable>, tail: impl IntoIterator<Item = &'e Event>) -> Durable {
    let mut durable = snapshot.unwrap_or_default();
    durable.reindex();
    for event in tail {
        // A snapshot may be newer than the first events handed over: what it holds is not applied twice.
        if event.seq > durable.seq {
            durable.apply(event);
        }
    }
    durable
}
