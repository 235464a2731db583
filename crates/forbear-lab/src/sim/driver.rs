//! The model driver: it does what the real one may do, late and in an order of its own. Right before a first byte it
//! asks the core again if anything was decided since, it never sends after `send_not_after`, and it gives up when told.
//!
//! A command is never run twice: it lies in the mailbox of its call and is taken out once. What the core owes is that it
//! gives no attempt twice (`checks`).

use forbear_core::classify::Kind;
use forbear_core::command::{Command, Dispatch};
use forbear_core::effect::Evidence;
use forbear_core::event::KeyOrigin;
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Report};

use super::calls::number;
use super::chance::Site;
use super::coverage::Seen;
use super::provider::Arrival;
use super::trace::brief;
use super::world::{Happening, World};

/// Attempts in a thousand that find no connection: nothing leaves.
const UNSENT_PERMILLE: u64 = 40;
/// Results and ends of bodies in a thousand that are told a second time.
const TWICE_PERMILLE: u64 = 20;
/// Whole answers in a thousand whose agents do not take them at once.
const UNTAKEN_PERMILLE: u64 = 150;

impl World<'_> {
    pub(super) fn runs(&mut self, by: u32, command: Command) {
        if self.node(by).is_none() {
            return;
        }
        match command {
            Command::Append { .. } | Command::ForgetContent { .. } => {}
            Command::Dispatch(dispatch) => self.dials(by, dispatch),
            Command::ReadBody { action } => {
                self.cover(Seen::BodyPending);
                let in_ms = self.chance.at(Site::Dial, number(action), 0).pick(&[0, 10, 3_000]);
                self.later(in_ms, Happening::AsksAgain { action });
            }
            Command::Relay { action, attempt, .. } => self.relays(by, action, attempt),
            Command::Answer { action, ref answer } => {
                self.note(|w| format!("{}run: {}", w.tag(by), brief(&command)));
                self.answered(action, answer);
            }
            Command::Share { action, .. } => {
                self.note(|w| format!("{}run: {}", w.tag(by), brief(&command)));
                self.cover(Seen::Shared);
                self.count_answer(action);
            }
            Command::CancelUpstream { action, attempt } => self.cancels_upstream(by, action, attempt),
        }
    }

    fn dials(&mut self, by: u32, dispatch: Dispatch) {
        if let Some(call) = self.calls.get_mut(dispatch.action) {
            call.attempt = dispatch.attempt.0;
            call.on_wire = false;
        }
        let mut rng = self.chance.at(Site::Dial, number(dispatch.action), u64::from(dispatch.attempt.0));
        let in_ms = if rng.permille(500) { 0 } else { rng.pick(&[1, 30, 400, 16_000]) };
        self.later(in_ms, Happening::FirstByte { by, dispatch });
    }

    pub(super) fn first_byte(&mut self, by: u32, dispatch: Dispatch) {
        let (action, attempt) = (dispatch.action, dispatch.attempt);
        let current = self.calls.get(action).is_some_and(|c| c.attempt == attempt.0);
        if self.node(by).is_none() || !current {
            return;
        }
        let unsent = self.chance.at(Site::FirstByte, number(action), u64::from(attempt.0)).permille(UNSENT_PERMILLE);
        if unsent || self.now.mono > dispatch.send_not_after {
            self.cover(Seen::Unsent);
            self.note(|w| format!("{}a{}#{} never left", w.tag(by), action.0, attempt.0));
            return self.report(by, action, attempt, Evidence::NotSent, None);
        }
        if !self.confirms(by, dispatch) {
            self.cover(Seen::HeldBack);
            return;
        }
        self.note(|w| format!("{}first byte of a{}#{}", w.tag(by), action.0, attempt.0));
        self.check_first_byte(by, action, attempt);
        self.arrives(by, dispatch);
    }

    fn confirms(&mut self, by: u32, dispatch: Dispatch) -> bool {
        let (now, action, attempt) = (self.now, dispatch.action, dispatch.attempt);
        let Some(node) = self.node_mut(by) else { return false };
        let mut out = Vec::new();
        let undoubted = node.core.doubts() == dispatch.doubts;
        let go = node.core.confirm_send(now, action, attempt, &mut out);
        if undoubted && !go {
            // The server does not ask about such an attempt.
            self.fail("doubts_are_counted", |_| format!("a{}#{} is held back without a doubt", action.0, attempt.0));
        }
        if !go {
            self.note(|w| format!("{}a{}#{} is held back", w.tag(by), action.0, attempt.0));
        }
        self.take(by, out);
        go
    }

    fn arrives(&mut self, by: u32, dispatch: Dispatch) {
        let (action, attempt) = (dispatch.action, dispatch.attempt);
        let now = self.now;
        let Some(call) = self.calls.get_mut(action) else { return };
        call.on_wire = true;
        call.sends += 1;
        call.left = attempt.0;
        call.key_since.get_or_insert(now.mono);
        let (retry_spent, resend) = (std::mem::take(&mut call.is_retry), call.sends > 1);
        let (index, task) = (call.intent, call.task);
        let intent = &self.intents[index];
        if retry_spent {
            self.tally.retries_left[task] += 1;
        }
        if resend {
            self.coverage.add(Seen::Resend);
        }
        if self.old.as_ref().is_some_and(|n| n.number == by) {
            self.coverage.add(if intent.rank.writes() { Seen::FencedWrite } else { Seen::FencedSend });
        }
        let key = intent.key.as_ref().map(|k| match k.origin {
            KeyOrigin::Made => u128::MAX - action.0,
            KeyOrigin::Agent | KeyOrigin::Derived => index as u128,
        });
        let retention_ms = intent.key.as_ref().and_then(|k| k.retention_seconds).map(|s| s * 1_000);
        let who = Arrival { scopes: intent.scopes(), key, retention_ms, content: call.request.content_digest };
        let mut rng = self.chance.at(Site::Arrival, number(action), u64::from(attempt.0));
        let mut reply = self.provider.arrive(&mut rng, now, &self.plan.storm, who);
        self.provider.reveal(&mut rng, &mut reply);
        match reply.effect_in_ms {
            Some(0) => self.commits(action, key),
            Some(ms) => self.later(ms, Happening::Commits { action, key }),
            None => {}
        }
        self.note(|_| {
            let said = reply.answer.as_ref().map_or_else(|| format!("{:?}", reply.evidence), |a| a.status.to_string());
            let silent = if reply.silent { ", never" } else { "" };
            format!("  provider: {said} in {} ms{silent}, effect {:?}", reply.after_ms, reply.effect_in_ms)
        });
        let at = now.mono.plus_ms(reply.after_ms);
        let give_up = dispatch.give_up_at.max(now.mono);
        let (at, evidence, answer) = if reply.silent || at > give_up {
            (give_up, Evidence::Unknown, None)
        } else {
            (at, reply.evidence, reply.answer.map(Box::new))
        };
        self.at(at, Happening::Head { by, action, attempt, evidence, answer });
    }

    pub(super) fn head(
        &mut self,
        by: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<Box<HeadSeen>>,
    ) {
        match answer.as_ref().and_then(|head| self.heeds_refusal(by, action, attempt, head)) {
            Some(in_ms) => self.later(in_ms, Happening::Heard { by, action, attempt, evidence, answer }),
            None => self.heard(by, action, attempt, evidence, answer),
        }
    }

    /// A refusal whose body is slow: what its head says is told at once, and the result so much later.
    fn heeds_refusal(&mut self, by: u32, action: ActionId, attempt: AttemptNo, head: &HeadSeen) -> Option<u64> {
        let call = self.calls.get(action).filter(|c| !c.dead && c.attempt == attempt.0)?;
        let (scope, lane) = (call.request.scope.clone(), call.request.quota.lane.clone());
        if is_success(Some(head)) || self.node(by).is_none() {
            return None;
        }
        let mut rng = self.chance.at(Site::Refusal, number(action), u64::from(attempt.0));
        if !rng.permille(self.plan.slow_refusals_permille) {
            return None;
        }
        let in_ms = rng.pick(&[300, 2_000]);
        self.cover(Seen::RefusalAhead);
        self.note(|w| format!("{}head of a{}#{}: {}, and no body yet", w.tag(by), action.0, attempt.0, head.status));
        self.learn_scope(by, action, head);
        if let Some(call) = self.calls.get_mut(action) {
            call.head_told = attempt.0;
        }
        let head = Box::new(self.dated(head.clone()));
        self.tell(by, Input::Refused { action, attempt, scope, lane, head });
        Some(in_ms)
    }

    /// An answer is there to its end.
    pub(super) fn heard(
        &mut self,
        by: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<Box<HeadSeen>>,
    ) {
        if self.node(by).is_none() {
            return;
        }
        if self.calls.get(action).is_some_and(|c| c.dead) {
            self.cover(Seen::ResultAfterCancel);
        }
        let mut rng = self.chance.at(Site::Head, number(action), u64::from(attempt.0));
        if rng.permille(TWICE_PERMILLE) {
            let (in_ms, answer) = (rng.pick(&[0, 500, 5_000]), answer.clone());
            self.later(in_ms, Happening::HeardTwice { by, action, attempt, evidence, answer });
        }
        self.report(by, action, attempt, evidence, answer);
    }

    /// A result that came before: it must change nothing.
    pub(super) fn heard_twice(
        &mut self,
        by: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<Box<HeadSeen>>,
    ) {
        self.cover(Seen::ResultTwice);
        if self.calls.get(action).is_some_and(|c| c.given > attempt.0) {
            self.cover(Seen::ResultOfEarlier);
        }
        self.note(|w| format!("{}result a{}#{} is told again", w.tag(by), action.0, attempt.0));
        let report = Box::new(Report { evidence, answer: answer.map(|a| *a), transport: None });
        self.tell(by, Input::Result { action, attempt, report });
    }

    fn report(
        &mut self,
        by: u32,
        action: ActionId,
        attempt: AttemptNo,
        evidence: Evidence,
        answer: Option<Box<HeadSeen>>,
    ) {
        let answer = answer.map(|head| self.dated(*head));
        self.note(|w| {
            let said = answer.as_ref().map_or_else(|| format!("{evidence:?}"), |a| a.status.to_string());
            let wait = answer.as_ref().and_then(|a| a.classification.boundary.as_ref()).map(|b| b.wait_ms);
            format!("{}result a{}#{}: {said} wait {wait:?}", w.tag(by), action.0, attempt.0)
        });
        self.learn_head(by, action, evidence, answer.as_ref());
        let report = Box::new(Report { evidence, answer, transport: None });
        self.tell(by, Input::Result { action, attempt, report });
    }

    /// The instant that a wait from now on comes to.
    fn dated(&self, mut head: HeadSeen) -> HeadSeen {
        if let Some(boundary) = &mut head.classification.boundary {
            boundary.until = self.now.wall.plus_ms(boundary.wait_ms);
        }
        head
    }

    /// The agent hears the provider's answer; its body ends some time.
    fn relays(&mut self, by: u32, action: ActionId, attempt: AttemptNo) {
        self.note(|w| format!("{}run: relay a{}#{}", w.tag(by), action.0, attempt.0));
        self.count_answer(action);
        let Some(call) = self.calls.get_mut(action) else { return };
        call.relaying = true;
        let gone = call.gone;
        let mut rng = self.chance.at(Site::Relay, number(action), u64::from(attempt.0));
        let (in_ms, end) = match rng.range(0, 19) {
            19 => (rng.range(0, 5_000), BodyEnd::Cut("reset".into())),
            18 => (rng.range(0, 5_000), BodyEnd::ErrorInside("error event".into())),
            17 => (rng.range(5_000, 60_000), BodyEnd::Complete),
            _ => (rng.range(0, 300), BodyEnd::Complete),
        };
        let end = if gone && rng.permille(500) { BodyEnd::AgentLeft } else { end };
        if rng.permille(TWICE_PERMILLE) {
            let at = in_ms + rng.pick(&[0, 2_000]);
            self.later(at, Happening::Ends { by, action, attempt, end: BodyEnd::Complete });
        }
        let untaken_ms = match end {
            BodyEnd::Complete | BodyEnd::ErrorInside(_) => self.stays_untaken(by, action, attempt, in_ms),
            BodyEnd::Cut(_) | BodyEnd::AgentLeft => 0,
        };
        self.later(in_ms + untaken_ms, Happening::Ends { by, action, attempt, end });
    }

    /// For how long the agent leaves an answer lying that the provider has given to its end.
    fn stays_untaken(&mut self, by: u32, action: ActionId, attempt: AttemptNo, read_in_ms: u64) -> u64 {
        let mut rng = self.chance.at(Site::Reads, number(action), u64::from(attempt.0));
        if !rng.permille(UNTAKEN_PERMILLE) {
            return 0;
        }
        self.later(read_in_ms, Happening::Reads { by, action, attempt });
        if rng.permille(TWICE_PERMILLE) {
            self.later(read_in_ms + rng.pick(&[0, 2_000]), Happening::Reads { by, action, attempt });
        }
        rng.pick(&[10, 1_000, 150_000])
    }

    /// All of an answer is read, and its end is still to be told.
    pub(super) fn reads(&mut self, by: u32, action: ActionId, attempt: AttemptNo) {
        let Some(call) = self.calls.get_mut(action).filter(|c| c.relaying) else { return };
        call.on_wire = false;
        self.cover(Seen::Untaken);
        self.note(|w| format!("{}answer of a{}#{} is read, not taken", w.tag(by), action.0, attempt.0));
        self.tell(by, Input::AnswerRead { action, attempt, end: BodyEnd::Complete });
        let stage = self.node(by).and_then(|n| n.core.live_view(self.now, action)).map(|view| view.stage);
        if stage == Some("relaying") {
            self.fail("slots_come_back", |_| format!("a{} holds a slot of a provider that is done", action.0));
        }
    }

    pub(super) fn ends(&mut self, by: u32, action: ActionId, attempt: AttemptNo, end: BodyEnd) {
        if self.node(by).is_none() {
            return;
        }
        let Some(call) = self.calls.get_mut(action) else { return };
        // Told twice in some orders: the core takes the first.
        if !std::mem::take(&mut call.relaying) {
            self.coverage.add(Seen::EndTwice);
        } else if matches!(end, BodyEnd::Cut(_)) {
            self.coverage.add(Seen::BodyCut);
        }
        call.on_wire = false;
        if end == BodyEnd::Complete {
            self.coverage.add(Seen::Straight);
        }
        self.note(|w| format!("{}body of a{}#{} ends: {end:?}", w.tag(by), action.0, attempt.0));
        self.tell(by, Input::Ended { action, attempt, end });
    }

    fn cancels_upstream(&mut self, by: u32, action: ActionId, attempt: AttemptNo) {
        let Some(call) = self.calls.get_mut(action) else { return };
        if call.attempt == attempt.0 {
            // The attempt's first byte, if it has not left, does not leave any more.
            call.attempt = 0;
        }
        if std::mem::take(&mut call.relaying) {
            self.note(|w| format!("{}body of a{}#{} ends: cancelled", w.tag(by), action.0, attempt.0));
            self.tell(by, Input::Ended { action, attempt, end: BodyEnd::AgentLeft });
        }
    }

    pub(super) fn commits(&mut self, action: ActionId, key: Option<u128>) {
        self.provider.commit(key);
        let Some(call) = self.calls.get_mut(action) else { return };
        call.effects += 1;
        if !call.on_wire {
            self.coverage.add(Seen::LateEffect);
        }
        self.intents[call.intent].effects += 1;
        self.check_effect(action);
    }
}

pub(super) const fn is_success(head: Option<&HeadSeen>) -> bool {
    matches!(head, Some(h) if matches!(h.classification.kind, Kind::Success))
}
