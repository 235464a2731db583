//! The provider's own word on a retry: `x-should-retry` and its kin, `true` or `false` and nothing else.

use http::HeaderMap;

use super::raw::{self, Malformed};

/// Of several that differ, `false` counts.
pub(super) fn read(
    names: &[String],
    headers: &HeaderMap,
    malformed: &mut Malformed,
    contradictions: &mut Vec<String>,
) -> Option<bool> {
    let mut verdict = None;
    for name in names {
        for line in headers.get_all(name.as_str()).iter().take(raw::FIELD_LINES_MAX) {
            let text = raw::text(line).unwrap_or_default();
            let said = if text.eq_ignore_ascii_case("true") {
                true
            } else if text.eq_ignore_ascii_case("false") {
                false
            } else {
                malformed.note(name, line.as_bytes());
                continue;
            };
            if verdict.is_some_and(|known| known != said) {
                contradictions.push(format!("{name} says both true and false"));
            }
            verdict = Some(said && verdict.unwrap_or(true));
        }
    }
    verdict
}
