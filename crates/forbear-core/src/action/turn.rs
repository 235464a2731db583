//! Turns: who waits in which line, who is let out, and who gives up.

use crate::action::live::{Live, Stage};
use crate::backoff;
use crate::command::Commands;
use crate::coordinator::Coordinator;
use crate::event::Outcome;
use crate::home::Wants;
use crate::ids::{ActionId, AttemptNo, ScopeId};
use crate::pacer::Ask;
use crate::register::{Turn, WaitReason};
use crate::time::{Mono, Now};

/// So that the draw of a gap is no other draw.
const PURPOSE_GAP: u64 = 3;

/// What a waiting action waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Its scopes and those before it.
    ItsTurn,
    /// An instant of its own first.
    Due,
}

impl Coordinator {
    pub(crate) fn take_slot(&mut self, now: Now, live: &Live) {
        let gap = self.gap();
        let request = &live.request;
        if let Some(home) = self.scopes.get_mut(&request.scope) {
            home.take(now.mono, &request.quota.lane, request.action, request.quota.ask, gap);
        }
    }

    pub(crate) fn ask_of(&self, action: ActionId) -> Ask {
        self.live.get(&action).map_or_else(Ask::default, |live| live.request.quota.ask)
    }

    /// Stands in line, or beside it until its own instant.
    pub(crate) fn wait(
        &mut self,
        now: Now,
        mut live: Box<Live>,
        (due, when): (Mono, When),
        expires: Mono,
        reason: WaitReason,
        out: &mut Commands,
    ) {
        let action = live.request.action;
        let scope = live.request.scope.clone();
        let Some(home) = self.scopes.get_mut(&scope) else { return };
        let place = match when {
            When::ItsTurn => home.line_up(due, live.waiter()),
            When::Due => home.set_aside(due, live.waiter()),
        };
        live.stage = Stage::Waiting { place, since: now.mono, expires, reason };
        if live.first_refusal.is_none() {
            let until = (reason != WaitReason::Slot).then(|| now.wall_at(due));
            live.waited_for = Some((reason, until));
        }
        self.expiries.insert((expires, action));
        self.live.insert(action, live);
        self.pump(now, &scope, out);
    }

    /// Lets out of a scope's line whoever may leave now, and notes when to look again.
    pub(crate) fn pump(&mut self, now: Now, scope: &ScopeId, out: &mut Commands) {
        let gap = self.gap();
        self.line_up_due(now, scope);
        while let Some(action) = self.release(now, scope, &gap) {
            let Some(live) = self.live.get_mut(&action) else { continue };
            if let Stage::Waiting { since, expires, .. } = live.stage {
                live.waited_ms += now.mono.ms_since(since);
                self.expiries.remove(&(expires, action));
            }
            if !self.stopped_at_its_turn(now, action, out) && !self.stopped_by_circuit(now, action, out) {
                self.send(now, action, out);
            }
        }
        self.note_look(now, scope);
    }

    fn release(&mut self, now: Now, scope: &ScopeId, gap: impl Fn(ActionId, u32) -> u64) -> Option<ActionId> {
        let live = &self.live;
        let ask_of = |action| live.get(&action).map_or_else(Ask::default, |live| live.request.quota.ask);
        self.scopes.get_mut(scope)?.release(now.mono, ask_of, gap)
    }

    /// Whoever waited for an instant of its own gets its place in the line.
    fn line_up_due(&mut self, now: Now, scope: &ScopeId) {
        let Some(home) = self.scopes.get_mut(scope) else { return };
        while let Some((action, round)) = home.take_due(now.mono) {
            if let Some(live) = self.live.get_mut(&action)
                && let Stage::Waiting { place, .. } = &mut live.stage
            {
                place.round = Some(round);
            }
        }
    }

    pub(crate) fn note_look(&mut self, now: Now, scope: &ScopeId) {
        let home = self.scopes.get(scope);
        let next = home.and_then(|home| home.next_look(now.mono, |action| self.ask_of(action)));
        let old = match next {
            Some(next) => self.next_look.insert(scope.clone(), next),
            None => self.next_look.remove(scope),
        };
        if let Some((at, _)) = old {
            self.looks.remove(&(at, scope.clone()));
        }
        if let Some((at, _)) = next {
            self.looks.insert((at, scope.clone()));
        }
    }

    /// Who gives up.
    pub(crate) fn give_up_due(&mut self, now: Now, out: &mut Commands) {
        while let Some((at, action)) = self.expiries.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.expiries.remove(&(at, action));
            self.expire(now, action, out);
        }
    }

    /// Time passed: whose turn it is.
    pub(crate) fn wake(&mut self, now: Now, out: &mut Commands) {
        while let Some((at, scope)) = self.looks.first().cloned().filter(|(at, _)| *at <= now.mono) {
            self.looks.remove(&(at, scope.clone()));
            self.next_look.remove(&scope);
            self.pump(now, &scope, out);
        }
    }

    /// Takes a waiting action out of its line.
    pub(crate) fn unline(&mut self, now: Now, live: &mut Live) {
        let Stage::Waiting { place, since, expires, .. } = live.stage else { return };
        live.waited_ms += now.mono.ms_since(since);
        self.expiries.remove(&(expires, live.request.action));
        let waiter = live.waiter();
        if let Some(home) = self.scopes.get_mut(&live.request.scope) {
            home.leave(&place, &waiter);
        }
        self.note_look(now, &live.request.scope.clone());
    }

    /// A waiting action ends because it cannot be sent in time.
    pub(crate) fn expire(&mut self, now: Now, action: ActionId, out: &mut Commands) {
        let Some(mut live) = self.live.remove(&action) else { return self.expire_waiter(now, action, out) };
        self.unline(now, &mut live);
        self.give_up(now, live, out);
    }

    pub(crate) fn give_up(&mut self, now: Now, live: Box<Live>, out: &mut Commands) {
        let r = &live.request;
        let wants = Wants { lane: &r.quota.lane, ask: r.quota.ask, priority: r.quota.priority };
        let opens = self.scopes.get(&r.scope).map(|home| home.turn(now.mono, &wants));
        let at_opening = match opens {
            Some(Turn::At(at, _)) => at,
            _ => now.mono,
        };
        if live.deadline <= at_opening.max(now.mono) {
            return self.stop(now, live, Outcome::DeadlineExhausted, "its deadline comes before its turn", out);
        }
        if live.first_refusal.is_some() {
            return self.stop(now, live, Outcome::BudgetExhausted, "its waiting budget ends before its turn", out);
        }
        let seconds = at_opening.ms_since(now.mono).div_ceil(1_000).max(1);
        self.defer(now, live, "its turn comes later than a connection should be held", seconds, out);
    }

    fn gap(&self) -> impl Fn(ActionId, u32) -> u64 + use<> {
        let (pacing, seed) = (self.settings.pacing, self.seed);
        move |action, release| {
            let jitter = backoff::uniform(seed, action, AttemptNo(release), PURPOSE_GAP, pacing.jitter_ms);
            pacing.release_gap_ms.saturating_add(jitter)
        }
    }
}
