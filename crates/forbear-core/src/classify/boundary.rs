//! Which of an answer's signals decides when the provider wants the next call: `Retry-After`, then the RateLimit fields,
//! then other limit headers, then the body, then what the contract says of this refusal. Of several windows those that are spent decide, the latest of them.
//!
//! A reset of a window with quota left is not the one that refused (FB-020): it gives no boundary, and on a 429 the
//! contradiction is named. So it is where an instant is past, where the provider's clock is far from ours, and where what
//! it asks for ends before a spent window does.

use super::meaning::Meaning;
use super::raw;
use super::retry_after::Asked;
use super::seen::{SeenWindow, SeenWindows};
use super::signals::Signals;
use super::values::When;
use super::{Boundary, BoundarySource, Kind, ResponseFacts};

/// Contradictory windows that are named.
const NAMED_MAX: usize = 4;
/// Two signals that are no further apart say the same.
const TOGETHER_MS: u64 = 2_000;
/// A clock that is off by less is right.
const SKEW_S_MIN: u64 = 30;

pub(super) fn choose(
    facts: &ResponseFacts<'_>,
    meaning: &Meaning<'_>,
    signals: &Signals<'_>,
    contradictions: &mut Vec<String>,
) -> Option<Boundary> {
    note_quota_left(facts, meaning, signals, contradictions);
    if meaning.kind != Kind::Success {
        note_instants(meaning, signals, contradictions);
    }
    let windows = || {
        latest(facts, meaning, signals, &signals.rate_limit, BoundarySource::RateLimit)
            .or_else(|| latest(facts, meaning, signals, &signals.limit_headers, BoundarySource::LimitHeader))
    };
    // On a success it is about the thing that was asked for (a redirect, a job to poll), not about the scope.
    let asked = if meaning.kind == Kind::Success { None } else { signals.asked.clone() };
    let chosen = match (asked.or_else(windows), signals.body.clone()) {
        // The burst limit's reset says nothing about a spent quota: the later one holds.
        (Some(header), Some(body)) if meaning.kind == Kind::Exhausted && body.wait_ms > header.wait_ms => body,
        (Some(header), _) => header,
        (None, Some(body)) => body,
        (None, None) => by_contract(meaning.wait_seconds?),
    };
    Some(Boundary {
        wait_ms: chosen.wait_ms,
        until: facts.received.wall.plus_ms(chosen.wait_ms),
        source: chosen.source,
        reading: chosen.reading,
        raw: chosen.raw,
    })
}

fn latest(
    facts: &ResponseFacts<'_>,
    meaning: &Meaning<'_>,
    signals: &Signals<'_>,
    seen: &SeenWindows<'_>,
    source: BoundarySource,
) -> Option<Asked> {
    let latest_of = |decides: &dyn Fn(&SeenWindow<'_>) -> bool| {
        let windows = seen.0.iter().filter(|one| decides(one));
        windows.filter_map(|one| Some((one.window.reset_ms?, one.reset?, one))).max_by_key(|(ms, ..)| *ms)
    };
    let limited = matches!(meaning.kind, Kind::Throttled | Kind::Exhausted);
    let chosen = latest_of(&|one| refused(meaning, one));
    let chosen = chosen.or_else(|| if limited { latest_of(&|one| one.window.remaining.is_none()) } else { None });
    let (wait_ms, reset, one) = chosen?;
    let words = signals.time?.words(reset.reading);
    Some(Asked {
        wait_ms,
        source,
        reading: format!("reset of {}, {words}", raw::shown(one.window.name.as_bytes())),
        raw: raw::shown_lines(facts.headers, reset.field),
    })
}

/// Nothing is left of it, or the body says that it was this one.
fn refused(meaning: &Meaning<'_>, one: &SeenWindow<'_>) -> bool {
    one.window.remaining == Some(0) || meaning.violated.contains(&one.window.name.as_str())
}

fn note_quota_left(
    facts: &ResponseFacts<'_>,
    meaning: &Meaning<'_>,
    signals: &Signals<'_>,
    contradictions: &mut Vec<String>,
) {
    if facts.status != 429 || meaning.kind != Kind::Throttled {
        return;
    }
    let may_be = |one: &SeenWindow<'_>| one.window.remaining.is_none() && one.window.reset_ms.is_some();
    let explained = signals.windows().any(|one| refused(meaning, one) || may_be(one));
    let left = signals.windows().find_map(|one| Some((one, one.window.remaining?)));
    if let (false, Some((one, remaining))) = (explained, left) {
        let name = raw::shown(one.window.name.as_bytes());
        contradictions.push(format!("429 with quota left: {name} has {remaining}"));
    }
}

fn note_instants(meaning: &Meaning<'_>, signals: &Signals<'_>, contradictions: &mut Vec<String>) {
    let Some(time) = signals.time else { return };
    let named = |one: &SeenWindow<'_>| one.reset.is_some_and(|reset| matches!(reset.reading.when, When::AtMs(_)));
    let decides = |one: &&SeenWindow<'_>| refused(meaning, one);
    for one in signals.windows().filter(decides).take(NAMED_MAX) {
        let name = || raw::shown(one.window.name.as_bytes());
        if named(one) && one.window.reset_ms == Some(0) {
            contradictions.push(format!("nothing is left of {}, and its reset is past", name()));
        }
        if let (Some(asked), Some(reset_ms)) = (&signals.asked, one.window.reset_ms)
            && reset_ms >= asked.wait_ms.saturating_add(TOGETHER_MS)
        {
            let asked_ms = asked.wait_ms;
            contradictions.push(format!("a wait of {asked_ms} ms is asked for, and {} opens in {reset_ms} ms", name()));
        }
    }
    let off_s = time.ahead_ms() / 1_000;
    if signals.windows().any(named) && off_s.unsigned_abs() >= SKEW_S_MIN {
        let side = if off_s > 0 { "ahead of" } else { "behind" };
        contradictions.push(format!("the provider's clock is {} s {side} ours", off_s.unsigned_abs()));
    }
}

fn by_contract(wait_s: u64) -> Asked {
    Asked {
        wait_ms: wait_s.saturating_mul(1_000),
        source: BoundarySource::Contract,
        reading: "wait_seconds of the contract's rule".to_owned(),
        raw: wait_s.to_string(),
    }
}
