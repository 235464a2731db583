//! The model driver: it does what the real one may do, late and in an order of its own. Right before a first byte it
//! asks the core again if anything was decided since, it never sends after `send_not_after`, and it gives up when told.

use forbear_core::command::{Command, Dispatch};
use forbear_core::effect::Evidence;
use forbear_core::event::KeyOrigin;
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Report};
use forbear_core::{Coordinator, classify::Kind};

use super::provider::Arrival;
use super::world::{Happening, World, brief};

/// Attempts in a thousand that find no connection: nothing leaves.
const UNSENT_PERMILLE: u64 = 40;
/// Results in a thousand that are told a second time.
const TWICE_PERMILLE: u64 = 20;
const FAST_FLUSH_MS: u64 = 1;
const BEHIND_FLUSH_MS: u64 = 10;

impl World<'_> {
    pub(super) fn runs(&mut self, incarnation: u32, command: Command) {
        if incarnation != self.incarnation || self.core.is_none() {
            return;
        }
        match command {
            Command::Append { .. } | Command::ForgetContent { .. } => {}
            Command::Dispatch(dispatch) => self.dials(dispatch),
            Command::ReadBody { action } => {
                let in_ms = self.rng.pick(&[0, 10, 3_000]);
                self.later(in_ms, Happening::AsksAgain { action });
            }
            Command::Relay { action, attempt, .. } => self.relays(action, attempt),
            Command::Answer { action, ref answer } => {
                self.note(|_| format!("run: {}", brief(&command)));
                self.answered(action, answer);
            }
            Command::CancelUpstream { action, attempt } => self.cancels_upstream(action, attempt),
        }
    }

    fn dials(&mut self, dispatch: Dispatch) {
        if let Some(call) = self.call_mut(dispatch.action) {
            call.attempt = dispatch.attempt.0;
            call.on_wire = false;
        }
        let incarnation = self.incarnation;
        let in_ms = if self.rng.permille(500) { 0 } else { self.rng.pick(&[1, 30, 400, 16_000]) };
        self.later(in_ms, Happening::FirstByte { incarnation, dispatch });
    }

    pub(super) fn first_byte(&mut self, incarnation: u32, dispatch: Dispatch) {
        let (action, attempt) = (dispatch.action, dispatch.attempt);
        let current = self.call(action).is_some_and(|c| c.attempt == attempt.0);
        if incarnation != self.incarnation || !current {
            return;
        }
        let unsent = self.rng.permille(UNSENT_PERMILLE);
        if unsent || self.now.mono > dispatch.send_not_after {
            self.note(|_| format!("a{}#{} never left", action.0, attempt.0));
            return self.report(action, attempt, Evidence::NotSent, None);
        }
        if !self.confirms(dispatch) {
            return;
        }
        self.note(|_| format!("first byte of a{}#{}", action.0, attempt.0));
        self.check_first_byte(action, attempt);
        self.arrives(dispatch);
    }

    fn confirms(&mut self, dispatch: Dispatch) -> bool {
        let (now, action, attempt) = (self.now, dispatch.action, dispatch.attempt);
        let Some(core) = &mut self.core else { return false };
        let mut out = Vec::new();
        let undoubted = core.doubts() == dispatch.doubts;
        let go = core.confirm_send(now, action, attempt, &mut out);
        if undoubted && !go {
            // The server does not ask about such an attempt.
            self.fail("doubts_are_counted", |_| format!("a{}#{} is held back without a doubt", action.0, attempt.0));
        }
        if !go {
            self.note(|_| format!("a{}#{} is held back", action.0, attempt.0));
        }
        self.take(out);
        go
    }

    fn arrives(&mut self, dispatch: Dispatch) {
        let (action, attempt) = (dispatch.action, dispatch.attempt);
        let now = self.now;
        let retry_spent = self.call_mut(action).is_some_and(|call| {
            call.on_wire = true;
            call.sends += 1;
            call.key_since.get_or_insert(now.mono);
            std::mem::take(&mut call.is_retry)
        });
        let Some(call) = self.call(action) else { return };
        let intent_index = call.intent;
        let intent = &self.intents[intent_index];
        if retry_spent {
            self.ledger.retries_left[intent.task] += 1;
        }
        let key = intent.key.as_ref().map(|k| match k.origin {
            KeyOrigin::Made => u128::MAX - action.0,
            KeyOrigin::Agent | KeyOrigin::Derived => intent_index as u128,
        });
        let retention_ms = intent.key.as_ref().and_then(|k| k.retention_seconds).map(|s| s * 1_000);
        let who = Arrival { scope: intent.scope, key, retention_ms };
        let reply = self.provider.arrive(&mut self.rng, now, &self.plan.storm, who);
        match reply.effect_in_ms {
            Some(0) => self.commits(intent_index, action, key),
            Some(ms) => self.later(ms, Happening::Commits { intent: intent_index, action, key }),
            None => {}
        }
        self.note(|_| {
            let said = reply.answer.as_ref().map_or_else(|| format!("{:?}", reply.evidence), |a| a.status.to_string());
            let silent = if reply.silent { ", never" } else { "" };
            format!("  provider: {said} in {} ms{silent}, effect {:?}", reply.after_ms, reply.effect_in_ms)
        });
        let incarnation = self.incarnation;
        let at = now.mono.plus_ms(reply.after_ms);
        let give_up = dispatch.give_up_at.max(now.mono);
        let (at, evidence, answer) = if reply.silent || at > give_up {
            (give_up, Evidence::Unknown, None)
        } else {
            (at, reply.evidence, reply.answer.map(Box::new))
        };
        self.at(at, Happening::Head { incarnation, action, attempt, evidence, answer });
    }

    pub(super) fn head(
        &mut self,
        incarnation: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<Box<HeadSeen>>,
    ) {
        if incarnation == self.incarnation && self.core.is_some() {
            if self.rng.permille(TWICE_PERMILLE) {
                let (in_ms, answer) = (self.rng.pick(&[0, 500, 5_000]), answer.as_deref().cloned());
                self.later(in_ms, Happening::HeardTwice { incarnation, action, attempt, evidence, answer });
            }
            self.report(action, attempt, evidence, answer);
        }
    }

    /// A result that came before: it must change nothing.
    pub(super) fn heard_twice(
        &mut self,
        incarnation: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<HeadSeen>,
    ) {
        if incarnation != self.incarnation {
            return;
        }
        self.note(|_| format!("result a{}#{} is told again", action.0, attempt.0));
        let report = Box::new(Report { evidence, answer, transport: None });
        self.tell(Input::Result { action, attempt, report });
    }

    fn report(&mut self, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<Box<HeadSeen>>) {
        let now = self.now;
        let answer = answer.map(|mut head| {
            if let Some(boundary) = &mut head.classification.boundary {
                boundary.until = now.wall.plus_ms(boundary.wait_ms);
            }
            *head
        });
        self.note(|_| {
            let said = answer.as_ref().map_or_else(|| format!("{evidence:?}"), |a| a.status.to_string());
            let wait = answer.as_ref().and_then(|a| a.classification.boundary.as_ref()).map(|b| b.wait_ms);
            format!("result a{}#{}: {said} wait {wait:?}", action.0, attempt.0)
        });
        self.learn_head(action, attempt, evidence, answer.as_ref());
        let report = Box::new(Report { evidence, answer, transport: None });
        self.tell(Input::Result { action, attempt, report });
    }

    /// The agent hears the provider's answer; its body ends some time.
    fn relays(&mut self, action: ActionId, attempt: AttemptNo) {
        self.note(|_| format!("run: relay a{}#{}", action.0, attempt.0));
        self.count_answer(action);
        let Some(call) = self.call_mut(action) else { return };
        call.relaying = true;
        let gone = call.gone;
        let (in_ms, end) = match self.rng.range(0, 19) {
            0 => (self.rng.range(0, 5_000), BodyEnd::Cut("reset".into())),
            1 => (self.rng.range(0, 5_000), BodyEnd::ErrorInside("error event".into())),
            2 => (self.rng.range(5_000, 60_000), BodyEnd::Complete),
            _ => (self.rng.range(0, 300), BodyEnd::Complete),
        };
        let end = if gone && self.rng.permille(500) { BodyEnd::AgentLeft } else { end };
        let incarnation = self.incarnation;
        self.later(in_ms, Happening::Ends { incarnation, action, attempt, end });
    }

    pub(super) fn ends(&mut self, incarnation: u32, action: ActionId, attempt: AttemptNo, end: BodyEnd) {
        if incarnation != self.incarnation || self.core.is_none() {
            return;
        }
        let Some(call) = self.call_mut(action) else { return };
        // Told twice in some orders: the core takes the first.
        call.relaying = false;
        call.on_wire = false;
        self.note(|_| format!("body of a{}#{} ends: {end:?}", action.0, attempt.0));
        self.tell(Input::Ended { action, attempt, end });
    }

    fn cancels_upstream(&mut self, action: ActionId, attempt: AttemptNo) {
        let Some(call) = self.call_mut(action) else { return };
        if call.attempt == attempt.0 {
            // The attempt's first byte, if it has not left, does not leave any more.
            call.attempt = 0;
        }
        if std::mem::take(&mut call.relaying) {
            self.note(|_| format!("body of a{}#{} ends: cancelled", action.0, attempt.0));
            self.tell(Input::Ended { action, attempt, end: BodyEnd::AgentLeft });
        }
    }

    pub(super) fn append(&mut self, event: forbear_core::event::Event, behind: bool) {
        self.note(|_| {
            let who = event.action.map_or(String::new(), |a| format!(" a{}", a.0));
            format!("  > append {}{}{who} {}", event.seq.0, if behind { " behind" } else { "" }, fact(&event.fact))
        });
        self.check_event(&event);
        let now = self.now;
        self.store.append(event, now);
        if self.store.committing.is_none() && !self.store.failed {
            self.commit_soon(behind);
        }
        if self.rng.permille(self.plan.snapshots_permille)
            && let Some(core) = self.core.as_ref().filter(|c| c.not_ready().is_none())
            && core.last_seq().0 == self.store.journal.len() as u64
        {
            self.store.snapshot(core.durable_state().clone());
        }
    }

    fn commit_soon(&mut self, behind: bool) {
        let up_to = self.store.journal.len();
        self.store.committing = Some(up_to);
        let flush = self.rng.range(0, self.plan.flush_ms_max.max(FAST_FLUSH_MS));
        let in_ms = flush + if behind { BEHIND_FLUSH_MS } else { 0 };
        let incarnation = self.incarnation;
        self.later(in_ms, Happening::Flushed { incarnation, up_to });
    }

    pub(super) fn flushed(&mut self, incarnation: u32, up_to: usize) {
        if incarnation != self.incarnation || self.store.committing != Some(up_to) {
            return;
        }
        self.store.committing = None;
        if self.rng.permille(self.plan.store_fails_permille) {
            return self.append_fails();
        }
        self.store.advance(up_to);
        let in_ms = self.rng.pick(&[0, 0, 0, 5, 500]);
        self.later(in_ms, Happening::Acknowledged { incarnation, up_to });
        if self.store.journal.len() > up_to {
            self.commit_soon(false);
        }
    }

    /// Maybe it is all there and only the word is lost; maybe none of it is.
    fn append_fails(&mut self) {
        let appended = self.store.appended;
        let lost = self.store.lose_suffix(&mut self.rng);
        self.store.failed = true;
        // What is appended until the core is told is lost as well.
        self.store.appended = appended;
        self.note(|_| format!("append fails, {lost} events lost"));
        self.ledger.lossy = true;
        let in_ms = self.rng.pick(&[0, 0, 1, 300]);
        let incarnation = self.incarnation;
        self.later(in_ms, Happening::FailureIsTold { incarnation });
    }

    pub(super) fn failure_is_told(&mut self, incarnation: u32) {
        if incarnation != self.incarnation || self.core.is_none() {
            return;
        }
        self.note(|_| "the core hears of the failed append".to_owned());
        self.tell(Input::AppendFailed { why: "disk full".into() });
        let in_ms = self.rng.pick(&[10, 1_000, 20_000]);
        self.later(in_ms, Happening::Thaws { incarnation });
    }

    pub(super) fn acknowledged(&mut self, incarnation: u32, up_to: usize) {
        if incarnation == self.incarnation {
            self.tell(Input::Durable { seq: forbear_core::ids::Seq(up_to as u64) });
        }
    }

    pub(super) fn thaws(&mut self, incarnation: u32) {
        if incarnation != self.incarnation || self.core.is_none() {
            return;
        }
        self.note(|_| "thaw".to_owned());
        self.store.failed = false;
        self.store.appended = self.store.durable as u64;
        self.rebuild_ledger();
        let (snapshot, from) = self.store.read_back(&mut self.rng);
        let now = self.now;
        let Some(core) = &mut self.core else { return };
        let out = core.thaw(now, snapshot, self.store.tail(from));
        self.ledger.thawing = true;
        self.take(out);
        self.ledger.thawing = false;
    }

    pub(super) fn crashes(&mut self) {
        if self.core.is_none() {
            return;
        }
        self.core = None;
        self.incarnation += 1;
        let lost = self.store.lose_suffix(&mut self.rng);
        self.store.failed = false;
        self.note(|_| format!("crash, {lost} events lost"));
        self.ledger.lossy = true;
        self.connections_lost();
        let in_ms = self.rng.range(1, 20_000);
        self.later(in_ms, Happening::Starts);
    }

    pub(super) fn starts(&mut self) {
        self.rebuild_ledger();
        let (snapshot, from) = self.store.read_back(&mut self.rng);
        let seed = self.rng.next();
        self.note(|w| format!("start, from event {} of {}", from + 1, w.store.durable));
        let settings = self.plan.settings.clone();
        let (core, out) = Coordinator::recover(settings, seed, self.now, snapshot, self.store.tail(from));
        self.core = Some(core);
        self.take(out);
        self.check_recovered();
    }

    /// Every agent's connection went with the process. Some ask again.
    fn connections_lost(&mut self) {
        for index in 0..self.calls.len() {
            let call = &mut self.calls[index];
            if call.gone || (call.answers > 0 && !call.relaying) {
                continue;
            }
            call.gone = true;
            call.relaying = false;
            let (intent_index, heads) = (call.intent, call.heads);
            let intent = &mut self.intents[intent_index];
            if intent.calls >= super::agents::CALLS_MAX || !self.rng.permille(500) {
                continue;
            }
            let keyed =
                intent.key.as_ref().is_some_and(|k| k.origin == KeyOrigin::Agent && k.retention_seconds.is_some());
            // Without such a key Forbear can know the repeat only by an open action with that content.
            let known = intent.digest.is_some() && heads == 0;
            if !(known || keyed && self.plan.retention_seconds > 3_600) {
                intent.loose = true;
            }
            let in_ms = self.rng.pick(&[0, 1_000, 30_000]);
            self.later(in_ms, Happening::Asks { intent: intent_index });
        }
    }

    pub(super) fn commits(&mut self, intent: usize, action: ActionId, key: Option<u128>) {
        self.provider.commit(key);
        if let Some(call) = self.call_mut(action) {
            call.effects += 1;
        }
        let Some(intent) = self.intents.get_mut(intent) else { return };
        intent.effects += 1;
        self.check_effect(action);
    }
}

pub(super) const fn is_success(head: Option<&HeadSeen>) -> bool {
    matches!(head, Some(h) if matches!(h.classification.kind, Kind::Success))
}

fn fact(fact: &forbear_core::event::Fact) -> String {
    use forbear_core::event::Fact;
    match fact {
        Fact::ActionRequested(_) => "action_requested".into(),
        Fact::ActionSent { attempt } => format!("action_sent #{}", attempt.0),
        Fact::ActionResult(r) => format!("action_result #{} {:?} {:?}", r.attempt.0, r.evidence, r.effect),
        Fact::RetryScheduled { attempt, wait_ms, reason, .. } => {
            format!("retry_scheduled #{} in {wait_ms} ms: {reason}", attempt.0)
        }
        Fact::RetryStarted { attempt, .. } => format!("retry_started #{}", attempt.0),
        Fact::RetryReturned { .. } => "retry_returned".into(),
        Fact::ScopeUpdated(u) => format!("scope_updated {} until {:?}", u.scope, u.retry_not_before.map(|w| w.0)),
        Fact::ActionFinished(f) => {
            format!("action_finished {} {:?} {}", f.outcome.as_str(), f.effect, f.reason.as_deref().unwrap_or(""))
        }
        other => format!("{other:?}"),
    }
}
