//! Waits that an error's body names: members of known dialects, and as the last resort a duration in its message.
//! Only the value is kept as raw, never the text around it.

use serde_json::Value;

use super::BoundarySource;
use super::body;
use super::duration;
use super::raw::{self, Malformed};
use super::retry_after::Asked;
use super::server_time::ServerTime;
use super::values;
use crate::contract::{RetryAfterUnit, ValueFormat};

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

/// The longest wait of the known members, else what the message says.
pub(super) fn read(json: &Value, unit: RetryAfterUnit, time: &ServerTime, malformed: &mut Malformed) -> Option<Asked> {
    let mut longest = None::<Asked>;
    for (path, format) in MEMBERS {
        let format = format.unwrap_or(match unit {
            RetryAfterUnit::Seconds => ValueFormat::DeltaSFloat,
            RetryAfterUnit::Milliseconds => ValueFormat::DeltaMsInt,
        });
        body::any_at(json, path, &mut |value| {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return false,
            };
            match values::read(format, text.trim(), time.ours) {
                None => malformed.note(&format!("body {path}"), text.as_bytes()),
                Some(reading) => {
                    let wait_ms = time.wait_ms(reading.when);
                    if longest.as_ref().is_none_or(|most| wait_ms > most.wait_ms) {
                        longest = Some(Asked {
                            wait_ms,
                            source: BoundarySource::Body,
                            reading: format!("{path}, {}", time.words(reading)),
                            raw: raw::shown(text.as_bytes()),
                        });
                    }
                }
            }
            false
        });
    }
    longest.or_else(|| in_prose(json))
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
