//! Pacing: how soon the next call may leave so that no declared or learned rate is passed. GCRA in integer nanoseconds.
//!
//! A rate is an amount in a time, with what may come at once (its burst). In any window of that time no more than the rate's
//! share plus the burst leaves, and [`Rate::of_limit`] chooses both so that this is at most the limit. Several rates are
//! asked together, and all or none are taken. Every rounding is towards later.

use crate::time::Mono;

/// Basis points in one.
const WHOLE_BP: u64 = 10_000;
const NS_PER_MS: u128 = 1_000_000;
/// The longest wait that pacing alone asks for: a month. What a rate cannot bear sooner is as good as never.
const WAIT_NS_MAX: u128 = 31 * 24 * 3_600_000 * NS_PER_MS;

/// What a rate counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Requests,
    /// Of language models, input and output together.
    Tokens,
    /// Millionths of the declared currency.
    CostMicros,
}

impl Unit {
    /// What a limit's window counts, by its name; none where it may be something else.
    #[must_use]
    pub fn of_window(name: &str) -> Option<Self> {
        let names = |word: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word);
        if names("tokens") || names("token") {
            Some(Self::Tokens)
        } else if names("requests") || names("request") {
            Some(Self::Requests)
        } else {
            None
        }
    }
}

/// So much in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub unit: Unit,
    /// Nanoseconds that one unit takes, rounded up. A thousandth of a nanosecond is the finest.
    emission_thousandths_ns: u64,
    /// Units that may come at once; 1 or more.
    burst: u64,
}

impl Rate {
    /// A rate that keeps to `share_bp` of a limit of `amount` in `per_ms`. What the share leaves is halved: one half bears the
    /// burst, the other what the network pushes together.
    #[must_use]
    pub fn of_limit(unit: Unit, amount: u64, per_ms: u64, burst: Option<u64>, share_bp: u64) -> Self {
        let share_bp = share_bp.clamp(1, WHOLE_BP);
        let spare = u128::from(amount) * u128::from(WHOLE_BP - share_bp) / u128::from(2 * WHOLE_BP);
        let burst = burst.unwrap_or_else(|| u64::try_from(spare).unwrap_or(u64::MAX)).max(1);
        // ns * 1000 * 10,000 / (amount * share): no overflow in 128 bits for any window below 10^12 years.
        let window = u128::from(per_ms) * NS_PER_MS * 1_000 * u128::from(WHOLE_BP);
        let emission = window.div_ceil((u128::from(amount.max(1)) * u128::from(share_bp)).max(1));
        Self { unit, emission_thousandths_ns: u64::try_from(emission).unwrap_or(u64::MAX).max(1), burst }
    }

    fn ns(&self, units: u64) -> u128 {
        (u128::from(units) * u128::from(self.emission_thousandths_ns)).div_ceil(1_000)
    }

    /// What may come at once, in nanoseconds.
    fn tolerance_ns(&self) -> u128 {
        self.ns(self.burst)
    }

    /// When a bucket is full again that holds one unit at `at`.
    fn empty_at(&self, at: Mono) -> u128 {
        (u128::from(at.0) + self.tolerance_ns()).saturating_sub(self.ns(1))
    }

    /// Between two calls of one unit each, rounded up to a millisecond.
    #[must_use]
    pub fn emission_ms(&self) -> u64 {
        u64::try_from(self.ns(1).div_ceil(NS_PER_MS)).unwrap_or(u64::MAX)
    }
}

/// What one call takes beside its being one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ask {
    pub tokens: u64,
    pub cost_micros: u64,
}

impl Ask {
    const fn units(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Requests => 1,
            Unit::Tokens => self.tokens,
            Unit::CostMicros => self.cost_micros,
        }
    }
}

/// One rate and how far it is spent: the instant at which its bucket is full again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    rate: Rate,
    full_at_ns: u128,
}

impl Bucket {
    /// What does not fit in the burst is taken as the whole burst: it could never leave else.
    fn takes_ns(&self, ask: &Ask) -> u128 {
        self.rate.ns(ask.units(self.rate.unit).min(self.rate.burst))
    }

    fn next_ns(&self, ask: &Ask) -> u128 {
        (self.full_at_ns + self.takes_ns(ask)).saturating_sub(self.rate.tolerance_ns())
    }

    /// As many units are spent, each of which takes as long as the other rate says.
    fn at_rate(&self, now: Mono, rate: Rate) -> Self {
        let now_ns = u128::from(now.0);
        let spent_ns = self.full_at_ns.saturating_sub(now_ns).min(WAIT_NS_MAX);
        // A month in nanoseconds times the longest emission: no overflow in 128 bits.
        let scaled = spent_ns * u128::from(rate.emission_thousandths_ns);
        let spent_ns = scaled.div_ceil(u128::from(self.rate.emission_thousandths_ns)).min(WAIT_NS_MAX);
        Self { rate, full_at_ns: now_ns + spent_ns }
    }

    fn take(&mut self, now_ns: u128, ask: &Ask) {
        // All of it is owed, also what is beyond the burst.
        let owed = self.rate.ns(ask.units(self.rate.unit));
        self.full_at_ns = (self.full_at_ns.max(now_ns) + owed).min(now_ns + WAIT_NS_MAX);
    }
}

/// All rates of one scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pacer {
    buckets: Vec<Bucket>,
}

impl Pacer {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// These rates from now on. What is spent of a rate that stays is kept, and of one that changes as many units as it was: of
    /// one unit the first that is new stands for the first that is gone. Another starts empty, for nobody knows what was sent
    /// before: one call may leave, and the rest paced.
    /// True: they are others than before.
    pub fn set(&mut self, now: Mono, rates: &[Rate]) -> bool {
        let same = self.buckets.len() == rates.len() && self.buckets.iter().zip(rates).all(|(b, rate)| b.rate == *rate);
        if same {
            return false;
        }
        let mut gone: Vec<Bucket> = self.buckets.iter().filter(|b| !rates.contains(&b.rate)).copied().collect();
        let bucket = |rate: &Rate| {
            let stays = self.buckets.iter().find(|b| b.rate == *rate).copied();
            stays.unwrap_or_else(|| match gone.iter().position(|b| b.rate.unit == rate.unit) {
                Some(at) => gone.remove(at).at_rate(now, *rate),
                None => Bucket { rate: *rate, full_at_ns: rate.empty_at(now) },
            })
        };
        self.buckets = rates.iter().map(bucket).collect();
        true
    }

    /// When a call that takes `ask` may leave, if that is to come.
    #[must_use]
    pub fn next(&self, now: Mono, ask: &Ask) -> Option<Mono> {
        let at = self.buckets.iter().map(|bucket| bucket.next_ns(ask)).max()?;
        (at > u128::from(now.0)).then(|| mono(at))
    }

    pub fn take(&mut self, now: Mono, ask: &Ask) {
        for bucket in &mut self.buckets {
            bucket.take(u128::from(now.0), ask);
        }
    }

    /// What was taken as `estimated` has really been `used`: the difference is owed, or comes back.
    pub fn settle(&mut self, now: Mono, estimated: &Ask, used: &Ask) {
        for bucket in self.buckets.iter_mut().filter(|b| b.rate.unit != Unit::Requests) {
            let (was, is) = (estimated.units(bucket.rate.unit), used.units(bucket.rate.unit));
            if is > was {
                let owed = bucket.rate.ns(is - was);
                bucket.full_at_ns =
                    (bucket.full_at_ns.max(u128::from(now.0)) + owed).min(u128::from(now.0) + WAIT_NS_MAX);
            } else {
                bucket.full_at_ns = bucket.full_at_ns.saturating_sub(bucket.rate.ns(was - is));
            }
        }
    }

    /// Nothing of any burst is left at `at`: whoever leaves then leaves paced.
    pub fn empty(&mut self, at: Mono) {
        for bucket in &mut self.buckets {
            bucket.full_at_ns = bucket.full_at_ns.max(bucket.rate.empty_at(at));
        }
    }

    /// The provider says that `left` units are left now. It knows of calls that others made.
    pub fn has_left(&mut self, now: Mono, unit: Unit, left: u64) {
        for bucket in self.buckets.iter_mut().filter(|b| b.rate.unit == unit && left < b.rate.burst) {
            let full_at = u128::from(now.0) + bucket.rate.ns(bucket.rate.burst - left);
            bucket.full_at_ns = bucket.full_at_ns.max(full_at);
        }
    }

    /// The longest time between two calls while work waits, in milliseconds.
    #[must_use]
    pub fn emission_ms(&self) -> Option<u64> {
        self.buckets.iter().filter(|b| b.rate.unit == Unit::Requests).map(|b| b.rate.emission_ms()).max()
    }

    /// All bursts are full again: nothing is lost if it is forgotten.
    #[must_use]
    pub fn is_full(&self, now: Mono) -> bool {
        self.buckets.iter().all(|bucket| bucket.full_at_ns <= u128::from(now.0))
    }
}

fn mono(ns: u128) -> Mono {
    Mono(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: Ask = Ask { tokens: 0, cost_micros: 0 };

    fn at(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    /// With all bursts full.
    fn rested(rates: &[Rate]) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set(Mono(0), rates);
        pacer.buckets.iter_mut().for_each(|bucket| bucket.full_at_ns = 0);
        pacer
    }

    /// Sends as soon as it may, from `from` to `to`.
    fn sends(pacer: &mut Pacer, from: Mono, to: Mono) -> Vec<Mono> {
        let (mut now, mut sent) = (from, Vec::new());
        while now < to {
            match pacer.next(now, &ONE) {
                Some(later) => now = later,
                None => {
                    pacer.take(now, &ONE);
                    sent.push(now);
                }
            }
        }
        sent
    }

    fn most_in_any_window(sent: &[Mono], window_ms: u64) -> usize {
        let end = |from: &Mono| from.plus_ms(window_ms);
        sent.iter()
            .enumerate()
            .map(|(i, from)| sent[i..].iter().take_while(|t| **t < end(from)).count())
            .max()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_window_holds_more_than_the_limit_and_the_share_is_used(amount in 1u64..500, per_ms in 500u64..100_000) {
            let mut pacer = rested(&[Rate::of_limit(Unit::Requests, amount, per_ms, None, 9_500)]);
            let sent = sends(&mut pacer, at(0), at(per_ms * 5));
            prop_assert!(most_in_any_window(&sent, per_ms) as u64 <= amount);
            let wanted = amount * 5 * 95 / 100;
            prop_assert!(sent.len() as u64 + 1 >= wanted * 98 / 100, "{} of {wanted}", sent.len());
        }
    }

    #[test]
    fn all_are_asked_and_the_latest_decides() {
        let requests = Rate::of_limit(Unit::Requests, 60, 60_000, Some(1), 10_000);
        let tokens = Rate::of_limit(Unit::Tokens, 60_000, 60_000, Some(10_000), 10_000);
        let mut pacer = rested(&[requests, tokens]);
        let big = Ask { tokens: 8_000, ..ONE };
        assert_eq!(pacer.next(at(0), &big), None);
        pacer.take(at(0), &big);
        assert_eq!(pacer.next(at(0), &Ask { tokens: 100, ..ONE }), Some(at(1_000)), "the requests decide");
        assert_eq!(pacer.next(at(0), &big), Some(at(6_000)), "the tokens decide");
    }

    #[test]
    fn what_is_larger_than_the_burst_leaves_from_a_full_bucket_and_is_owed_whole() {
        let mut pacer = rested(&[Rate::of_limit(Unit::Tokens, 1_000, 1_000, Some(100), 10_000)]);
        let huge = Ask { tokens: 5_000, ..ONE };
        assert_eq!(pacer.next(at(0), &huge), None);
        pacer.take(at(0), &huge);
        assert_eq!(pacer.next(at(0), &Ask { tokens: 100, ..ONE }), Some(at(5_000)));
    }

    #[test]
    fn what_was_estimated_too_high_comes_back() {
        let mut pacer = rested(&[Rate::of_limit(Unit::Tokens, 1_000, 1_000, Some(1_000), 10_000)]);
        let (asked, used) = (Ask { tokens: 1_000, ..ONE }, Ask { tokens: 200, ..ONE });
        pacer.take(at(0), &asked);
        pacer.settle(at(0), &asked, &used);
        assert_eq!(pacer.next(at(0), &Ask { tokens: 800, ..ONE }), None);
        pacer.settle(at(0), &used, &asked);
        assert_eq!(pacer.next(at(0), &Ask { tokens: 800, ..ONE }), Some(at(800)));
    }

    #[test]
    fn an_emptied_bucket_lets_one_leave_and_the_rest_paced() {
        let mut pacer = rested(&[Rate::of_limit(Unit::Requests, 60, 60_000, Some(10), 10_000)]);
        pacer.empty(at(5_000));
        assert_eq!(sends(&mut pacer, at(5_000), at(8_000)), [at(5_000), at(6_000), at(7_000)]);
    }

    #[test]
    fn the_providers_count_is_believed_where_it_is_less() {
        let mut pacer = rested(&[Rate::of_limit(Unit::Requests, 60, 60_000, Some(10), 10_000)]);
        pacer.has_left(at(0), Unit::Requests, 2);
        assert_eq!(sends(&mut pacer, at(0), at(1_001)), [at(0), at(0), at(1_000)]);
    }

    #[test]
    fn a_new_bucket_starts_empty() {
        let mut pacer = Pacer::default();
        pacer.set(at(500), &[Rate::of_limit(Unit::Requests, 60, 60_000, Some(10), 10_000)]);
        assert_eq!(sends(&mut pacer, at(500), at(2_600)), [at(500), at(1_500), at(2_500)]);
    }

    #[test]
    fn a_rate_that_stays_keeps_what_is_spent() {
        let mut pacer = Pacer::default();
        let rate = |amount| Rate::of_limit(Unit::Requests, amount, 1_000, Some(1), 10_000);
        pacer.set(at(0), &[rate(1)]);
        pacer.take(at(0), &ONE);
        pacer.set(at(0), &[rate(2)]);
        assert_eq!(pacer.next(at(0), &ONE), Some(at(500)), "one was sent, and the next comes half a second after it");
        pacer.set(at(0), &[rate(1)]);
        assert_eq!(pacer.next(at(0), &ONE), Some(at(1_000)), "a new limit gives nothing away");
    }

    #[test]
    fn a_rate_that_changes_takes_nothing_from_one_beside_it() {
        let per = |amount, ms| Rate::of_limit(Unit::Requests, amount, ms, Some(1), 10_000);
        let (second, hour) = (per(10, 1_000), per(6, 3_600_000));
        let mut pacer = Pacer::default();
        pacer.set(at(0), &[second, hour]);
        pacer.take(at(0), &ONE);
        for rates in [&[per(20, 1_000), hour][..], &[hour, per(5, 1_000)], &[hour], &[hour, second], &[second, hour]] {
            pacer.set(at(0), rates);
            assert_eq!(pacer.next(at(0), &ONE), Some(at(600_000)), "{rates:?}");
        }
    }
}
