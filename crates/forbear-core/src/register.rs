//! The volatile half of a scope: slots, who waits, and how waiters leave once it opens.
//!
//! A slot is held only while an attempt is on the wire, never while waiting. Waiters leave in the order in which they
//! become due, and after a boundary one by one, apart by the pacing gap and jitter that is only ever added.

use std::collections::BTreeSet;

use crate::ids::ActionId;
use crate::policy::Limits;
use crate::time::{Mono, Now, Wall};

/// Why something waits until an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// The provider's boundary.
    Boundary,
    /// Our own backoff: the provider named no boundary.
    Backoff,
    /// All slots of the scope are taken.
    Slot,
    /// The scope has just opened; others leave first.
    Pacing,
}

impl WaitReason {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boundary => "boundary",
            Self::Backoff => "backoff",
            Self::Slot => "slot",
            Self::Pacing => "pacing",
        }
    }
}

/// A place in a scope's line: who is due first goes first, then who came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub due: Mono,
    pub order: u64,
    pub action: ActionId,
}

#[derive(Debug)]
pub struct Scope {
    pub limits: Limits,
    pub in_flight: u32,
    waiting: BTreeSet<Place>,
    /// Nothing is sent before this instant.
    closed_until: Option<Mono>,
    /// The provider's own word on that instant; where it is earlier or missing, `closed_until` is our backoff.
    told_until: Option<Mono>,
    /// `closed_until` and the jitter on top: one draw for the whole line, so that it leaves in its order.
    opens_at: Mono,
    /// The event that closed it last.
    pub boundary_seq: crate::ids::Seq,
    /// The scope opened after a boundary and its line has not run dry since.
    recovering: bool,
    next_release: Mono,
    /// Grows with every release, so that each gap draws its own jitter.
    releases: u32,
    /// The limits' windows, as the last answer that spoke of them told.
    pub windows: Vec<crate::classify::Window>,
}

/// Whether something may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Now,
    /// Not before this instant.
    At(Mono, WaitReason),
    /// When a slot comes back.
    WhenFree,
}

impl Scope {
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            in_flight: 0,
            waiting: BTreeSet::new(),
            closed_until: None,
            told_until: None,
            opens_at: Mono(0),
            boundary_seq: crate::ids::Seq(0),
            recovering: false,
            next_release: Mono(0),
            releases: 0,
            windows: Vec::new(),
        }
    }

    #[must_use]
    pub fn delayed(&self) -> usize {
        self.waiting.len()
    }

    #[must_use]
    pub fn is_idle(&self, now: Mono) -> bool {
        self.in_flight == 0 && self.waiting.is_empty() && self.closed_until.is_none_or(|c| c <= now)
    }

    /// Closes the scope until `until`, or longer if it already is. `by` is [`WaitReason::Boundary`] where the provider
    /// named the instant.
    pub fn close(&mut self, until: Mono, by: WaitReason, jitter_ms: u64) {
        if by == WaitReason::Boundary {
            self.told_until = self.told_until.max(Some(until));
        }
        if self.closed_until.is_none_or(|closed| closed < until) {
            self.closed_until = Some(until);
            self.opens_at = until.plus_ms(jitter_ms);
        }
        self.recovering = true;
    }

    #[must_use]
    pub fn closed_until(&self, now: Mono) -> Option<Mono> {
        self.closed_until.filter(|c| *c > now)
    }

    /// When the first of the line may leave, while that is to come.
    #[must_use]
    pub fn opens_at(&self, now: Mono) -> Option<Mono> {
        Some(self.opens_at).filter(|at| *at > now)
    }

    /// The provider's boundary, where it named one that still stands.
    #[must_use]
    pub fn told_until(&self, now: Mono) -> Option<Mono> {
        self.told_until.filter(|told| *told > now)
    }

    /// Whose word keeps the scope closed: the provider's, or our own where it named no boundary.
    #[must_use]
    pub fn closed_by(&self) -> WaitReason {
        if self.told_until == self.closed_until { WaitReason::Boundary } else { WaitReason::Backoff }
    }

    /// Whether a call that is due may leave, apart from those in line before it.
    #[must_use]
    pub fn turn(&self, now: Mono) -> Turn {
        if let Some(at) = self.opens_at(now) {
            return Turn::At(at, self.closed_by());
        }
        if self.in_flight >= self.limits.max_concurrent_requests {
            return Turn::WhenFree;
        }
        if self.recovering && self.next_release > now {
            return Turn::At(self.next_release, WaitReason::Pacing);
        }
        Turn::Now
    }

    /// Whether someone who is due stands in line.
    #[must_use]
    pub fn has_due(&self, now: Mono) -> bool {
        self.waiting.first().is_some_and(|p| p.due <= now)
    }

    pub fn wait(&mut self, place: Place) {
        self.waiting.insert(place);
    }

    pub fn leave(&mut self, place: &Place) -> bool {
        self.waiting.remove(place)
    }

    /// The next that may leave now; takes its slot. `gap_ms` is asked for the time to the one after it.
    pub fn release(&mut self, now: Mono, gap_ms: impl FnOnce(ActionId, u32) -> u64) -> Option<Place> {
        if self.turn(now) != Turn::Now {
            return None;
        }
        let place = *self.waiting.first().filter(|p| p.due <= now)?;
        self.waiting.remove(&place);
        self.take(now, place.action, gap_ms);
        Some(place)
    }

    /// Who waits, in order.
    pub fn line(&self) -> impl Iterator<Item = &Place> {
        self.waiting.iter()
    }

    /// Takes a slot for a call that is sent now.
    pub fn take(&mut self, now: Mono, action: ActionId, gap_ms: impl FnOnce(ActionId, u32) -> u64) {
        self.in_flight += 1;
        if !self.recovering {
            return;
        }
        if self.waiting.is_empty() && self.next_release <= now && self.releases > 0 {
            // The line ran dry and a gap passed since: the burst that the boundary gathered is over.
            self.recovering = false;
            self.releases = 0;
            return;
        }
        self.releases = self.releases.wrapping_add(1);
        self.next_release = now.plus_ms(gap_ms(action, self.releases));
    }

    pub fn give_slot(&mut self) {
        debug_assert!(self.in_flight > 0, "a slot came back twice");
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// When the line should be looked at again, if only time can move it.
    #[must_use]
    pub fn next_look(&self, now: Mono) -> Option<(Mono, WaitReason)> {
        let first = self.waiting.first()?;
        match self.turn(now.max(first.due)) {
            Turn::Now => Some((first.due, WaitReason::Backoff)),
            Turn::At(at, reason) => Some((at.max(first.due), reason)),
            Turn::WhenFree => None,
        }
    }
}

/// What two readings of one instant may differ by through rounding and a clock that is being slewed.
const SAME_INSTANT_MS: u64 = 1_000;

/// The wall time that a scope's `closed_until` stands for: as it was written down, so that everybody is told the same
/// instant, unless the wall clock was stepped since.
#[must_use]
pub fn closed_wall(scope: &Scope, written: Option<Wall>, now: Now) -> Option<Wall> {
    let counted = now.wall_at(scope.closed_until(now.mono)?);
    Some(written.filter(|written| written.0.abs_diff(counted.0) <= SAME_INSTANT_MS).unwrap_or(counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_delayed_requests: 10, max_concurrent_requests: 2, max_retries_per_minute: 10 };

    fn place(due_ms: u64, order: u64) -> Place {
        Place { due: Mono(0).plus_ms(due_ms), order, action: ActionId(u128::from(order)) }
    }

    fn at(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    #[test]
    fn a_boundary_only_moves_later_and_no_one_passes_it() {
        let mut scope = Scope::new(LIMITS);
        scope.close(at(60_000), WaitReason::Boundary, 0);
        scope.close(at(1_000), WaitReason::Boundary, 0);
        scope.wait(place(0, 1));
        assert_eq!(scope.release(at(59_999), |_, _| 0), None);
        assert_eq!(scope.release(at(60_000), |_, _| 0).map(|p| p.order), Some(1));
    }

    #[test]
    fn one_instant_is_told_in_one_way() {
        let mut scope = Scope::new(LIMITS);
        scope.close(Mono(5_000_400_000), WaitReason::Boundary, 0);
        let written = Some(Wall(105_001));
        for (mono, wall) in [(400_000, 100_000), (999_999, 100_001), (4_700_000_000, 104_699)] {
            let now = Now { mono: Mono(mono), wall: Wall(wall) };
            assert_eq!(closed_wall(&scope, written, now), written);
        }
        let stepped = Now { mono: Mono(400_000), wall: Wall(200_000) };
        assert_eq!(closed_wall(&scope, written, stepped), Some(Wall(205_000)));
        assert_eq!(closed_wall(&scope, written, Now { mono: Mono(5_000_400_000), wall: Wall(0) }), None);
    }

    #[test]
    fn our_own_backoff_is_never_told_as_the_providers_boundary() {
        let mut scope = Scope::new(LIMITS);
        scope.close(at(1_000), WaitReason::Boundary, 0);
        scope.close(at(2_000), WaitReason::Backoff, 0);
        assert_eq!(
            (scope.turn(at(0)), scope.told_until(at(0))),
            (Turn::At(at(2_000), WaitReason::Backoff), Some(at(1_000)))
        );
        scope.close(at(3_000), WaitReason::Boundary, 0);
        scope.close(at(2_500), WaitReason::Backoff, 0);
        assert_eq!(scope.turn(at(0)), Turn::At(at(3_000), WaitReason::Boundary));
    }

    #[test]
    fn waiters_leave_in_order_and_apart() {
        let mut scope = Scope::new(LIMITS);
        scope.close(at(10), WaitReason::Boundary, 0);
        for order in [3, 1, 2] {
            scope.wait(place(0, order));
        }
        let mut sent = Vec::new();
        let mut now = at(10);
        while scope.delayed() > 0 {
            if let Some(p) = scope.release(now, |_, _| 200) {
                sent.push((now, p.order));
                scope.give_slot();
            }
            now = scope.next_look(now).map_or(now, |(at, _)| at.max(now));
        }
        assert_eq!(sent, [(at(10), 1), (at(210), 2), (at(410), 3)]);
    }

    #[test]
    fn slots_bound_what_is_on_the_wire() {
        let mut scope = Scope::new(LIMITS);
        for order in 1..=3 {
            scope.wait(place(0, order));
        }
        assert!(scope.release(at(0), |_, _| 0).is_some());
        assert!(scope.release(at(0), |_, _| 0).is_some());
        assert_eq!(scope.release(at(0), |_, _| 0), None);
        assert_eq!(scope.next_look(at(0)), None, "time alone frees no slot");
        scope.give_slot();
        assert!(scope.release(at(0), |_, _| 0).is_some());
    }
}
