//! A write that was asked for before: is it on its way, open, done, or something else under the same name?
//!
//! Equal calls that are meant to be equal are not joined: it takes an equal key or reference, a client's own mark, or a first
//! call whose agent had left.

use crate::action::admit::write_for;
use crate::action::leave::AGENT_LEFT;
use crate::action::live::{Live, honoured_ms};
use crate::command::{Answer, Command, Commands, Problem, SafeNext, Stamp};
use crate::coordinator::{Coordinator, Write};
use crate::effect::Effect;
use crate::event::{Fact, Joined, Outcome, Refused};
use crate::identity::{Known, names};
use crate::ids::{ActionId, RunId, Seq, TaskId};
use crate::input::{Mark, Request};
use crate::time::{Mono, Now};

/// Calls that wait for the result of one action.
pub(crate) const JOINED_MAX: usize = 64;

/// So long after the head of a write's answer it is waited for that its agent takes all of it.
const TAKEN_WITHIN_MS: u64 = 10_000;

/// A call that waits for another's result. It has no slot, no attempt and no end of its own.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub to: ActionId,
    task: TaskId,
    run: Option<RunId>,
    deadline: Mono,
    how: Joined,
}

/// Until when a call that joins waits. A write's answer that is longer than what is read ahead comes at its first agent's
/// pace, and what it means is known by its head.
fn joined_until(live: &Live, deadline: Mono) -> Mono {
    let taken = live.answered_at.filter(|_| live.request.rank.writes());
    taken.map_or(deadline, |at| deadline.min(at.plus_ms(TAKEN_WITHIN_MS)))
}

/// What an equal call means for this one. The more it forbids, the later it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repeat {
    No,
    /// The key was used before, so long ago, and is still honoured: sent again it cannot act twice.
    SameKey {
        age_ms: u64,
    },
    Done(ActionId),
    Open(ActionId),
    Joins(ActionId, Joined),
    OtherContent(ActionId),
}

impl Coordinator {
    pub(crate) fn repeat_of(&self, request: &Request, now: Now) -> Repeat {
        let Some(digest) = request.content_digest.filter(|_| request.rank.writes() && !request.body_pending) else {
            return Repeat::No;
        };
        let (owner, route) = (&request.owner(), &request.route);
        let others = |known: &Known<'_>| known.action != request.action;
        let mut worst = Repeat::No;
        let mut is_named = false;
        for name in names(request.key.as_ref(), request.reference_key.as_ref()) {
            is_named = true;
            let by_key = request.key.as_ref().is_some_and(|k| k.value == *name);
            let how = if by_key { Joined::SameKey } else { Joined::SameReference };
            for known in self.durable.named(owner, route, name).filter(others) {
                let repeat = if known.content.is_some_and(|content| content != digest) {
                    Repeat::OtherContent(known.action)
                } else {
                    self.standing(request, known, Some(how), now)
                };
                worst = worst.max(repeat);
            }
        }
        if is_named {
            return worst;
        }
        // By its id a send is known that was overtaken by a later one, too.
        let is_marked = request.mark == Mark::Repeat || request.invocation.is_some();
        for known in self.durable.with_content(owner, route, digest).filter(others) {
            let left = self.live.get(&known.action).is_some_and(|live| !live.is_heard());
            let marked = (is_marked && known.invocation == request.invocation).then_some(Joined::MarkedRepeat);
            let how = left.then_some(Joined::FirstLeft).or(marked);
            worst = worst.max(match self.standing(request, known, how, now) {
                // Of a body that is streamed once only the beginning is known: another's answer is none of its own.
                Repeat::Joins(open, _) if !request.replayable => Repeat::Open(open),
                repeat => repeat,
            });
        }
        // Done twice it would be the same: sent, it has the provider's own answer.
        if is_marked && !request.repeatable {
            let wall = self.latest_wall(now);
            let done = self.durable.marked.done(owner, route, digest, request.invocation, wall);
            worst = worst.max(done.map_or(Repeat::No, Repeat::Done));
        }
        worst
    }

    /// Whether this call is equal to one whose agent is thought to be there, and would join it if that had left: who asks
    /// again right after leaving may come before the news of it does.
    #[must_use]
    pub fn may_repeat_one_who_leaves(&self, request: &Request) -> bool {
        let Some(digest) = request.content_digest.filter(|_| request.rank.writes() && !request.observe) else {
            return false;
        };
        let is_named = names(request.key.as_ref(), request.reference_key.as_ref()).next().is_some();
        let owner = request.owner();
        let mut equal = self.durable.with_content(&owner, &request.route, digest);
        !is_named && request.mark != Mark::Repeat && equal.any(|known| self.is_heard(known.action))
    }

    fn standing(&self, request: &Request, known: Known<'_>, how: Option<Joined>, now: Now) -> Repeat {
        if self.live.contains_key(&known.action) {
            return how.map_or(Repeat::No, |how| Repeat::Joins(known.action, how));
        }
        let key = request.key.as_ref().filter(|k| known.key.is_some_and(|of| of.value == k.value));
        let age_ms = known.key_since.ms_until(self.latest_wall(now));
        let is_honoured = key.and_then(|k| k.retention_seconds).is_some_and(|s| age_ms < honoured_ms(s));
        match known.ended {
            Some(Effect::NotApplied | Effect::Unknown) => Repeat::No,
            _ if is_honoured => Repeat::SameKey { age_ms },
            Some(Effect::Applied) => Repeat::Done(known.action),
            None => Repeat::Open(known.action),
        }
    }

    /// Lets the call wait for the result of the action that it repeats.
    pub(crate) fn join(&mut self, now: Now, live: Box<Live>, to: ActionId, how: Joined, out: &mut Commands) {
        let Some(joined) = self.live.get_mut(&to) else { return };
        if joined.joined.len() >= JOINED_MAX {
            return self.refuse_to_wait(now, live, to, out);
        }
        let action = live.request.action;
        joined.joined.push(action);
        if joined.follow_only == Some(AGENT_LEFT) {
            joined.follow_only = None;
            joined.comes_back_by = None;
        }
        // A repeat of its client's own making is one of the retries of its task.
        let charged = (how == Joined::MarkedRepeat).then(|| joined.request.task.clone());
        let deadline = joined_until(joined, live.deadline);
        let run = live.request.run_name().cloned();
        let waiter = Waiter { to, task: live.request.task.clone(), run, deadline, how };
        self.owned.enter(&live.request);
        self.expiries.insert((waiter.deadline, action));
        self.waiters.insert(action, waiter);
        self.record_on_the_way(now, to, out);
        self.emit(now, Some(to), Fact::CallJoined { how, charged }, Write::Behind, out);
        self.tell_who_joined(now, to, out);
    }

    /// The answer's head is on its way to the agent: from now on who waits too waits for the agent's pace, which has a bound.
    pub(crate) fn answer_begins(&mut self, now: Now, live: &mut Live) {
        live.answered_at = Some(now.mono);
        for action in live.joined.clone() {
            let Some(waiter) = self.waiters.get_mut(&action) else { continue };
            self.expiries.remove(&(waiter.deadline, action));
            waiter.deadline = joined_until(live, waiter.deadline);
            self.expiries.insert((waiter.deadline, action));
        }
    }

    /// What went straight and leaves a trace after all enters the journal with what was done so far.
    pub(crate) fn record_on_the_way(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        let Some(mut live) = self.live.remove(&action) else { return };
        let is_new = !live.recorded;
        self.record(now, &mut live, out);
        let (attempt, write) = (live.attempt(), write_for(&live.request));
        self.live.insert(action, live);
        if let Some(attempt) = attempt.filter(|_| is_new) {
            self.emit(now, Some(action), Fact::ActionSent { attempt }, write, out);
        }
    }

    /// The call waits no more.
    pub(crate) fn part(&mut self, action: ActionId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&action)?;
        self.expiries.remove(&(waiter.deadline, action));
        self.owned.leave(&waiter.task, waiter.run.as_ref(), action);
        if let Some(live) = self.live.get_mut(&waiter.to) {
            live.joined.retain(|joined| *joined != action);
        }
        Some(waiter)
    }

    /// Gives the result to the call, and to all who wait for it too. Also where its agent has gone: it is the call's end, and
    /// whoever carries it waits for it.
    pub(crate) fn tell(&mut self, live: &mut Live, answer: Answer, after: Seq, out: &mut Commands) {
        self.tell_joined(live, &answer, after, out);
        let action = live.request.action;
        self.gate.after(after, Command::Answer { action, answer: Box::new(answer) }, out);
    }

    /// Gives the result to those who wait for it beside the call itself.
    pub(crate) fn tell_joined(&mut self, live: &mut Live, answer: &Answer, after: Seq, out: &mut Commands) {
        for action in std::mem::take(&mut live.joined) {
            let joined = self.part(action).map(|waiter| waiter.how);
            let answer = Box::new(Answer { joined, ..answer.clone() });
            self.gate.after(after, Command::Answer { action, answer }, out);
        }
    }

    /// The provider's answer came whole: whoever waits for it gets a copy.
    pub(crate) fn share(&mut self, now: Now, live: &mut Live, outcome: Outcome, out: &mut Commands) {
        if live.joined.is_empty() && live.request.call_digest.is_none() {
            return;
        }
        self.part_with_stopped(now, live, out);
        let of = live.request.action;
        let stamp = Stamp { outcome, attempts: live.sends, waited_ms: live.waited_ms };
        let why = "it was answered, and the answer was too large to be given twice";
        let otherwise = Answer {
            status: 422,
            problem: Problem::AlreadyDone,
            safe_next: vec![SafeNext::WatchAction, SafeNext::LookUp],
            ..self.answer_of(now, live, outcome, why)
        };
        self.keep_result(now, live, &otherwise);
        for action in std::mem::take(&mut live.joined) {
            let joined = self.part(action).map(|waiter| waiter.how);
            let denied = Stamp { outcome: Outcome::Denied, ..stamp.clone() };
            let otherwise = Box::new(Answer { joined, stamp: denied, ..otherwise.clone() });
            out.push(Command::Share { action, of, stamp: stamp.clone(), otherwise });
        }
    }

    /// Its deadline passed before the result came.
    pub(crate) fn expire_waiter(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        let to = self.waiters.get(&action).and_then(|waiter| self.live.get(&waiter.to));
        let writes = to.is_some_and(|live| live.request.rank.writes());
        let why = match to {
            Some(live) if writes && live.answered_at.is_some() => {
                "the equal call that it waits for was answered, and its agent has not taken all of the answer yet"
            }
            _ => "its deadline came before the result of the equal call that it waits for",
        };
        let outcome = if writes { Outcome::OutcomeUnknown } else { Outcome::DeadlineExhausted };
        self.let_go(now, action, outcome, why, out);
    }

    /// A call whose task or run was cancelled does not get the result that it waited for.
    fn part_with_stopped(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        if self.stopping.is_empty() {
            return;
        }
        for action in live.joined.clone() {
            let why = self.waiters.get(&action).and_then(|w| self.cancelled(&w.task, w.run.as_ref()));
            let Some((why, waiter)) = why.and_then(|why| Some((why, self.part(action)?))) else { continue };
            live.joined.retain(|joined| *joined != action);
            let answer = self.answer_on_the_way(now, live, Outcome::Cancelled, why);
            out.push(Command::Answer { action, answer: Box::new(Answer { joined: Some(waiter.how), ..answer }) });
        }
    }

    /// Answers a call that waits, before the result that it waits for.
    pub(crate) fn let_go(&mut self, now: Now, action: ActionId, outcome: Outcome, why: &str, out: &mut Commands) {
        let Some(waiter) = self.part(action) else { return };
        if let Some(live) = self.live.get(&waiter.to) {
            let answer = Answer { joined: Some(waiter.how), ..self.answer_on_the_way(now, live, outcome, why) };
            out.push(Command::Answer { action, answer: Box::new(answer) });
        }
        self.unheard(now, waiter.to, out);
    }

    /// What is known of an action whose result is not there yet.
    fn answer_on_the_way(&self, now: Now, live: &Live, outcome: Outcome, why: &str) -> Answer {
        let sent = live.sends > 0 || live.attempt().is_some();
        // What somebody else waits for may be sent yet.
        let goes_on = sent || live.is_heard();
        let effect = if goes_on && live.request.rank.writes() { Effect::Unknown } else { live.effect };
        Answer { sent, effect, ..self.answer_of(now, live, outcome, why) }
    }

    /// The action that it repeats is on its way, and it cannot wait for the result. A write's is told as what it is; what has
    /// no lasting effect may be asked for once more.
    pub(crate) fn refuse_to_wait(&mut self, now: Now, live: Box<Live>, to: ActionId, out: &mut Commands) {
        let why = "as many calls as may wait for the result of one action already do";
        let first = self.live.get(&to).filter(|first| first.request.rank.writes());
        let Some(first) = first else {
            return self.end_with_answer(now, live, Outcome::Shed, why, Some(1), out);
        };
        let answer = self.answer_on_the_way(now, first, Outcome::OutcomeUnknown, why);
        self.deny(now, live, Refused::Open, format!("repeats {to}, which is on its way"), answer, out);
    }

    /// The name stands for something else.
    pub(crate) fn refuse_other_content(&mut self, now: Now, live: Box<Live>, known: ActionId, out: &mut Commands) {
        let why = "its idempotency key or reference was used with other content";
        let answer = Answer {
            status: 422,
            about: known,
            problem: Problem::KeyMismatch,
            safe_next: vec![SafeNext::ChangeRequest],
            ..self.answer_of(now, &live, Outcome::Denied, why)
        };
        let why = format!("the key or reference of {known}, with other content");
        self.deny(now, live, Refused::KeyMismatch, why, answer, out);
    }

    /// The same content, sent before, with an effect that nobody knows: the open action is the answer.
    pub(crate) fn refuse_open(&mut self, now: Now, live: Box<Live>, open: ActionId, out: &mut Commands) {
        let mut answer = Answer {
            about: open,
            sent: true,
            effect: Effect::Unknown,
            // Under a key that still keeps it from acting twice it would have been sent.
            safe_next: vec![SafeNext::WatchAction, SafeNext::LookUp],
            ..self.answer_of(now, &live, Outcome::OutcomeUnknown, "an equal write is open and its effect unknown")
        };
        if let Some(open) = self.durable.open.get(&open) {
            answer.stamp.attempts = u32::try_from(open.attempts.len()).unwrap_or(u32::MAX);
        }
        self.deny(now, live, Refused::Open, format!("repeats {open}, whose effect is unknown"), answer, out);
    }

    /// It was done before. The same name, or the same content of which no agent was told, does not do it again.
    pub(crate) fn refuse_done(&mut self, now: Now, live: Box<Live>, done: ActionId, out: &mut Commands) {
        let why = "an equal write was done; it is not done again";
        let mut answer = Answer {
            status: 422,
            about: done,
            sent: true,
            answered: true,
            effect: Effect::Applied,
            problem: Problem::AlreadyDone,
            safe_next: vec![SafeNext::WatchAction, SafeNext::LookUp],
            ..self.answer_of(now, &live, Outcome::Denied, why)
        };
        let another = "A new Forbear-Reference says that another one is meant";
        if let Some(ended) = self.durable.ended.get(done) {
            answer.provider_status = ended.status;
            answer.stamp.attempts = ended.attempts;
            if !ended.told {
                let why = "an equal write was done, and its agent was perhaps not told; it is not done again";
                answer.reason = format!("{why}. {another}");
            }
        } else if let Some((status, attempts)) = self.durable.marked.told(done) {
            answer.provider_status = status;
            answer.stamp.attempts = attempts;
            answer.reason = format!("its client marks it as a repeat of a write that was done. {another}");
        }
        self.deny(now, live, Refused::AlreadyDone, format!("repeats {done}, which was done"), answer, out);
    }

    fn deny(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        refused: Refused,
        why: String,
        answer: Answer,
        out: &mut Commands,
    ) {
        live.refused = Some(refused);
        let told_after = self.boundary_seq(&live.request);
        self.finish(now, &mut live, Outcome::Denied, Some(why), out);
        self.tell(&mut live, answer, told_after, out);
    }
}
