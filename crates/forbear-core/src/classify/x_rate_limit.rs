//! The `x-ratelimit-*` and `x-rate-limit-*` families, which no standard describes, and the limit headers of the
//! contract. The word `limit`, `remaining` or `reset` stands first or last after the prefix; what else the name holds is
//! the window: `x-ratelimit-reset-tokens`, `X-RateLimit-Complexity-Reset`. The contract's word on a header wins.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};

use super::number::{self, Decimal};
use super::raw::{self, Malformed};
use super::seen::{SeenWindow, SeenWindows, UNNAMED};
use super::server_time::ServerTime;
use super::values::{self, Quota, Reading};
use crate::contract::{LimitHeader, LimitPart, ValueFormat};

const PREFIXES: [&str; 2] = ["x-ratelimit", "x-rate-limit"];
/// GitHub's name of what limits.
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
/// Numbers in one comma-joined value.
const PIECES_MAX: usize = 16;

/// Whether a field belongs to the generic family.
pub(super) fn is_generic(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the contract explains this field.
pub(super) fn is_explained(name: &str, contract: &[LimitHeader]) -> bool {
    contract.iter().any(|header| starred(name, &header.name).is_some())
}

/// The windows that the fields tell of.
pub(super) fn read<'a>(
    headers: &'a HeaderMap,
    contract: &[LimitHeader],
    time: &ServerTime,
    malformed: &mut Malformed,
) -> SeenWindows<'a> {
    let mut seen = SeenWindows::default();
    let unnamed = headers.get(RESOURCE).and_then(raw::text).filter(|name| !name.is_empty()).unwrap_or(UNNAMED);
    for (name, value) in headers {
        let Some(field) = Field::of(name.as_str(), contract) else { continue };
        let window = if field.window.is_empty() { unnamed } else { &*field.window };
        let Some(text) = raw::text(value) else {
            malformed.note(name.as_str(), value.as_bytes());
            continue;
        };
        let read = seen.named(window).map(|window| add(window, &field, name.as_str(), text, time));
        if !text.is_empty() && read != Some(Some(())) {
            malformed.note(name.as_str(), value.as_bytes());
        }
    }
    seen.0.retain(|one| one.window.limit.or(one.window.remaining).or(one.window.reset_ms).is_some());
    seen
}

/// What one header speaks of.
#[derive(Debug, PartialEq, Eq)]
struct Field<'a> {
    part: LimitPart,
    /// Empty where the name holds none.
    window: Cow<'a, str>,
    format: ValueFormat,
}

impl<'a> Field<'a> {
    fn of(name: &'a str, contract: &'a [LimitHeader]) -> Option<Self> {
        contract.iter().find_map(|header| Self::by_contract(name, header)).or_else(|| Self::generic(name))
    }

    fn by_contract(name: &'a str, header: &'a LimitHeader) -> Option<Self> {
        let any = starred(name, &header.name)?;
        let window = match header.window.as_str() {
            "*" => Cow::Borrowed(any),
            window if window.contains('*') => Cow::Owned(window.replace('*', any)),
            window => Cow::Borrowed(window),
        };
        Some(Self { part: header.reads, window, format: header.format })
    }

    fn generic(name: &'a str) -> Option<Self> {
        let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
        let field = |part, window| Some(Self { part, window: Cow::Borrowed(window), format: ValueFormat::Auto });
        let Some(rest) = rest.strip_prefix('-') else {
            // `X-Rate-Limit: 700`; longer words such as `x-ratelimitbysize` are the contract's to explain.
            return if rest.is_empty() { field(LimitPart::Limit, "") } else { None };
        };
        // Discord's delta beside its epoch.
        if rest == "reset-after" {
            return Some(Self { part: LimitPart::Reset, window: Cow::Borrowed(""), format: ValueFormat::DeltaSFloat });
        }
        let first = rest.split_once('-').unwrap_or((rest, ""));
        if let Some(part) = part_of(first.0) {
            return field(part, first.1);
        }
        let (window, last) = rest.rsplit_once('-')?;
        field(part_of(last)?, window)
    }
}

/// What the one `*` of a pattern stands for in `name`, which takes the place of a `*` in the window's name; nothing where
/// the pattern has none. `None` where the name is another.
fn starred<'a>(name: &'a str, pattern: &str) -> Option<&'a str> {
    // Asked of every field of every answer: most differ at once.
    let (first, expect) = (name.bytes().next()?, pattern.bytes().next()?);
    if !(first.eq_ignore_ascii_case(&expect) || expect == b'*') {
        return None;
    }
    if name.eq_ignore_ascii_case(pattern) {
        return Some("");
    }
    let (before, after) = pattern.split_once('*')?;
    let any_len = name.len().checked_sub(before.len() + after.len())?;
    let (start, rest) = name.split_at_checked(before.len())?;
    let (any, end) = rest.split_at_checked(any_len)?;
    let fits = start.eq_ignore_ascii_case(before) && end.eq_ignore_ascii_case(after);
    fits.then_some(any.trim_matches('-'))
}

fn part_of(word: &str) -> Option<LimitPart> {
    match word {
        "limit" => Some(LimitPart::Limit),
        "remaining" => Some(LimitPart::Remaining),
        "reset" => Some(LimitPart::Reset),
        _ => None,
    }
}

/// `None` where the value cannot be read.
fn add<'a>(window: &mut SeenWindow<'a>, field: &Field<'_>, name: &'a str, text: &str, time: &ServerTime) -> Option<()> {
    let format = field.format;
    if format == ValueFormat::Fraction {
        let quota = Quota::parse(text)?;
        quota.limit.into_iter().for_each(|limit| window.limit(limit));
        quota.remaining.into_iter().for_each(|remaining| window.remaining(remaining));
        if let Some(reading) = values::read(format, text, time.ours) {
            window.reset(reading, time, name);
        }
        return Some(());
    }
    match field.part {
        LimitPart::Limit => window.limit(first_count(text)?),
        LimitPart::Remaining => window.remaining(least_count(text)?),
        LimitPart::Reset => window.reset(latest(format, text, time)?, time, name),
    }
    Some(())
}

/// `60`, or the first of `100, 100;w=60`.
fn first_count(text: &str) -> Option<u64> {
    let first = text.split([',', ';']).next()?;
    count(first)
}

/// The least of `5, 100`.
fn least_count(text: &str) -> Option<u64> {
    text.split(',').take(PIECES_MAX).try_fold(u64::MAX, |least, piece| Some(least.min(count(piece)?)))
}

/// Whole calls; Reddit and others say `64.57`, of which 64 can be made.
fn count(text: &str) -> Option<u64> {
    let text = text.trim();
    number::digits(text).or_else(|| Decimal::parse(text).map(|number| number.whole))
}

/// A value, or the latest of several numbers joined by commas (a date may hold one too).
fn latest(format: ValueFormat, text: &str, time: &ServerTime) -> Option<Reading> {
    values::read(format, text, time.ours).or_else(|| {
        let mut latest = None::<Reading>;
        for piece in text.split(',').take(PIECES_MAX) {
            let reading = values::read(format, piece.trim(), time.ours)?;
            if latest.is_none_or(|most| time.wait_ms(reading.when) > time.wait_ms(most.when)) {
                latest = Some(reading);
            }
        }
        latest
    })
}
