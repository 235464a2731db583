//! A call comes in: is it one we know, may it be sent at all, now, or when?

use std::sync::Arc;

use crate::action::live::{Live, Stage};
use crate::action::observe;
use crate::action::repeat::Repeat;
use crate::action::resend::Resend;
use crate::action::turn::When;
use crate::command::{Command, Commands};
use crate::coordinator::{Coordinator, Write};
use crate::event::{ActionRequested, Fact, Joined, Outcome};
use crate::home::{Home, Wants};
use crate::ids::ScopeId;
use crate::input::{Request, Settings};
use crate::register::{Scope, Turn, WaitReason};
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
        if let Some(why) = self.cancelled(&request.task, request.run_name()) {
            return self.end_with_answer(now, live, Outcome::Cancelled, why, None, out);
        }
        live.asked_at = self.doubts;
        let request = &live.request;
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
        if let Some(blocked) = self.blocked(now, &live.request) {
            if !live.request.observe {
                return self.refuse_open_circuit(now, live, &blocked, out);
            }
            would = would.or(Some(observe::of_circuit(&blocked)));
        } else if !live.request.body_pending {
            self.breakers.lease(now.mono, &live.request);
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
        if !self.has_room_for(now, &live.request) {
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
        match self.entry(now, &live) {
            Entry::End(outcome, why, seconds) => self.end_with_answer(now, live, outcome, why, seconds, out),
            _ if live.request.body_pending => out.push(Command::ReadBody { action }),
            Entry::Now => {
                self.record_if_due(now, &mut live, out);
                self.take_slot(now, &live);
                self.live.insert(action, live);
                self.send(now, action, out);
            }
            Entry::Line { due, reason, queue_end } => {
                self.make_room(now, &live, due, out);
                self.record_if_due(now, &mut live, out);
                let expires = live.last_instant(queue_end);
                self.wait(now, live, (due, When::ItsTurn), expires, reason, out);
            }
        }
    }

    /// A line that is full has a place for a higher priority: the lowest is told to come again.
    fn make_room(&mut self, now: Now, live: &Live, due: Mono, out: &mut Commands) {
        let Some(home) = self.scopes.get(&live.request.scope).filter(|home| home.is_full()) else { return };
        let gives_way = home.gives_way_to(live.request.quota.priority);
        let Some(mut live) = gives_way.and_then(|action| self.live.remove(&action)) else { return };
        self.unline(now, &mut live);
        self.give_back(now, &mut live, out);
        let why = "max_delayed_requests of its scope is reached, and a call of a higher priority came";
        let seconds = due.ms_since(now.mono).div_ceil(1_000).max(1);
        self.end_with_answer(now, live, Outcome::Shed, why, Some(seconds), out);
    }

    /// Intent first: a write is in the journal before it waits or leaves. And so is a charge.
    pub(crate) fn record_if_due(&mut self, now: Now, live: &mut Live, out: &mut Commands) {
        if must_be_durable(&live.request) {
            self.record(now, live, out);
        }
        self.known_as_call(&live.request);
        self.owned.enter(&live.request);
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
            tenant: r.tenant.clone(),
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
            invocation: r.invocation,
        };
        let (action, write) = (r.action, write_for(r));
        live.recorded = true;
        let seq = self.emit(now, Some(action), Fact::ActionRequested(Box::new(fact)), write, out);
        live.last_seq = Some(seq);
    }

    /// The home of a call and the scopes of its lane keep to the limits that it brings. True: those are others than before.
    fn use_quota(&mut self, now: Now, request: &Request) -> bool {
        let jitter_ms = self.jitter_ms(request.action, 1);
        let (at_start, records) = (&mut self.closed_at_start, &self.durable.scopes);
        // Known from the journal at the start; since then the monotonic clock alone counts.
        let mut known = |id: &ScopeId, scope: &mut Scope| {
            if let Some(until) = at_start.remove(id).filter(|until| *until > now.mono) {
                let told = records.get(id).is_some_and(|record| record.boundary.is_some());
                scope.close(until, if told { WaitReason::Boundary } else { WaitReason::Backoff }, jitter_ms);
            }
        };
        // A call that was understood by a policy of before says nothing of what holds now, unless its provider is gone.
        let is_current = request.policy == self.settings.digest;
        let rule = self.settings.homes.get(&request.provider).filter(|_| !is_current);
        let (limits, rates) = rule.map_or((request.limits, &request.quota.rates), |rule| (rule.limits, &rule.rates));
        let home = self.scopes.entry(request.scope.clone()).or_insert_with(|| {
            let mut home = Home::new(limits);
            known(&request.scope, &mut home.scope);
            home
        });
        let mut changed = home.keep_to(now.mono, limits, rates);
        let before = home.narrow_len();
        changed |= home.open_lane(now.mono, &request.quota.lane, is_current, known);
        self.narrow_scopes += home.narrow_len() - before;
        changed
    }

    /// A policy was loaded: whoever stands in line may have a slot now.
    pub(crate) fn load_policy(&mut self, now: Now, settings: Arc<Settings>, by: String, out: &mut Commands) {
        self.use_settings(Arc::clone(&settings));
        self.emit(now, None, Fact::PolicyLoaded { digest: settings.digest, by }, Write::Ahead, out);
        let ruled = self.scopes.iter_mut().filter_map(|(id, home)| {
            let rule = settings.homes.get(id.provider())?;
            home.keep_to(now.mono, rule.limits, &rule.rates).then(|| id.clone())
        });
        for scope in ruled.collect::<Vec<_>>() {
            self.pump(now, &scope, out);
        }
    }

    /// What a policy says of the scopes below a home comes with its first call there: who stands in line before that call may
    /// have a slot now.
    fn use_limits(&mut self, now: Now, request: &Request, out: &mut Commands) {
        let changed = self.use_quota(now, request);
        if changed {
            self.pump(now, &request.scope, out);
        }
    }

    /// Where a call stands that no other action keeps from being sent.
    pub(crate) fn entry(&self, now: Now, live: &Live) -> Entry {
        let Some(home) = self.scopes.get(&live.request.scope) else { return Entry::Now };
        let delayed = if live.request.observe {
            // Nobody waits: who has no slot would stand in line.
            home.scope.in_flight.saturating_sub(home.limits.max_concurrent_requests) as usize
        } else {
            // Of those who stand there one may give its place up.
            home.delayed() - usize::from(home.is_full() && home.gives_way_to(live.request.quota.priority).is_some())
        };
        let first = home.others_first(now.mono, &live.request.quota.lane, |action| self.ask_of(action));
        entry(now, live, home, first, delayed)
    }

    /// Whether a call's scopes are known or may still be. Idle ones go first; looking for those is done once a second at most,
    /// since it walks them all.
    fn has_room_for(&mut self, now: Now, request: &Request) -> bool {
        let lane = &request.quota.lane;
        let unknown = match self.scopes.get(&request.scope) {
            Some(home) => home.unknown_of(lane),
            None => 1 + lane.narrow().len(),
        };
        let has_room = |this: &Self| this.scopes.len() + this.narrow_scopes + unknown <= crate::durable::SCOPES_MAX;
        if unknown == 0 || has_room(self) {
            return true;
        }
        if now.mono >= self.next_sweep {
            self.scopes.retain(|_, home| !home.is_idle(now.mono));
            self.scopes.values_mut().for_each(|home| home.forget_idle(now.mono));
            self.narrow_scopes = self.scopes.values().map(Home::narrow_len).sum();
            self.next_sweep = now.mono.plus_ms(SWEEP_EVERY_MS);
        }
        // What this call knew may have been forgotten, and counts as it did.
        has_room(self)
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

/// `others_first`: somebody in line goes before it. `delayed` calls stand there already.
fn entry(now: Now, live: &Live, home: &Home, others_first: bool, delayed: usize) -> Entry {
    let request = &live.request;
    if live.deadline <= now.mono {
        return Entry::End(Outcome::DeadlineExhausted, "its deadline had passed", None);
    }
    let turn = home
        .turn(now.mono, &Wants { lane: &request.quota.lane, ask: request.quota.ask, priority: request.quota.priority });
    if turn == Turn::Now && !others_first {
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
    if delayed >= home.limits.max_delayed_requests as usize {
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
