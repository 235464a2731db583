//! Numbers as providers write them: `DIGITS` or `DIGITS.DIGITS`, nothing else. They saturate, and waits round up.

const NANO: u64 = 1_000_000_000;

/// A plain non-negative decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    /// Saturated at `u64::MAX`.
    pub(super) whole: u64,
    /// The fraction in billionths, rounded up; may be a whole billion.
    billionths: u64,
    /// There was no point.
    pub(super) is_integer: bool,
}

impl Decimal {
    /// Signs, exponents, `NaN`, inner spaces and other digits than ASCII ones are refused.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            None => (text, None),
            Some((whole, fraction)) => (whole, Some(fraction)),
        };
        Some(Self {
            whole: digits(whole)?,
            billionths: fraction.map_or(Some(0), billionths)?,
            is_integer: fraction.is_none(),
        })
    }

    /// The value times `unit`, rounded up.
    pub(super) fn times_ceil(self, unit: u64) -> u64 {
        let whole = u128::from(self.whole) * u128::from(unit);
        let part = (u128::from(self.billionths) * u128::from(unit)).div_ceil(u128::from(NANO));
        u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX)
    }
}

/// ASCII digits, at least one, saturated.
pub(super) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0')))
    })
}

fn billionths(fraction: &str) -> Option<u64> {
    digits(fraction)?;
    let kept = fraction.get(..9).unwrap_or(fraction);
    let mut value = digits(kept)?;
    for _ in kept.len()..9 {
        value *= 10;
    }
    let rest_counts = fraction.bytes().skip(9).any(|byte| byte != b'0');
    Some(value + u64::from(rest_counts))
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    fn check(text: &str, unit: u64, expect: Option<u64>) {
        assert_eq!(Decimal::parse(text).map(|number| number.times_ceil(unit)), expect, "{text} times {unit}");
    }

    #[test]
    fn plain_decimals_round_up_and_saturate() {
        check("0", 1_000, Some(0));
        check("007", 1_000, Some(7_000));
        check("2.0", 1_000, Some(2_000));
        check("0.503", 1_000, Some(503));
        check("0.0001", 1_000, Some(1));
        check("0.0000000000000001", 1_000, Some(1));
        check("1.9999999999", 1_000, Some(2_000));
        check("1.5", 3_600_000_000_000, Some(5_400_000_000_000));
        check("99999999999999999999999999", 1_000, Some(u64::MAX));
        check("18446744073709551615.999", 1, Some(u64::MAX));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", "1 20", "1_0", "NaN", "inf", "1.2.3", "\u{661}", "0x10", "1,5"]
        {
            check(text, 1_000, None);
        }
    }
}
