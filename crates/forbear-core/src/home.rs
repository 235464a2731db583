//! A home scope with all that is below it: the narrower scopes, the line, and the one question whether a call may leave.
//!
//! All scopes of a call are asked, broad to narrow, and all or none are taken, at the send. A slot is held only while an
//! attempt is on the wire, never while waiting.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ActionId, ScopeId, Seq};
use crate::lane::Lane;
use crate::line::{Line, Place, Waiter};
use crate::pacer::{Ask, Rate};
use crate::policy::{Limits, Priority};
use crate::register::{Scope, Turn, WaitReason};
use crate::time::Mono;

#[derive(Debug)]
pub struct Home {
    pub limits: Limits,
    pub scope: Scope,
    narrow: BTreeMap<ScopeId, Scope>,
    line: Line,
}

/// What is needed to know whether a call may leave.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    pub lane: &'a Lane,
    pub ask: Ask,
    pub priority: Priority,
}

impl Home {
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            scope: Scope::new(limits.max_concurrent_requests),
            line: Line::new(limits.weights),
            limits,
            narrow: BTreeMap::new(),
        }
    }

    fn set_limits(&mut self, limits: Limits) {
        self.scope.slots_max = limits.max_concurrent_requests;
        self.line.set_weights(limits.weights);
        self.limits = limits;
    }

    /// These limits and rates from now on. True: they are others.
    pub fn keep_to(&mut self, now: Mono, limits: Limits, rates: &[Rate]) -> bool {
        let are_others = self.limits != limits;
        if are_others {
            self.set_limits(limits);
        }
        self.scope.declare(now, rates) || are_others
    }

    #[must_use]
    pub const fn delayed(&self) -> usize {
        self.line.len()
    }

    #[must_use]
    pub fn is_idle(&self, now: Mono) -> bool {
        self.line.is_empty() && self.scope.is_idle(now) && self.narrow.values().all(|scope| scope.is_idle(now))
    }

    /// The scope of this name: the home, or one below it.
    #[must_use]
    pub fn scope_of(&self, home: &ScopeId, id: &ScopeId) -> Option<&Scope> {
        if id == home { Some(&self.scope) } else { self.narrow.get(id) }
    }

    pub fn scope_of_mut(&mut self, home: &ScopeId, id: &ScopeId) -> Option<&mut Scope> {
        if id == home { Some(&mut self.scope) } else { self.narrow.get_mut(id) }
    }

    pub fn narrow(&self) -> impl Iterator<Item = (&ScopeId, &Scope)> {
        self.narrow.iter()
    }

    /// Makes sure of the lane's scopes, with the limits that it brings where those are `current`. `known` says what the journal
    /// knew of one. True: what one of them allows has changed.
    pub fn open_lane(
        &mut self,
        now: Mono,
        lane: &Lane,
        current: bool,
        mut known: impl FnMut(&ScopeId, &mut Scope),
    ) -> bool {
        let mut changed = false;
        for narrow in lane.narrow() {
            let slots_max = narrow.max_concurrent_requests.unwrap_or(u32::MAX);
            let is_new = !self.narrow.contains_key(&narrow.scope);
            if is_new {
                let mut scope = Scope::new(slots_max);
                known(&narrow.scope, &mut scope);
                self.narrow.insert(narrow.scope.clone(), scope);
            }
            if let Some(scope) = self.narrow.get_mut(&narrow.scope).filter(|_| is_new || current) {
                changed |= std::mem::replace(&mut scope.slots_max, slots_max) != slots_max;
                changed |= scope.declare(now, &narrow.rates);
            }
        }
        changed
    }

    /// Scopes below it that nothing is known of any more are forgotten. Whoever waits finds its own.
    pub fn forget_idle(&mut self, now: Mono) {
        let needed: BTreeSet<ScopeId> = self.line.all().flat_map(|(lane, _)| lane.scopes()).cloned().collect();
        self.narrow.retain(|id, scope| !scope.is_idle(now) || needed.contains(id));
    }

    /// Scopes below it that are known.
    #[must_use]
    pub fn narrow_len(&self) -> usize {
        self.narrow.len()
    }

    /// How many of the lane's scopes are not known yet.
    #[must_use]
    pub fn unknown_of(&self, lane: &Lane) -> usize {
        lane.scopes().filter(|id| !self.narrow.contains_key(*id)).count()
    }

    /// The home and the lane's scopes, broad to narrow.
    pub fn scopes<'a>(&'a self, lane: &'a Lane) -> impl Iterator<Item = &'a Scope> {
        std::iter::once(&self.scope).chain(lane.scopes().filter_map(|id| self.narrow.get(id)))
    }

    /// Whether a call that is due may leave, apart from those in line before it. Of several instants the latest counts.
    #[must_use]
    pub fn turn(&self, now: Mono, wants: &Wants<'_>) -> Turn {
        let kept = if wants.priority == Priority::Interactive { 0 } else { self.limits.kept_for_interactive };
        let home = self.scope.turn(now, &wants.ask, kept);
        let narrow = wants.lane.scopes().filter_map(|id| self.narrow.get(id));
        narrow.map(|scope| scope.turn(now, &wants.ask, 0)).fold(home, Turn::later)
    }

    /// Until when one of the lane's scopes is closed, and whose word that is.
    #[must_use]
    pub fn opens_at(&self, now: Mono, lane: &Lane) -> Option<(Mono, WaitReason)> {
        self.scopes(lane).filter_map(|scope| Some((scope.opens_at(now)?, scope.closed_by()))).max()
    }

    #[must_use]
    pub fn told_until(&self, now: Mono, lane: &Lane) -> Option<Mono> {
        self.scopes(lane).filter_map(|scope| scope.told_until(now)).max()
    }

    #[must_use]
    pub fn is_closed(&self, now: Mono, lane: &Lane) -> bool {
        self.scopes(lane).any(|scope| scope.closed_until(now).is_some())
    }

    /// The event that closed one of the lane's scopes last.
    #[must_use]
    pub fn boundary_seq(&self, lane: &Lane) -> Seq {
        self.scopes(lane).map(|scope| scope.boundary_seq).max().unwrap_or(Seq(0))
    }

    /// Whether somebody in line would go before a call that comes now.
    #[must_use]
    pub fn others_first(&self, now: Mono, lane: &Lane, ask_of: impl Fn(ActionId) -> Ask) -> bool {
        if self.line.is_empty() {
            return false;
        }
        self.line.has_lane(lane)
            || self.line.next_due().is_some_and(|(due, _)| due <= now)
            || self.next_turn(now, ask_of).is_some()
    }

    /// Puts an action in the line. Its scopes say when its turn comes.
    pub fn line_up(&mut self, due: Mono, waiter: Waiter) -> Place {
        let order = waiter.order;
        Place { due, order, round: Some(self.line.enter(waiter)) }
    }

    /// Puts an action beside the line until it is due, whatever its scopes say.
    pub fn set_aside(&mut self, due: Mono, waiter: Waiter) -> Place {
        let order = waiter.order;
        self.line.set_aside(due, waiter);
        Place { due, order, round: None }
    }

    /// Who would give its place up for a call of this priority.
    #[must_use]
    pub fn gives_way_to(&self, priority: Priority) -> Option<ActionId> {
        self.line.gives_way_to(priority)
    }

    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.line.len() >= self.limits.max_delayed_requests as usize
    }

    pub fn leave(&mut self, place: &Place, waiter: &Waiter) -> bool {
        self.line.leave(place, waiter)
    }

    /// The next one in line that became due, with the round that it was given.
    pub fn take_due(&mut self, now: Mono) -> Option<(ActionId, u64)> {
        self.line.take_due(now)
    }

    fn next_turn(&self, now: Mono, ask_of: impl Fn(ActionId) -> Ask) -> Option<crate::line::Turn> {
        let may_leave =
            |lane: &Lane, priority, action| self.turn(now, &Wants { lane, ask: ask_of(action), priority }) == Turn::Now;
        self.line.next(may_leave)
    }

    /// The next that may leave now; takes what it needs of all its scopes. `gap_ms` is asked for the time to the one after.
    pub fn release(
        &mut self,
        now: Mono,
        ask_of: impl Fn(ActionId) -> Ask,
        gap_ms: impl Fn(ActionId, u32) -> u64,
    ) -> Option<ActionId> {
        let turn = self.next_turn(now, &ask_of)?;
        self.line.serve(&turn);
        self.take(now, &turn.lane, turn.action, ask_of(turn.action), gap_ms);
        Some(turn.action)
    }

    /// Takes a slot and its part of every rate, of all its scopes, for a call that is sent now.
    pub fn take(&mut self, now: Mono, lane: &Lane, action: ActionId, ask: Ask, gap_ms: impl Fn(ActionId, u32) -> u64) {
        let is_dry = self.line.is_empty();
        self.scope.take(now, action, &ask, is_dry, &gap_ms);
        for id in lane.scopes() {
            if let Some(scope) = self.narrow.get_mut(id) {
                scope.take(now, action, &ask, is_dry, &gap_ms);
            }
        }
    }

    pub fn give_slot(&mut self, lane: &Lane) {
        self.scope.give_slot();
        for id in lane.scopes() {
            if let Some(scope) = self.narrow.get_mut(id) {
                scope.give_slot();
            }
        }
    }

    /// Everybody in line who needs this scope.
    pub fn waiting_for<'a>(&'a self, home: &ScopeId, id: &'a ScopeId) -> impl Iterator<Item = ActionId> {
        let is_home = id == home;
        let needs = move |lane: &Lane| is_home || lane.scopes().any(|scope| scope == id);
        self.line.all().filter(move |(lane, _)| needs(lane)).map(|(_, action)| action)
    }

    /// Everybody in line.
    pub fn waiting(&self) -> impl Iterator<Item = ActionId> {
        self.line.all().map(|(_, action)| action)
    }

    /// When the line should be looked at again, if only time can move it.
    #[must_use]
    pub fn next_look(&self, now: Mono, ask_of: impl Fn(ActionId) -> Ask) -> Option<(Mono, WaitReason)> {
        let heads = self.line.heads().filter_map(|(lane, priority, action)| {
            match self.turn(now, &Wants { lane, ask: ask_of(action), priority }) {
                Turn::Now => Some((now, WaitReason::Pacing)),
                Turn::At(at, reason) => Some((at, reason)),
                Turn::WhenFree => None,
            }
        });
        // At its instant it is given its place, and then its scopes are asked.
        let due = self.line.next_due().map(|(due, _)| (due, WaitReason::Backoff));
        heads.chain(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{TaskId, TenantId};
    use crate::lane::Narrow;

    fn lane(name: &str) -> Lane {
        let narrow = Narrow { scope: ScopeId::new(name), max_concurrent_requests: None, rates: [].into() };
        Lane::new(vec![narrow])
    }

    #[test]
    fn what_is_idle_is_forgotten_and_what_somebody_waits_for_is_not() {
        let mut home = Home::new(Limits::default());
        let (waits, busy, idle) = (lane("p/a/waits"), lane("p/a/busy"), lane("p/a/idle"));
        for lane in [&waits, &busy, &idle] {
            home.open_lane(Mono(0), lane, true, |_, _| ());
        }
        let tenant = TenantId::new("p/a");
        let task = TaskId::new("t");
        let action = ActionId(1);
        home.line_up(
            Mono(0),
            Waiter { lane: waits.clone(), priority: Priority::Normal, tenant, task, order: 1, action, is_new: true },
        );
        home.take(Mono(0), &busy, ActionId(2), Ask::default(), |_, _| 0);
        home.forget_idle(Mono(0));
        assert_eq!([&waits, &busy, &idle].map(|lane| home.unknown_of(lane)), [0, 0, 1]);
        assert_eq!(home.narrow_len(), 2);
    }
}
