//! The value of a limit header in each format: the first byte says which, the rest is the value. Durations are compared with a
//! second reader that counts in floats, and none may be shorter.

use std::sync::OnceLock;

use forbear_core::classify::classify;
use forbear_core::contract::{Contract, LimitHeader, LimitPart, ValueFormat};
use forbear_core::policy::Rank;
use http::{HeaderMap, HeaderValue};

use super::recorded::facts;
use super::response::holds;

const FORMATS: [ValueFormat; 13] = [
    ValueFormat::Auto,
    ValueFormat::DeltaSInt,
    ValueFormat::DeltaSFloat,
    ValueFormat::DeltaMsInt,
    ValueFormat::EpochS,
    ValueFormat::EpochSFloat,
    ValueFormat::EpochMs,
    ValueFormat::Rfc3339,
    ValueFormat::GoDuration,
    ValueFormat::ProtoDuration,
    ValueFormat::HttpDate,
    ValueFormat::Fraction,
    ValueFormat::Prose,
];
const UNITS_MS: [(&str, f64); 8] =
    [("ns", 1e-6), ("us", 1e-3), ("µs", 1e-3), ("μs", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)];

pub(super) fn check(data: &[u8]) {
    static CONTRACTS: OnceLock<Vec<Contract>> = OnceLock::new();
    let Some((first, value)) = data.split_first() else { return };
    let which = usize::from(first.wrapping_sub(b'a')) % FORMATS.len();
    let contract = &CONTRACTS.get_or_init(|| FORMATS.into_iter().map(contract).collect())[which];
    let Ok(line) = HeaderValue::from_bytes(value.trim_ascii()) else { return };
    let mut headers = HeaderMap::new();
    headers.append("left", HeaderValue::from_static("0"));
    headers.append("opens", line.clone());
    let read = classify(contract, Rank::Read, &facts(429, &headers, None));
    holds(&read);
    let got = read.windows.iter().find_map(|w| w.reset_ms);
    let Ok(text) = line.to_str() else { return };
    let (text, format) = (text.trim(), FORMATS[which]);
    // Lines that were joined on their way: the largest of them counts.
    if text.contains(',') {
        return;
    }
    match format {
        ValueFormat::GoDuration => compare(text, got, go_ms(text)),
        ValueFormat::ProtoDuration => compare(text, got, text.strip_suffix('s').and_then(float).map(|s| s * 1e3)),
        ValueFormat::DeltaSFloat => compare(text, got, float(text).map(|s| s * 1e3)),
        ValueFormat::DeltaMsInt => compare(text, got, float(text)),
        _ => {}
    }
}

fn contract(format: ValueFormat) -> Contract {
    let header = |name: &str, reads, format| LimitHeader { name: name.into(), reads, window: "w".into(), format };
    let opens = header("opens", LimitPart::Reset, format);
    let left = header("left", LimitPart::Remaining, ValueFormat::Auto);
    Contract { limit_headers: vec![left, opens], ..Contract::default() }
}

/// What was read is what the second reader reads, up to the rounding of floats, and never less.
fn compare(text: &str, got: Option<u64>, expect: Option<f64>) {
    let Some(got) = got else { return };
    let expect = expect.unwrap_or_else(|| panic!("{text:?} is no duration, and was read as {got} ms")).max(0.0);
    #[allow(clippy::cast_precision_loss, reason = "compared up to the rounding of floats")]
    let got_ms = got as f64;
    let rounding = expect * 1e-9 + 1e-6;
    // The last value that fits in nanoseconds; beyond it the longest stands for all.
    let longest = expect >= 1.8e13;
    assert!(
        longest || (got_ms >= expect - rounding && got_ms <= expect + rounding + 1.0),
        "{text:?}: {got} ms, {expect}"
    );
}

fn float(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { text.parse().ok() } else { None }
}

fn go_ms(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) if text.starts_with('-') => (-1.0, rest),
        Some(rest) => (1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = float(&rest[..end])?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |at| at + end);
        total += number * UNITS_MS.iter().find(|(unit, _)| *unit == &rest[end..unit_end])?.1;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(sign * total)
}
