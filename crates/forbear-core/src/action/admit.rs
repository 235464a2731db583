//! A call comes in: is it one we know, may it be sent at all, now, or when?

use crate::action::live::{Live, Stage};
use crate::action::observe;
use crate::action::repeat::Repeat;
use crate::action::resend::Resend;
use crate::command::{Command, Commands};
use crate::coordinator::{Coordinator, Write};
use crate::event::{ActionRequested, Fact, Joined, Outcome};
use crate::ids::ScopeId;
use crate::input::Request;
use crate::register::{Place, Scope, Turn, WaitReason};
use crate::time::{Mono, Now};

/// Between two looks for idle scopes.
const SWEEP_EVERY_MS: u64 = 1_000;

impl Coordinator {
    /// The checks in their order: shutting down, cancelled, a repeat of a known write, the journal, the deadline, and
    /// then the scope's line.
    pub(crate) fn admit(&mut self, now: Now, request: Box<Request>, out: &mut Commands) {
        if self.live.contains_key(&request.action) || self.waiters.contains_key(&request.action) {
            return;
        }
        let deadline = now.mono_at(request.deadline);
        let mut live = Live::new(request, now.mono, deadline, Stage::InFlight(crate::ids::AttemptNo(0)));
        self.order += 1;
        live.order = self.order;
        let request = &live.request;
        if self.draining {
            return self.end_with_answer(now, live, Outcome::Shed, "Forbear is shutting down", Some(1), out);
        }
        if self.durable.cancelled.contains_key(&request.task) {
            return self.end_with_answer(now, live, Outcome::Cancelled, "its task was cancelled", None, out);
        }
        let mut would = None;
        match self.repeat_of(request, now) {
            Repeat::No => {}
            Repeat::SameKey { age_ms } => {
                // The provider counts from the first use of the key, which was not this call's.
                live.repeats_key = true;
                live.key_age_ms = age_ms;
            }
            repeat if request.observe => would = observe::of_repeat(repeat, deadline > now.mono),
            Repeat::OtherContent(known) => return self.refuse_other_content(now, live, known, out),
            Repeat::Done(done) => return self.refuse_done(now, live, done, out),
            Repeat::Open(open) => return self.refuse_open(now, live, open, out),
            Repeat::Joins(to, how) if deadline > now.mono => return self.join(now, live, to, how, out),
            // Its deadline is looked at below.
            Repeat::Joins(..) => {}
        }
        match self.resend_of(&live.request, now) {
            Resend::No => {}
            resend if live.request.observe => would = would.or(observe::of_resend(resend, deadline > now.mono)),
            Resend::Joins(to) if deadline > now.mono => return self.join(now, live, to, Joined::MarkedRepeat, out),
            Resend::Joins(_) => {}
            Resend::Again(of) => return self.answer_again(now, live.request.action, of, out),
            Resend::Retry(failed) => {
                if let Some(why) = self.over_budget(now, &live, 0) {
                    return self.refuse_retry_from_above(now, live, failed, why, out);
                }
                live.retries_from_above = true;
            }
        }
        let request = &live.request;
        if must_be_durable(request) {
            if self.gate.frozen().is_some() {
                let why = "the journal cannot be written, so no write is sent; see /-/ready";
                return self.end_with_answer(now, live, Outcome::Shed, why, Some(5), out);
            }
            if self.store_full {
                let why = "the store is at store_bytes_max, so no write is sent";
                return self.end_with_answer(now, live, Outcome::Shed, why, Some(60), out);
            }
        }
        let scope = live.request.scope.clone();
        if !self.has_room_for(now, &scope) {
            let why = "as many scopes are in use or closed as can be kept";
            return self.end_with_answer(now, live, Outcome::Shed, why, Some(60), out);
        }
        self.use_limits(now, &live.request, out);
        if live.request.observe {
            return self.forward(now, live, would, out);
        }
        self.line_up(now, live, out);
    }

    /// Sends at once, waits in line, or ends here.
    fn line_up(&mut self, now: Now, mut live: Box<Live>, out: &mut Commands) {
        let action = live.request.action;
        let scope = self.scope_mut(now, &live.request);
        match entry(now, &live, scope, scope.delayed()) {
            Entry::End(outcome, why, seconds) => self.end_with_answer(now, live, outcome, why, seconds, out),
            _ if live.request.body_pending => out.push(Command::ReadBody { action }),
            Entry::Now => {
                self.record_if_due(now, &mut live, out);
                self.take_slot(now, &live.request.scope.clone(), action);
                self.live.insert(action, live);
                self.send(now, action, out);
            }
            Entry::Line { due, reason, queue_end } => {
                self.record_if_due(now, &mut live, out);
                let expires = live.last_instant(queue_end);
                self.wait(now, live, due, expires, reason, out);
            }
        }
    }

    /// Intent first: a write is in the journal before it waits or leaves. And so is a charge.
    pub(crate) fn record_if_due(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        if must_be_durable(&live.request) {
            self.record(now, live, out);
        }
        self.known_as_call(&live.request);
        if live.retries_from_above {
            self.charge_retry_from_above(now, live, out);
        }
    }

    pub(crate) fn record(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        if live.recorded {
            return;
        }
        let r = &live.request;
        let fact = ActionRequested {
            task: r.task.clone(),
            run: r.run.clone(),
            provider: r.provider.clone(),
            scope: r.scope.clone(),
            route: r.route.clone(),
            class: r.class.clone(),
            rank: r.rank,
            content_digest: r.content_digest,
            content_bytes: r.content_bytes,
            key: r.key.clone(),
            deadline: r.deadline,
            goal: r.goal.as_deref().map(str::to_owned),
            reference: r.reference.as_deref().map(str::to_owned),
            reference_key: r.reference_key.clone(),
        };
        let (action, write) = (r.action, write_for(r));
        live.recorded = true;
        let seq = self.emit(now, Some(action), Fact::ActionRequested(Box::new(fact)), write, out);
        live.last_seq = Some(seq);
    }

    pub(crate) fn scope_mut(&mut self, now: Now, request: &Request) -> &mut Scope {
        if !self.scopes.contains_key(&request.scope) {
            let jitter_ms = self.jitter_ms(request.action, 1);
            let mut scope = Scope::new(request.limits);
            // Known from the journal at the start; since then the monotonic clock alone counts.
            if let Some(until) = self.closed_at_start.remove(&request.scope).filter(|until| *until > now.mono) {
                let told = self.durable.scopes.get(&request.scope).is_some_and(|record| record.boundary.is_some());
                scope.close(until, if told { WaitReason::Boundary } else { WaitReason::Backoff }, jitter_ms);
            }
            self.scopes.insert(request.scope.clone(), scope);
        }
        // Present: it was inserted above if it was missing.
        self.scopes.entry(request.scope.clone()).or_insert_with(|| Scope::new(request.limits))
    }

    /// A policy that was loaded since comes with its first call: who stands in line before that call may have a slot now.
    fn use_limits(&mut self, now: Now, request: &Request, out: &mut Commands) {
        let scope = self.scope_mut(now, request);
        if scope.limits != request.limits {
            scope.limits = request.limits;
            self.pump(now, &request.scope, out);
        }
    }

    /// Whether a scope is known or may still be. Idle ones go first; looking for those is done once a second at most, since it
    /// walks them all.
    fn has_room_for(&mut self, now: Now, scope: &ScopeId) -> bool {
        if self.scopes.len() < crate::durable::SCOPES_MAX || self.scopes.contains_key(scope) {
            return true;
        }
        if now.mono >= self.next_sweep {
            self.scopes.retain(|_, scope| !scope.is_idle(now.mono));
            self.next_sweep = now.mono.plus_ms(SWEEP_EVERY_MS);
        }
        self.scopes.len() < crate::durable::SCOPES_MAX
    }

    pub(crate) fn wait(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        due: Mono,
        expires: Mono,
        reason: WaitReason,
        out: &mut Commands,
    ) {
        let action = live.request.action;
        let place = Place { due, order: live.order, action };
        let scope = live.request.scope.clone();
        live.stage = Stage::Waiting { place, since: now.mono, expires, reason };
        if live.first_refusal.is_none() {
            let until = (reason != WaitReason::Slot).then(|| now.wall_at(due));
            live.waited_for = Some((reason, until));
        }
        self.expiries.insert((expires, action));
        self.live.insert(action, live);
        if let Some(s) = self.scopes.get_mut(&scope) {
            s.wait(place);
        }
        self.pump(now, &scope, out);
    }
}

/// Where a call stands that no other action keeps from being sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    Now,
    /// In the scope's line, until `queue_end` at most.
    Line {
        due: Mono,
        reason: WaitReason,
        queue_end: Mono,
    },
    /// It ends here: with the outcome, why, and when it may be asked again.
    End(Outcome, &'static str, Option<u64>),
}

/// `delayed` calls stand in the line already.
pub(crate) fn entry(now: Now, live: &Live, scope: &Scope, delayed: usize) -> Entry {
    let request = &live.request;
    if live.deadline <= now.mono {
        return Entry::End(Outcome::DeadlineExhausted, "its deadline had passed", None);
    }
    let turn = scope.turn(now.mono);
    if turn == Turn::Now && !scope.has_due(now.mono) {
        return Entry::Now;
    }
    let (due, reason) = match turn {
        Turn::At(at, reason) => (at, reason),
        Turn::WhenFree => (now.mono, WaitReason::Slot),
        Turn::Now => (now.mono, WaitReason::Pacing),
    };
    let seconds = due.ms_since(now.mono).div_ceil(1_000).max(1);
    let queue_end = now.mono.plus_ms(request.rule.max_queue_seconds.saturating_mul(1_000));
    if due >= live.deadline && live.deadline <= queue_end {
        return Entry::End(Outcome::DeadlineExhausted, "its scope opens after its deadline", None);
    }
    // A closed scope is told before the body comes; for a mere turn it is taken in, as it is of everybody else.
    let is_closed = matches!(reason, WaitReason::Boundary | WaitReason::Backoff);
    if due >= queue_end || (request.body_pending && is_closed) {
        let why = "its scope opens later than a connection should be held";
        return Entry::End(Outcome::Deferred, why, Some(seconds));
    }
    if delayed >= request.limits.max_delayed_requests as usize {
        return Entry::End(Outcome::Shed, "max_delayed_requests of its scope is reached", Some(seconds));
    }
    Entry::Line { due, reason, queue_end }
}

/// Its intent must be on the disk before its first byte.
pub(crate) fn must_be_durable(request: &Request) -> bool {
    request.rank.writes() || request.journal_before
}

pub(crate) fn write_for(request: &Request) -> Write {
    if must_be_durable(request) { Write::Ahead } else { Write::Behind }
}
