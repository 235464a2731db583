//! Latencies in buckets whose width grows with their value: 1/64 of it, so that any percentile is right to 1.6 %.
//! Bounded whatever happens; what is longer than the largest value counts as that.

/// Below this a value is its own bucket; above, each doubling is cut into as many.
const STEPS_BITS: u32 = 6;
const STEPS: usize = 1 << STEPS_BITS;
/// About 18 minutes in nanoseconds.
const VALUE_BITS_MAX: u32 = 40;
const VALUE_NS_MAX: u64 = (1 << VALUE_BITS_MAX) - 1;
const BUCKETS: usize = STEPS * (VALUE_BITS_MAX - STEPS_BITS + 1) as usize;

#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    pub fn record_ns(&mut self, value_ns: u64) {
        self.buckets[bucket_of(value_ns.min(VALUE_NS_MAX))] += 1;
        self.count += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The value that so many of a thousand do not exceed; 0 where nothing was recorded.
    #[must_use]
    pub fn per_mille_ns(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle_of(bucket);
            }
        }
        0
    }
}

fn bucket_of(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(STEPS_BITS + 1);
    // Below 2 * STEPS nothing is shifted and the value is its own bucket.
    shift as usize * STEPS + usize::try_from(value >> shift).unwrap_or(usize::MAX)
}

fn middle_of(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let low = ((bucket - shift * STEPS) as u64) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, VALUE_NS_MAX, bucket_of, middle_of};

    #[test]
    fn buckets_are_contiguous_and_bounded() {
        let mut before = bucket_of(0);
        for value in 1..200_000 {
            let bucket = bucket_of(value);
            assert!(bucket == before || bucket == before + 1, "{value}");
            before = bucket;
        }
        assert_eq!(bucket_of(VALUE_NS_MAX), BUCKETS - 1);
    }

    #[test]
    fn a_value_comes_back_within_its_width() {
        for value in [0, 1, 63, 64, 127, 128, 1_000, 65_537, 1_234_567, 987_654_321, VALUE_NS_MAX] {
            let seen = middle_of(bucket_of(value));
            assert!(seen.abs_diff(value) * 64 <= value, "{value} came back as {seen}");
        }
    }

    #[test]
    fn percentiles_of_a_known_set() {
        let mut all = Histogram::default();
        let mut part = Histogram::default();
        for value in 1..=1_000_u64 {
            if value % 2 == 0 { all.record_ns(value * 1_000) } else { part.record_ns(value * 1_000) }
        }
        all.add(&part);
        assert_eq!(all.count(), 1_000);
        for (per_mille, expected) in [(500, 500_000), (900, 900_000), (990, 990_000), (1_000, 1_000_000)] {
            assert!(all.per_mille_ns(per_mille).abs_diff(expected) * 64 <= expected, "{per_mille}");
        }
        assert_eq!(Histogram::default().per_mille_ns(500), 0);
    }

    #[test]
    fn what_is_too_long_is_counted_as_the_longest() {
        let mut histogram = Histogram::default();
        histogram.record_ns(u64::MAX);
        assert!(histogram.per_mille_ns(500) > VALUE_NS_MAX / 64 * 63);
    }
}
