//! What was done, and what would have been done where calls are only watched, summed up by scope from the journal.
//!
//! It promises to hold only sums, and what is not ended yet: `SCOPES_MAX` scopes, `OPEN_MAX` calls. A call counts where
//! both its beginning and its end were read; one that began earlier does not.

use std::collections::BTreeMap;

use forbear_core::event::{ActionFinished, Event, Fact, Outcome, Refused, Would};
use forbear_core::ids::ActionId;
use forbear_core::time::Wall;

/// Scopes told apart; those beyond are summed up as `provider/*`.
const SCOPES_MAX: usize = 1_000;
/// Calls that are not ended yet; beyond, the oldest is not counted.
pub(crate) const OPEN_MAX: usize = 100_000;
/// Spans of waiting are told apart to an eighth.
const STEPS: u32 = 8;

/// From when on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    At(Wall),
    /// So many milliseconds before the newest event.
    Last(u64),
}

#[derive(Debug, Default)]
pub struct Tally {
    /// The first and the last event that was read.
    pub first_at: Option<Wall>,
    pub last_at: Option<Wall>,
    pub scopes: BTreeMap<String, Sums>,
    open: BTreeMap<ActionId, Open>,
}

/// A call whose end was not read yet.
#[derive(Debug, Default)]
struct Open {
    scope: Option<String>,
    sums: Sums,
}

/// What happened in one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    pub calls: u64,
    pub sends: u64,
    pub done: Decided,
    pub would: Decided,
}

/// How calls were decided on that did not just pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// Waited before their first send.
    pub held: u64,
    /// Further sends.
    pub retries: u64,
    /// Got another call's answer.
    pub joined: u64,
    pub already_done: u64,
    pub open: u64,
    pub key_mismatch: u64,
    /// Ended with an answer of Forbear's own for another reason: without a send, or where what was done is unknown.
    pub ended: u64,
    pub waits: Waits,
}

/// Waits, by their length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    pub count: u64,
    pub total_ms: u64,
    pub max_ms: u64,
    /// How many were about so long: at most 8 steps for each doubling.
    steps: BTreeMap<u32, u64>,
}

impl Tally {
    /// Takes the next event.
    pub fn note(&mut self, event: &Event) {
        self.first_at.get_or_insert(event.at);
        self.last_at = Some(event.at);
        let Some(action) = event.action else { return };
        match &event.fact {
            Fact::ActionRequested(r) => self.open_of(action).scope = Some(r.scope.to_string()),
            Fact::DecisionObserved { would } => self.open_of(action).sums.would.note(would),
            Fact::CallJoined { .. } => {
                if let Some(open) = self.open.get_mut(&action) {
                    open.sums.calls += 1;
                    open.sums.done.joined += 1;
                }
            }
            Fact::ActionFinished(finished) => self.finished(action, finished),
            _ => {}
        }
    }

    fn open_of(&mut self, action: ActionId) -> &mut Open {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&action) {
            self.open.pop_first();
        }
        self.open.entry(action).or_default()
    }

    fn finished(&mut self, action: ActionId, f: &ActionFinished) {
        let Open { scope, mut sums } = self.open.remove(&action).unwrap_or_default();
        let Some(scope) = f.straight.as_ref().map(|s| s.scope.to_string()).or(scope) else { return };
        sums.calls += 1;
        sums.sends += u64::from(f.attempts);
        sums.done.finished(f);
        let known = self.scopes.contains_key(&scope) || self.scopes.len() < SCOPES_MAX;
        let scope = if known { scope } else { format!("{}/*", provider_of(&scope)) };
        self.scopes.entry(scope).or_default().add(&sums);
    }
}

/// The provider that a scope is of.
#[must_use]
pub fn provider_of(scope: &str) -> &str {
    scope.split_once('/').map_or(scope, |(provider, _)| provider)
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.sends += other.sends;
        self.done.add(&other.done);
        self.would.add(&other.would);
    }
}

impl Decided {
    /// Calls that did not reach the provider when they came.
    #[must_use]
    pub const fn saved(&self) -> u64 {
        self.held + self.joined + self.already_done + self.open
    }

    /// Calls that would have acted, or may have acted, a second time.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.joined + self.already_done + self.open
    }

    fn finished(&mut self, f: &ActionFinished) {
        self.held += u64::from(f.waited_for.is_some());
        self.retries += u64::from(f.attempts.saturating_sub(1));
        self.waits.note(f.waited_ms);
        match f.refused {
            Some(why) => self.refused(why),
            None => {
                let unsent = matches!(f.outcome, Outcome::Shed | Outcome::Deferred | Outcome::DeadlineExhausted);
                self.ended += u64::from(unsent && f.attempts == 0);
            }
        }
    }

    fn note(&mut self, would: &Would) {
        match would {
            Would::Hold { hold_ms, .. } => {
                self.held += 1;
                self.waits.note(hold_ms.unwrap_or(0));
            }
            Would::Join { .. } => self.joined += 1,
            Would::Refuse { why, .. } => self.refused(*why),
            Would::Retry { wait_ms, .. } => {
                self.retries += 1;
                self.waits.note(*wait_ms);
            }
            Would::End { .. } => self.ended += 1,
        }
    }

    const fn refused(&mut self, why: Refused) {
        match why {
            Refused::AlreadyDone => self.already_done += 1,
            Refused::Open => self.open += 1,
            Refused::KeyMismatch => self.key_mismatch += 1,
        }
    }

    fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.retries += other.retries;
        self.joined += other.joined;
        self.already_done += other.already_done;
        self.open += other.open;
        self.key_mismatch += other.key_mismatch;
        self.ended += other.ended;
        self.waits.add(&other.waits);
    }
}

impl Waits {
    fn note(&mut self, ms: u64) {
        if ms == 0 {
            return;
        }
        self.count += 1;
        self.total_ms = self.total_ms.saturating_add(ms);
        self.max_ms = self.max_ms.max(ms);
        *self.steps.entry(step_of(ms)).or_default() += 1;
    }

    /// Half of the waits were no longer than this, to an eighth; 0 where nothing waited.
    #[must_use]
    pub fn p50_ms(&self) -> u64 {
        let mut seen = 0;
        let half = self.count.div_ceil(2);
        let step = self.steps.iter().find(|(_, n)| {
            seen += **n;
            seen >= half
        });
        step.map_or(0, |(step, _)| end_of(*step).min(self.max_ms))
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ms = self.total_ms.saturating_add(other.total_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
        for (step, n) in &other.steps {
            *self.steps.entry(*step).or_default() += n;
        }
    }
}

/// Exact below 16 ms; above, the eighth of its power of two.
fn step_of(ms: u64) -> u32 {
    let shift = ms.checked_ilog2().unwrap_or(0).saturating_sub(3);
    shift * STEPS + u32::try_from(ms >> shift).unwrap_or(u32::MAX)
}

/// The longest span of a step.
fn end_of(step: u32) -> u64 {
    let shift = (step / STEPS).saturating_sub(1);
    let first = u64::from(step - shift * STEPS);
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_ends_where_the_next_begins() {
        for ms in (1..5_000).chain([1 << 40, u64::MAX >> 1]) {
            let step = step_of(ms);
            assert!(ms <= end_of(step), "{ms}");
            assert!(end_of(step) - ms <= ms / 8, "{ms} is told as {}", end_of(step));
            assert!(step_of(end_of(step)) == step && step_of(end_of(step) + 1) == step + 1, "{ms}");
        }
    }

    #[test]
    fn half_of_the_waits_are_no_longer_than_the_median() {
        let mut waits = Waits::default();
        [0, 10, 1_000, 1_001, 60_000, 9_000_000].into_iter().for_each(|ms| waits.note(ms));
        assert_eq!((waits.count, waits.total_ms, waits.max_ms), (5, 9_062_011, 9_000_000));
        assert!((1_001..=1_126).contains(&waits.p50_ms()), "{}", waits.p50_ms());
        let mut one = Waits::default();
        one.note(1_000);
        assert_eq!((one.p50_ms(), Waits::default().p50_ms()), (1_000, 0));
    }
}
