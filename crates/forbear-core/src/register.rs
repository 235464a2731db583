//! The volatile half of one scope: slots, pacing, and until when it is closed.
//!
//! A slot is held only while an attempt is on the wire, never while waiting. After a boundary whoever waited leaves one by
//! one, apart by the pacing gap and jitter that is only ever added.

use crate::classify::Window;
use crate::ids::ActionId;
use crate::pacer::{Ask, Pacer, Rate, Unit};
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

#[derive(Debug)]
pub struct Scope {
    /// Attempts that may be in flight at once.
    pub slots_max: u32,
    pub in_flight: u32,
    pacer: Pacer,
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
    pub windows: Vec<Window>,
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

impl Turn {
    /// What holds where both must be heeded. An instant is told rather than a slot: until then no slot helps.
    #[must_use]
    pub fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a, why), Self::At(b, also)) => {
                let (at, why) = (a, why).max((b, also));
                Self::At(at, why)
            }
            (at @ Self::At(..), _) | (_, at @ Self::At(..)) => at,
            (Self::WhenFree, _) | (_, Self::WhenFree) => Self::WhenFree,
            (Self::Now, Self::Now) => Self::Now,
        }
    }
}

impl Scope {
    #[must_use]
    pub fn new(slots_max: u32) -> Self {
        Self {
            slots_max,
            in_flight: 0,
            pacer: Pacer::default(),
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

    /// Nothing of it is lost if it is forgotten.
    #[must_use]
    pub fn is_idle(&self, now: Mono) -> bool {
        self.in_flight == 0 && self.closed_until.is_none_or(|c| c <= now) && self.pacer.is_full(now)
    }

    /// The rates that it keeps to from now on. True: they were others.
    pub fn declare(&mut self, now: Mono, rates: &[Rate]) -> bool {
        let are_others = self.pacer.set(now, rates);
        // Whoever leaves after the boundary leaves paced, by whichever rates.
        if let Some(at) = self.opens_at(now).filter(|_| are_others) {
            self.pacer.empty(at);
        }
        are_others
    }

    #[must_use]
    pub const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    pub const fn pacer_mut(&mut self) -> &mut Pacer {
        &mut self.pacer
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
            self.pacer.empty(self.opens_at);
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

    /// Whether a call that is due may leave. `kept` slots are kept for others.
    #[must_use]
    pub fn turn(&self, now: Mono, ask: &Ask, kept: u32) -> Turn {
        if let Some(at) = self.opens_at(now) {
            return Turn::At(at, self.closed_by());
        }
        // One is left to everybody, whatever is kept.
        if self.in_flight >= self.slots_max.saturating_sub(kept).max(1) {
            return Turn::WhenFree;
        }
        let gap = self.recovering.then_some(self.next_release).filter(|at| *at > now);
        match gap.max(self.pacer.next(now, ask)) {
            Some(at) => Turn::At(at, WaitReason::Pacing),
            None => Turn::Now,
        }
    }

    /// Takes a slot and its part of every rate for a call that is sent now. `is_dry`: nobody waits behind it.
    pub fn take(
        &mut self,
        now: Mono,
        action: ActionId,
        ask: &Ask,
        is_dry: bool,
        gap_ms: impl FnOnce(ActionId, u32) -> u64,
    ) {
        self.in_flight += 1;
        self.pacer.take(now, ask);
        if !self.recovering {
            return;
        }
        if is_dry && self.next_release <= now && self.releases > 0 {
            // The line ran dry and a gap passed since: the burst that the boundary gathered is over.
            self.recovering = false;
            self.releases = 0;
            return;
        }
        self.releases = self.releases.wrapping_add(1);
        // A scope that knows its rate leaves by that.
        if self.pacer.is_empty() {
            self.next_release = now.plus_ms(gap_ms(action, self.releases));
        }
    }

    /// An answer spoke of the limits' windows. What the provider counts may be more than went through here.
    pub fn learn(&mut self, now: Mono, windows: &[Window]) {
        self.windows = windows.to_vec();
        for window in windows {
            if let (Some(unit), Some(left)) = (Unit::of_window(&window.name), window.remaining) {
                self.pacer.has_left(now, unit, left);
            }
        }
    }

    pub fn give_slot(&mut self) {
        debug_assert!(self.in_flight > 0, "a slot came back twice");
        self.in_flight = self.in_flight.saturating_sub(1);
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

    const ONE: Ask = Ask { tokens: 0, cost_micros: 0 };

    fn at(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    fn turn(scope: &Scope, ms: u64) -> Turn {
        scope.turn(at(ms), &ONE, 0)
    }

    #[test]
    fn a_boundary_only_moves_later_and_no_one_passes_it() {
        let mut scope = Scope::new(2);
        scope.close(at(60_000), WaitReason::Boundary, 0);
        scope.close(at(1_000), WaitReason::Boundary, 0);
        assert_eq!(turn(&scope, 59_999), Turn::At(at(60_000), WaitReason::Boundary));
        assert_eq!(turn(&scope, 60_000), Turn::Now);
    }

    #[test]
    fn one_instant_is_told_in_one_way() {
        let mut scope = Scope::new(2);
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
        let mut scope = Scope::new(2);
        scope.close(at(1_000), WaitReason::Boundary, 0);
        scope.close(at(2_000), WaitReason::Backoff, 0);
        assert_eq!(
            (turn(&scope, 0), scope.told_until(at(0))),
            (Turn::At(at(2_000), WaitReason::Backoff), Some(at(1_000)))
        );
        scope.close(at(3_000), WaitReason::Boundary, 0);
        scope.close(at(2_500), WaitReason::Backoff, 0);
        assert_eq!(turn(&scope, 0), Turn::At(at(3_000), WaitReason::Boundary));
    }

    #[test]
    fn slots_bound_what_is_on_the_wire_and_some_may_be_kept() {
        let mut scope = Scope::new(2);
        scope.take(at(0), ActionId(1), &ONE, true, |_, _| 0);
        assert_eq!((turn(&scope, 0), scope.turn(at(0), &ONE, 1)), (Turn::Now, Turn::WhenFree));
        scope.take(at(0), ActionId(2), &ONE, true, |_, _| 0);
        assert_eq!(turn(&scope, 0), Turn::WhenFree);
        scope.give_slot();
        assert_eq!(turn(&scope, 0), Turn::Now);
        assert_eq!(Scope::new(1).turn(at(0), &ONE, 5), Turn::Now, "one is left to everybody");
    }

    #[test]
    fn after_a_boundary_a_known_rate_paces_and_an_unknown_one_is_guessed_by_the_gap() {
        let mut scope = Scope::new(9);
        scope.close(at(1_000), WaitReason::Boundary, 0);
        scope.take(at(1_000), ActionId(1), &ONE, false, |_, _| 200);
        assert_eq!(turn(&scope, 1_000), Turn::At(at(1_200), WaitReason::Pacing));
        let mut known = Scope::new(9);
        known.declare(at(0), &[Rate::of_limit(Unit::Requests, 60, 60_000, Some(30), 10_000)]);
        known.close(at(1_000), WaitReason::Boundary, 0);
        known.take(at(1_000), ActionId(1), &ONE, false, |_, _| 200);
        assert_eq!(turn(&known, 1_000), Turn::At(at(2_000), WaitReason::Pacing));
    }

    #[test]
    fn an_instant_is_told_rather_than_a_slot_and_the_latest_of_several() {
        let (early, late) = (Turn::At(at(1), WaitReason::Boundary), Turn::At(at(2), WaitReason::Pacing));
        assert_eq!([early.later(late), late.later(early)], [late, late]);
        assert_eq!([early.later(Turn::WhenFree), Turn::WhenFree.later(Turn::Now)], [early, Turn::WhenFree]);
    }
}
