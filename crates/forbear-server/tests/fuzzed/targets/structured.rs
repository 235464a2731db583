//! `RateLimit` on the first line and `RateLimit-Policy` on the second, as structured fields: what a strict parser reads is what
//! the windows say.

use forbear_core::classify::classify;
use forbear_core::contract::Contract;
use forbear_core::policy::Rank;
use http::{HeaderMap, HeaderValue};
use sfv::{Item, List, ListEntry, Parser};

use super::recorded::facts;
use super::response::holds;

pub(super) fn check(data: &[u8]) {
    let mut headers = HeaderMap::new();
    let lines = data.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    for (name, line) in ["ratelimit", "ratelimit-policy"].into_iter().zip(lines) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    let read = classify(&Contract::default(), Rank::Read, &facts(429, &headers, None));
    holds(&read);
    let Some(one) = headers.get("ratelimit").and_then(|field| only_item(field.as_bytes())) else { return };
    let number = |name: &str| one.params.get(name).map(|v| v.as_integer().map(i64::from));
    let (Some(name), Some(Some(remaining))) = (one.bare_item.as_string(), number("r")) else { return };
    let (after_s, has_partition) = (number("t"), one.params.contains_key("pk"));
    let valid = remaining >= 0 && after_s.is_none_or(|t| t.is_some_and(|t| t >= 0)) && !has_partition;
    let seen = read.windows.iter().find(|w| w.remaining.is_some());
    if !valid {
        return;
    }
    let seen = seen.unwrap_or_else(|| panic!("{one:?} is not there: {read:?}"));
    assert_eq!(seen.remaining, Some(remaining.unsigned_abs()));
    assert_eq!(seen.reset_ms, after_s.flatten().map(|s| s.unsigned_abs() * 1_000), "{name:?}");
}

fn only_item(field: &[u8]) -> Option<Item> {
    let mut members = Parser::new(field).parse::<List>().ok()?;
    match (members.pop(), members.is_empty()) {
        (Some(ListEntry::Item(item)), true) => Some(item),
        _ => None,
    }
}
