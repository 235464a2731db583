//! Waiting where the provider names no boundary, and the jitter on top of where it does.
//!
//! Randomness is derived from the driver's seed and the attempt, so that a run can be replayed to the same decision.

use crate::ids::{ActionId, AttemptNo};
use crate::policy::BackoffRule;

/// A number in `0..=max`, the same for the same seed, action, attempt and purpose.
#[must_use]
pub fn uniform(seed: u64, action: ActionId, attempt: AttemptNo, purpose: u64, max: u64) -> u64 {
    let mut x = seed;
    let [high, low] = halves(action.0);
    for part in [high, low, u64::from(attempt.0), purpose] {
        x = mix(x ^ part);
    }
    // 128-bit multiply instead of a remainder: no bias worth a name, no division.
    halves(u128::from(x) * (u128::from(max) + 1))[0]
}

fn halves(x: u128) -> [u64; 2] {
    let bytes = x.to_be_bytes();
    let half = |range: std::ops::Range<usize>| bytes[range].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    [half(0..8), half(8..16)]
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
const fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The most that the n-th retry waits (n = 1 for the first): `min(cap, base * 2^n)`.
#[must_use]
pub fn ceiling_ms(rule: &BackoffRule, retry: u32) -> u64 {
    let factor = 1u64.checked_shl(retry).unwrap_or(u64::MAX);
    rule.base_ms.saturating_mul(factor).min(rule.cap_ms)
}

/// Full jitter under the ceiling, never less than the floor.
#[must_use]
pub fn wait_ms(rule: &BackoffRule, seed: u64, action: ActionId, attempt: AttemptNo, retry: u32) -> u64 {
    uniform(seed, action, attempt, 1, ceiling_ms(rule, retry)).max(rule.floor_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: BackoffRule = BackoffRule { base_ms: 1_000, cap_ms: 60_000, floor_ms: 1_000 };

    #[test]
    fn ceilings_double_from_two_seconds_to_the_cap() {
        let ceilings: Vec<_> = [1, 2, 3, 6, 7, 64, 4_000_000].map(|n| ceiling_ms(&RULE, n)).into();
        assert_eq!(ceilings, [2_000, 4_000, 8_000, 60_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn waits_use_the_whole_range_and_never_undercut_the_floor() {
        let waits: Vec<_> = (0..2_000u32).map(|n| wait_ms(&RULE, 7, ActionId(9), AttemptNo(n), 3)).collect();
        assert!(waits.iter().all(|w| (1_000..=8_000).contains(w)));
        let mean = waits.iter().sum::<u64>() / 2_000;
        assert!((3_800..4_400).contains(&mean), "{mean}");
        assert!(waits.iter().any(|w| *w > 7_800));
        assert_eq!(wait_ms(&RULE, 7, ActionId(9), AttemptNo(3), 3), waits[3]);
    }

    #[test]
    fn uniform_reaches_both_ends() {
        let seen: std::collections::BTreeSet<_> =
            (0..200).map(|n| uniform(n, ActionId(1), AttemptNo(1), 0, 3)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(uniform(1, ActionId(1), AttemptNo(1), 0, 0), 0);
    }
}
