//! A call without lasting effect that a layer above makes again: its client says so, or an equal call of its task has just
//! failed.
//!
//! A marked repeat waits for the result of the call that it repeats, or gets that result once more while it is fresh: what was
//! paid for is not paid for twice. Equal calls without a mark are never joined, since two samples of one prompt are two;
//! where it cannot be told which of several is repeated, neither. What is sent all the same is a retry, whoever makes it:
//! it is charged as one, and not sent where its budget does not bear it.
//!
//! All of it is known to the process only. At its bound the oldest end is forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::action::admit::write_for;
use crate::action::leave::AGENT_LEFT;
use crate::action::live::{Live, Stage};
use crate::command::{Answer, Command, Commands};
use crate::coordinator::{Coordinator, Write};
use crate::event::{Fact, Joined, Outcome};
use crate::ids::{ActionId, AttemptNo, Digest, Seq, TaskId, TenantId};
use crate::input::{Mark, Request};
use crate::policy::Rank;
use crate::time::{Mono, Now};

/// How long a result is given again: clients wait eight seconds at most before they repeat a call.
pub const RESULT_KEPT_MS: u64 = 30_000;
/// How long an equal call of the same task is taken for another try of one that failed.
const FAILURE_KEPT_MS: u64 = 600_000;
/// Ended calls that are remembered.
const ENDED_CALLS_MAX: usize = 4_096;
/// How long an inference goes on whose agent hung up, where its client marks its repeats: the first one comes within a
/// second, and what runs is paid for already.
const COMES_BACK_MS: u64 = 2_000;

/// A call's content, within its credential.
type Content = (TenantId, Digest);

/// Calls by their content: those on their way, and those that ended just now.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    calls: BTreeMap<Content, BTreeSet<ActionId>>,
    ended: BTreeMap<ActionId, EndedCall>,
    /// The oldest end first.
    order: VecDeque<ActionId>,
    /// Until when clients are expected back. One that came, or whose call has ended, stays in here until then.
    expected: BTreeSet<(Mono, ActionId)>,
}

#[derive(Debug)]
struct EndedCall {
    content: Content,
    task: TaskId,
    at: Mono,
    answer: Box<Answer>,
    /// Its last event, in this journal.
    last_seq: Option<Seq>,
}

impl EndedCall {
    const fn failed(&self) -> bool {
        matches!(self.answer.stamp.outcome, Outcome::BudgetExhausted | Outcome::DeadlineExhausted)
    }
}

/// What a call is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    No,
    Joins(ActionId),
    /// The result of an action that has ended, once more.
    Again(ActionId),
    /// Another try, to be charged as a retry; and of which failure, where that is known.
    Retry(Option<ActionId>),
}

impl Recent {
    fn content(request: &Request) -> Option<Content> {
        Some((request.owner(), request.call_digest?))
    }

    fn enter(&mut self, request: &Request) {
        if let Some(content) = Self::content(request) {
            self.calls.entry(content).or_default().insert(request.action);
        }
    }

    fn keep(&mut self, now: Now, live: &Live, answer: Answer) {
        let request = &live.request;
        let Some(content) = Self::content(request) else { return };
        if answer.stamp.outcome == Outcome::Succeeded {
            // What failed before has been made good.
            let known = self.calls.get(&content).into_iter().flatten();
            let failed = known.filter(|id| self.ended.get(id).is_some_and(EndedCall::failed));
            for action in failed.copied().collect::<Vec<_>>() {
                self.forget(action);
            }
        }
        self.enter(request);
        let ended = EndedCall {
            content,
            task: request.task.clone(),
            at: now.mono,
            answer: Box::new(answer),
            last_seq: live.last_seq,
        };
        if self.ended.insert(request.action, ended).is_none() {
            self.order.push_back(request.action);
        }
        while let Some(oldest) = self.order.front().copied() {
            let is_old = self.ended.get(&oldest).is_none_or(|ended| now.mono.ms_since(ended.at) >= FAILURE_KEPT_MS);
            if self.order.len() <= ENDED_CALLS_MAX && !is_old {
                break;
            }
            self.order.pop_front();
            self.forget(oldest);
        }
    }

    /// Where the last event stands of a call that has ended.
    pub(crate) fn last_seq(&mut self, action: ActionId) -> Option<&mut Option<Seq>> {
        self.ended.get_mut(&action).map(|ended| &mut ended.last_seq)
    }

    pub(crate) fn next_expected(&self) -> Option<Mono> {
        self.expected.first().map(|(at, _)| *at)
    }

    /// The journal was read back: what ended may have ended otherwise.
    pub(crate) fn forget_ended(&mut self) {
        for action in std::mem::take(&mut self.order) {
            self.forget(action);
        }
    }

    fn forget(&mut self, action: ActionId) {
        if let Some(ended) = self.ended.remove(&action) {
            self.leave(ended.content, action);
        }
    }

    fn leave(&mut self, content: Content, action: ActionId) {
        if let Some(actions) = self.calls.get_mut(&content) {
            actions.remove(&action);
            if actions.is_empty() {
                self.calls.remove(&content);
            }
        }
    }
}

impl Coordinator {
    pub(crate) fn resend_of(&self, request: &Request, now: Now) -> Resend {
        if request.rank.writes() || request.body_pending {
            return Resend::No;
        }
        let Some(content) = Recent::content(request) else {
            return if request.mark == Mark::Repeat { Resend::Retry(None) } else { Resend::No };
        };
        let known = || self.recent.calls.get(&content).into_iter().flatten().copied();
        let ended = |id: &ActionId| self.recent.ended.get(id).map(|ended| (*id, ended));
        if request.mark != Mark::Repeat {
            let failed = |ended: &EndedCall| ended.failed() && ended.task == request.task;
            let last = known().filter_map(|id| ended(&id)).rfind(|(_, ended)| failed(ended));
            return last.map_or(Resend::No, |(of, _)| Resend::Retry(Some(of)));
        }
        let fresh = |ended: &EndedCall| now.mono.ms_since(ended.at) < RESULT_KEPT_MS;
        let is_there = |id: &ActionId| self.live.contains_key(id) || ended(id).is_some_and(|(_, e)| fresh(e));
        let unheard = |id: &ActionId| self.live.contains_key(id) && !self.is_heard(*id);
        let failed = |id: &ActionId| ended(id).is_some_and(|(_, ended)| ended.failed());
        let there: Vec<ActionId> = known().filter(is_there).collect();
        // Clients repeat what they gave up or what failed. Otherwise there must be no choice.
        let left = there.iter().find(|id| unheard(id)).or_else(|| there.iter().rfind(|id| failed(id)));
        match (left, there.as_slice()) {
            (Some(of), _) | (None, [of]) if self.live.contains_key(of) => Resend::Joins(*of),
            (Some(of), _) | (None, [of]) => Resend::Again(*of),
            (None, _) => Resend::Retry(None),
        }
    }

    /// A call that is not joined to another is one that others may repeat.
    pub(crate) fn known_as_call(&mut self, request: &Request) {
        self.recent.enter(request);
    }

    /// Its end is not told again, unless [`Coordinator::keep_result`] says so.
    pub(crate) fn forget_call(&mut self, request: &Request) {
        if let Some(content) = Recent::content(request) {
            self.recent.leave(content, request.action);
        }
    }

    /// The result that a repeat of this call gets, for a while.
    pub(crate) fn keep_result(&mut self, now: Now, live: &Live, answer: &Answer) {
        if live.request.call_digest.is_some() {
            self.recent.keep(now, live, answer.clone());
        }
    }

    /// The call that this one repeats has ended: its result is given once more.
    pub(crate) fn answer_again(&mut self, now: Now, action: ActionId, of: ActionId, out: &mut Commands) {
        let Some(ended) = self.recent.ended.get(&of) else { return };
        let (task, is_ours) = (ended.task.clone(), ended.failed());
        let answer = Box::new(Answer { joined: Some(Joined::MarkedRepeat), ..(*ended.answer).clone() });
        let fact = Fact::CallJoined { how: Joined::MarkedRepeat, charged: Some(task) };
        self.emit(now, Some(of), fact, Write::Behind, out);
        out.push(if is_ours {
            Command::Answer { action, answer }
        } else {
            Command::Share { action, of, stamp: answer.stamp.clone(), otherwise: answer }
        });
    }

    /// No budget bears another try: its end is that of the call that failed.
    pub(crate) fn refuse_retry_from_above(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        failed: Option<ActionId>,
        why: &str,
        out: &mut Commands,
    ) {
        let outcome = Outcome::BudgetExhausted;
        let mut answer = self.answer_of(now, &live, outcome, why);
        if let Some(ended) = failed.and_then(|of| self.recent.ended.get(&of)) {
            answer.status = ended.answer.status;
            answer.provider_status = ended.answer.provider_status;
            answer.provider_code.clone_from(&ended.answer.provider_code);
        }
        self.finish(now, &mut live, outcome, Some(why.to_owned()), out);
        self.keep_result(now, &live, &answer);
        let told_after = self.boundary_seq(&live.request);
        self.tell(&mut live, answer, told_after, out);
    }

    /// Charges it as any retry. It is given back if it never leaves.
    pub(crate) fn charge_retry_from_above(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        self.record(now, live, out);
        let attempt = AttemptNo(live.tried + 1);
        live.charged = Some((attempt, 0));
        let fact = Fact::RetryScheduled {
            attempt,
            scheduled_retry_at: now.wall,
            retry_not_before: None,
            reason: "a layer above tries the call again".into(),
            scope: live.request.scope.clone(),
            task: live.request.task.clone(),
            wait_ms: 0,
        };
        let seq = self.emit(now, Some(live.request.action), fact, write_for(&live.request), out);
        live.last_seq = Some(seq);
    }

    /// Whether an action that nobody listens to goes on for a moment, because its client is about to ask again.
    pub(crate) fn may_come_back(&mut self, now: Now, action: ActionId) -> bool {
        let Some(live) = self.live.get_mut(&action) else { return false };
        if live.comes_back_by.is_some_and(|by| now.mono < by) {
            return true;
        }
        let is_paid_for = live.request.rank == Rank::Inference && matches!(live.stage, Stage::InFlight(_));
        if !is_paid_for || live.request.mark == Mark::Silent || live.follow_only.is_some() || self.draining {
            return false;
        }
        let by = now.mono.plus_ms(COMES_BACK_MS);
        live.comes_back_by = Some(by);
        live.follow_only = Some(AGENT_LEFT);
        // Its attempt may be on its way, and is not sent any more.
        self.doubts += 1;
        self.recent.expected.insert((by, action));
        true
    }

    /// Whoever has not come back by now is not expected any more.
    pub(crate) fn stop_expecting(&mut self, now: Now, out: &mut Commands) {
        while let Some((at, action)) = self.recent.expected.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.recent.expected.remove(&(at, action));
            if let Some(live) = self.live.get_mut(&action)
                && live.comes_back_by == Some(at)
            {
                live.comes_back_by = None;
                self.withdraw(now, action, AGENT_LEFT, out);
            }
        }
    }
}
