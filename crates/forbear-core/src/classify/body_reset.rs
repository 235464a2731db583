//! Waits that an error's body names: members of known dialects, and as the last resort a duration in its message.
//! Only the value is kept as raw, never the text around it.

use serde_json::Value;

use super::BoundarySource;
use super::body;
use super::duration;
use super::number::Decimal;
use super::raw::{self, Malformed};
use super::retry_after::Asked;
use super::server_time::ServerTime;
use super::values;
use crate::contract::{Contract, RetryAfterUnit, ValueFormat};

/// Members that name a wait: path and format. `None` is the unit of the contract's `Retry-After`.
const MEMBERS: [(&str, Option<ValueFormat>); 11] = [
    ("error.resets_in_seconds", Some(ValueFormat::DeltaSFloat)),
    ("resets_in_seconds", Some(ValueFormat::DeltaSFloat)),
    ("error.resets_at", Some(ValueFormat::Auto)),
    ("resets_at", Some(ValueFormat::Auto)),
    ("error.retry_after_ms", Some(ValueFormat::DeltaMsInt)),
    ("retry_after_ms", Some(ValueFormat::DeltaMsInt)),
    ("error.details.retryDelay", Some(ValueFormat::ProtoDuration)),
    ("error.retry_after", None),
    ("retry_after", None),
    // Telegram.
    ("parameters.retry_after", None),
    ("retryAfter", None),
];
/// Where people's words stand.
const MESSAGES: [&[&str]; 4] = [&["error", "message"], &["message"], &["detail"], &["error"]];

/// The longest wait of the contract's and the known members, else what the message says.
pub(super) fn read(json: &Value, contract: &Contract, time: &ServerTime, malformed: &mut Malformed) -> Option<Asked> {
    let mut longest = None::<Asked>;
    let mut take = |asked: Asked| {
        if longest.as_ref().is_none_or(|most| asked.wait_ms > most.wait_ms) {
            longest = Some(asked);
        }
    };
    for rule in &contract.waits {
        match (&rule.has, &rule.per_second) {
            (Some(has), Some(per_second)) => refill(json, &rule.at, has, per_second).into_iter().for_each(&mut take),
            _ => member(json, &rule.at, rule.format, time, malformed, &mut take),
        }
    }
    for (path, format) in MEMBERS {
        let format = format.unwrap_or(match contract.retry_after_unit {
            RetryAfterUnit::Seconds => ValueFormat::DeltaSFloat,
            RetryAfterUnit::Milliseconds => ValueFormat::DeltaMsInt,
        });
        member(json, path, format, time, malformed, &mut take);
    }
    longest.or_else(|| in_prose(json))
}

fn member(
    json: &Value,
    path: &str,
    format: ValueFormat,
    time: &ServerTime,
    malformed: &mut Malformed,
    take: &mut dyn FnMut(Asked),
) {
    body::any_at(json, path, &mut |value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return false,
        };
        match values::read(format, text.trim(), time.ours) {
            None => malformed.note(&format!("body {path}"), text.as_bytes()),
            Some(reading) => take(Asked {
                wait_ms: time.wait_ms(reading.when),
                source: BoundarySource::Body,
                reading: format!("{path}, {}", time.words(reading)),
                raw: raw::shown(text.as_bytes()),
            }),
        }
        false
    });
}

/// How long a bucket takes until it holds what the call needs, rounded up.
fn refill(json: &Value, needs: &str, has: &str, per_second: &str) -> Option<Asked> {
    let count = |path: &str| {
        let mut found = None;
        body::any_at(json, path, &mut |value| {
            found = value.as_number().and_then(|number| Decimal::parse(&number.to_string()));
            found.is_some()
        });
        found
    };
    // What is missing is rounded up, what comes in down: never early.
    let missing = count(needs)?.times_ceil(1).saturating_sub(count(has)?.whole);
    let comes_in = count(per_second)?.whole;
    let wait_ms = missing.saturating_mul(1_000).div_ceil(Some(comes_in).filter(|rate| *rate > 0)?);
    Some(Asked {
        wait_ms,
        source: BoundarySource::Body,
        reading: format!("{needs}, refilled by {per_second}"),
        raw: format!("{missing} missing, {comes_in} a second"),
    })
}

fn in_prose(json: &Value) -> Option<Asked> {
    let said = MESSAGES.iter().filter_map(|path| Some((*path, duration::prose(body::text_at(json, path)?)?)));
    let (path, (wait_ms, words)) = said.max_by_key(|(_, (ms, _))| *ms)?;
    Some(Asked {
        wait_ms,
        source: BoundarySource::Body,
        reading: format!("{}, duration in prose", path.join(".")),
        raw: raw::shown(words.as_bytes()),
    })
}
