//! The simulator's only source of chance: SplitMix64 (Steele, Lea, Flood 2014). The same seed gives the same run on
//! every machine.

#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `low..=high`. The bias of the remainder is far below what a simulation can see.
    pub(super) const fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(super) const fn permille(&mut self, of_a_thousand: u64) -> bool {
        self.next() % 1_000 < of_a_thousand
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
