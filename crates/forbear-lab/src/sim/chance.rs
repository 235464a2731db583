//! The simulator's only source of chance: SplitMix64 (Steele, Lea, Flood 2014), one short stream for each thing that
//! chance decides. The same seed gives the same run on every machine.
//!
//! A stream is named by what it decides ([`Draw`]), not by when: leaving one call or one fault out of a schedule changes
//! nothing about the others, so that a broken schedule can be made smaller. A *calmed* draw gives the first of its choices
//! each time, which every user of one puts where nothing goes wrong.

use std::collections::BTreeSet;

/// What chance decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Site {
    Plan,
    Intents,
    Faults,
    /// How a call is made: by call.
    Asks,
    /// What its agent does after an answer of ours, after it left, after its connection was lost: by call.
    Again,
    Answered,
    Leaves,
    Lost,
    /// How long a command lies: by call and command.
    Command,
    /// By call and attempt.
    Dial,
    FirstByte,
    Arrival,
    Head,
    Relay,
    /// Whether an answer is read before its agent takes it: by call and attempt.
    Reads,
    /// By event number.
    Append,
    Commit,
    Flush,
    /// By how many there were before.
    Fails,
    Told,
    Thaw,
    Crash,
    Start,
    Takeover,
    Cancel,
    /// Whether refusals' bodies are slow in this schedule, and by call and attempt whether one is.
    SlowRefusals,
    Refusal,
    /// By process.
    Drain,
    /// How quotas are cut and paced in this schedule.
    Quotas,
    Invocations,
    /// What opens circuits in this schedule.
    Breakers,
    /// What else is cancelled in this schedule, and taken back.
    Stops,
}

/// One decision of chance, and whom it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Draw(pub(super) Site, pub(super) u64, pub(super) u64);

#[derive(Debug, Clone, Default)]
pub(super) struct Chance {
    seed: u64,
    calm: BTreeSet<Draw>,
    /// Which draws were asked for, where somebody wants to know.
    asked: Option<BTreeSet<Draw>>,
}

#[derive(Debug, Clone)]
pub(super) struct Rng {
    state: u64,
    calm: bool,
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    pub(super) fn new(seed: u64, calm: BTreeSet<Draw>, recorded: bool) -> Self {
        Self { seed, calm, asked: recorded.then(BTreeSet::new) }
    }

    pub(super) fn at(&mut self, site: Site, of: u64, nth: u64) -> Rng {
        let draw = Draw(site, of, nth);
        let calm = !self.calm.is_empty() && self.calm.contains(&draw);
        if let Some(asked) = self.asked.as_mut().filter(|_| !calm) {
            asked.insert(draw);
        }
        let name = (site as u64) << 56 ^ of << 24 ^ nth;
        Rng { state: mix(self.seed ^ mix(name.wrapping_add(GAMMA))), calm }
    }

    pub(super) fn into_asked(self) -> BTreeSet<Draw> {
        self.asked.unwrap_or_default()
    }
}

impl Rng {
    /// One long stream, for those who have no schedule.
    pub(super) const fn new(state: u64) -> Self {
        Self { state, calm: false }
    }

    pub(super) const fn next(&mut self) -> u64 {
        if self.calm {
            return 0;
        }
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// In `low..=high`. The bias of the remainder is far below what a simulation can see.
    pub(super) const fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(super) const fn permille(&mut self, of_a_thousand: u64) -> bool {
        !self.calm && self.next() % 1_000 < of_a_thousand
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let n = from.len() as u64;
        from[usize::try_from(self.next() % n).unwrap_or(0)]
    }

    /// An index in proportion to its weight.
    pub(super) fn weighted(&mut self, weights: &[u64]) -> usize {
        let total: u64 = weights.iter().sum();
        let mut left = self.next() % total.max(1);
        for (i, w) in weights.iter().enumerate() {
            if left < *w {
                return i;
            }
            left -= w;
        }
        0
    }
}

const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_draw_is_its_name_and_not_its_turn() {
        let mut one = Chance::new(7, BTreeSet::new(), true);
        let mut other = Chance::new(7, BTreeSet::from([Draw(Site::Dial, 1, 1)]), false);
        let first = one.at(Site::Head, 3, 2).next();
        let _ = other.at(Site::Crash, 0, 0).next();
        assert_eq!(other.at(Site::Head, 3, 2).next(), first);
        assert_ne!(one.at(Site::Head, 2, 3).next(), first);
        let mut calm = other.at(Site::Dial, 1, 1);
        assert_eq!((calm.range(4, 9), calm.permille(999), calm.pick(&[5, 6])), (4, false, 5));
        assert_eq!(one.into_asked().len(), 2);
    }
}
