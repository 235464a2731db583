//! The RateLimit fields of every draft of draft-ietf-httpapi-ratelimit-headers:
//!
//! - to 06: `RateLimit-Limit`, `-Remaining`, `-Reset`, of which Limit or Policy may carry `100;w=60`;
//! - 07: `RateLimit` as a dictionary, `limit=100, remaining=50, reset=5`;
//! - from 08: `RateLimit` and `RateLimit-Policy` as lists of named policies, `"default";r=50;t=30`.
//!
//! A field that breaks its grammar is ignored as a whole and named. `RateLimit-Reset` is a delta by the drafts and epoch
//! seconds at GitLab; its size tells them apart.

use http::HeaderMap;
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};

use super::number;
use super::raw::{self, Malformed};
use super::seen::{SeenWindow, SeenWindows, UNNAMED};
use super::server_time::ServerTime;
use super::values::{self, Reading, When};
use crate::contract::ValueFormat;

const RATE_LIMIT: &str = "ratelimit";
const POLICY: &str = "ratelimit-policy";
const LIMIT: &str = "ratelimit-limit";
const REMAINING: &str = "ratelimit-remaining";
const RESET: &str = "ratelimit-reset";
/// GitLab's HTTP-date beside `RateLimit-Reset`, and the name of what limits.
const RESET_TIME: &str = "ratelimit-resettime";
const NAME: &str = "ratelimit-name";

/// Bytes of one field that are parsed; a longer one is malformed, since a cut one could say less than was meant.
const FIELD_BYTES_MAX: usize = 4_096;

/// One member of `RateLimit-Policy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    /// Named from draft 08 on.
    name: Option<String>,
    quota: u64,
    window_s: Option<u64>,
    /// `requests` where it says nothing.
    unit: Option<String>,
    partition: Option<Vec<u8>>,
}

/// The windows that the fields tell of.
pub(super) fn read(headers: &HeaderMap, time: &ServerTime, malformed: &mut Malformed) -> SeenWindows<'static> {
    let policies = policies(headers, malformed);
    let mut seen =
        combined(headers, time, malformed).or_else(|| old_triple(headers, time, malformed)).unwrap_or_default();
    for policy in policies {
        add_policy(&mut seen, &policy);
    }
    seen
}

fn policies(headers: &HeaderMap, malformed: &mut Malformed) -> Vec<Policy> {
    let Some(field) = field(headers, POLICY) else { return Vec::new() };
    parse_policies(&field).unwrap_or_else(|| {
        malformed.note_field(headers, POLICY);
        Vec::new()
    })
}

/// `RateLimit` of draft 07 or later.
fn combined(headers: &HeaderMap, time: &ServerTime, malformed: &mut Malformed) -> Option<SeenWindows<'static>> {
    let field = field(headers, RATE_LIMIT)?;
    let windows = match field.iter().find(|byte| !matches!(byte, b' ' | b'\t')) {
        Some(b'a'..=b'z' | b'*') => parse_dictionary(&field, time),
        _ => parse_windows(&field, time),
    };
    if windows.is_none() {
        malformed.note_field(headers, RATE_LIMIT);
    }
    windows
}

fn parse_windows(field: &[u8], time: &ServerTime) -> Option<SeenWindows<'static>> {
    let mut seen = SeenWindows::default();
    for member in &Parser::new(bounded(field)?).parse::<List>().ok()? {
        let ListEntry::Item(item) = member else { return None };
        let mut one = SeenWindow::new(item.bare_item.as_string()?.as_str());
        one.remaining(whole(&item.params, "r")??);
        if let Some(after_s) = whole(&item.params, "t")? {
            one.reset(delta(after_s), time, RATE_LIMIT);
        }
        partition(&item.params)?;
        seen.push(one);
    }
    Some(seen)
}

fn parse_dictionary(field: &[u8], time: &ServerTime) -> Option<SeenWindows<'static>> {
    let members = Parser::new(bounded(field)?).parse::<Dictionary>().ok()?;
    let member = |name: &str| match members.get(name) {
        None => Some(None),
        Some(ListEntry::Item(item)) => non_negative(&item.bare_item).map(Some),
        Some(ListEntry::InnerList(_)) => None,
    };
    let mut one = SeenWindow::new(UNNAMED);
    one.limit(member("limit")??);
    one.reset(delta(member("reset")??), time, RATE_LIMIT);
    if let Some(remaining) = member("remaining")? {
        one.remaining(remaining);
    }
    Some(SeenWindows(vec![one]))
}

fn parse_policies(field: &[u8]) -> Option<Vec<Policy>> {
    let members = Parser::new(bounded(field)?).parse::<List>().ok()?;
    let policy = |member: &ListEntry| {
        let ListEntry::Item(item) = member else { return None };
        let window_s = whole(&item.params, "w")?;
        // Drafts to 07 give the quota as the member, later ones its name.
        let (name, quota) = match &item.bare_item {
            BareItem::Integer(_) => (None, non_negative(&item.bare_item)?),
            BareItem::String(name) => (Some(name.as_str().to_owned()), whole(&item.params, "q")??),
            _ => return None,
        };
        let unit = match item.params.get("qu") {
            None => None,
            Some(unit) => Some(unit.as_string()?.as_str().to_owned()),
        };
        // A window of no length is no window.
        let named_without_length = name.is_some() && window_s == Some(0);
        let partition = partition(&item.params)?;
        (!named_without_length).then_some(Policy { name, quota, window_s, unit, partition })
    };
    members.iter().map(policy).collect()
}

/// The three fields of drafts to 06. Nothing of them is required of the others.
fn old_triple(headers: &HeaderMap, time: &ServerTime, malformed: &mut Malformed) -> Option<SeenWindows<'static>> {
    let name = headers.get(NAME).map(|name| raw::shown(name.as_bytes()));
    let mut one = SeenWindow::new(name.as_deref().unwrap_or(UNNAMED));
    let mut seen = SeenWindows::default();
    if let Some(limit) = field(headers, LIMIT) {
        match parse_limit(&limit) {
            Some((limit, policies)) => {
                one.limit(limit);
                policies.iter().for_each(|policy| add_policy(&mut seen, policy));
            }
            None => malformed.note_field(headers, LIMIT),
        }
    }
    if let Some(remaining) = field(headers, REMAINING) {
        match least(&remaining) {
            Some(remaining) => one.remaining(remaining),
            None => malformed.note_field(headers, REMAINING),
        }
    }
    for (name, format) in [(RESET, ValueFormat::Auto), (RESET_TIME, ValueFormat::HttpDate)] {
        if one.window.reset_ms.is_some() {
            break;
        }
        for line in headers.get_all(name).iter().take(raw::FIELD_LINES_MAX) {
            match raw::text(line) {
                Some("") => {}
                Some(text) if let Some(reading) = values::read(format, text, time.ours) => {
                    one.reset(reading, time, name);
                }
                _ => malformed.note(name, line.as_bytes()),
            }
        }
    }
    let told = one.window.limit.or(one.window.remaining).or(one.window.reset_ms).is_some();
    if told {
        if one.window.window_ms.is_none() {
            let of_same_quota = |other: &&SeenWindow<'_>| other.window.limit == one.window.limit;
            one.window.window_ms = seen.0.iter().find(of_same_quota).and_then(|other| other.window.window_ms);
        }
        seen.0.insert(0, one);
    }
    (!seen.0.is_empty()).then_some(seen)
}

/// `100`, or with its policies `100, 100;w=60, 1000;w=3600`.
fn parse_limit(field: &[u8]) -> Option<(u64, Vec<Policy>)> {
    if let Some(limit) = str::from_utf8(field).ok().and_then(|text| number::digits(text.trim())) {
        return Some((limit, Vec::new()));
    }
    let mut policies = parse_policies(field)?;
    let first = policies.first()?.clone();
    if first.window_s.is_none() {
        policies.remove(0);
    }
    Some((first.quota, policies))
}

/// The least of several lines.
fn least(field: &[u8]) -> Option<u64> {
    let text = str::from_utf8(field).ok()?;
    let numbers: Option<Vec<u64>> = text.split(',').map(|piece| number::digits(piece.trim())).collect();
    numbers?.into_iter().min()
}

/// A policy says how long the window of its name is, or of its quota where it has no name.
fn add_policy(seen: &mut SeenWindows<'_>, policy: &Policy) {
    let window_ms = policy.window_s.map(|s| s.saturating_mul(1_000));
    let mut known = false;
    for one in &mut seen.0 {
        let same = match &policy.name {
            Some(name) => one.window.name == *name,
            None => one.window.limit == Some(policy.quota),
        };
        if same {
            one.window.limit.get_or_insert(policy.quota);
            one.window.window_ms = one.window.window_ms.or(window_ms);
            known = true;
        }
    }
    if !known {
        let name = policy.name.clone().unwrap_or_else(|| match policy.window_s {
            Some(window_s) => format!("{};w={window_s}", policy.quota),
            None => policy.quota.to_string(),
        });
        let mut one = SeenWindow::new(&name);
        one.limit(policy.quota);
        one.window.window_ms = window_ms;
        seen.push(one);
    }
}

/// The field's lines joined; `None` where it is absent or empty.
fn field(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    headers.get(name)?;
    let all = raw::joined(headers, name);
    all.iter().any(|byte| !matches!(byte, b' ' | b'\t')).then_some(all)
}

fn bounded(field: &[u8]) -> Option<&[u8]> {
    (field.len() <= FIELD_BYTES_MAX).then_some(field)
}

fn delta(seconds: u64) -> Reading {
    Reading { when: When::AfterMs(seconds.saturating_mul(1_000)), words: "delta seconds" }
}

/// The outer `None` is a parameter of the wrong type or sign, the inner one an absent one.
fn whole(params: &Parameters, name: &str) -> Option<Option<u64>> {
    params.get(name).map_or(Some(None), |value| non_negative(value).map(Some))
}

fn partition(params: &Parameters) -> Option<Option<Vec<u8>>> {
    params.get("pk").map_or(Some(None), |value| value.as_byte_sequence().map(|key| Some(key.to_vec())))
}

fn non_negative(value: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(value.as_integer()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, quota: u64, window_s: u64) -> Policy {
        Policy { name: Some(name.into()), quota, window_s: Some(window_s), unit: None, partition: None }
    }

    #[test]
    fn policies_of_all_drafts() {
        let draft_04 = Policy { name: None, ..policy("", 100, 60) };
        assert_eq!(parse_policies(br#"100;w=60;comment="sliding""#), Some(vec![draft_04]));
        let both = vec![policy("burst", 100, 60), policy("daily", 1_000, 86_400)];
        assert_eq!(parse_policies(br#""burst";q=100;w=60,"daily";q=1000;w=86400"#), Some(both));
        assert_eq!(parse_policies(br#""fixed window";"api";q=500;w=300"#), None);
    }

    #[test]
    fn a_partition_key_with_loose_pad_bits_is_decoded() {
        let expect = Policy {
            unit: Some("content-bytes".into()),
            partition: Some(vec![0xb1, 0xd7, 0xe3, 0x2c, 0x95, 0x0e, 0x50]),
            ..policy("peruser", 65_535, 10)
        };
        let field = br#""peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#;
        assert_eq!(parse_policies(field), Some(vec![expect]));
    }
}
