//! The provider's own word on a retry: `x-should-retry` and its kin, `true` or `false` and nothing else.

use http::HeaderMap;

use super::raw::{self, Malformed};

/// What was said, and in which field. Of several that differ, `false` counts.
pub(super) fn read<'n>(
    names: &'n [String],
    headers: &HeaderMap,
    malformed: &mut Malformed,
    contradictions: &mut Vec<String>,
) -> Option<(bool, &'n str)> {
    let mut verdict = None::<(bool, &str)>;
    for name in names {
        // Asked of every answer, few of which have it: a name in text is dearer to look up than to compare.
        let lines = headers.iter().filter(|(field, _)| field.as_str().eq_ignore_ascii_case(name)).map(|(_, line)| line);
        for line in lines.take(raw::FIELD_LINES_MAX) {
            let text = raw::text(line).unwrap_or_default();
            let said = if text.eq_ignore_ascii_case("true") {
                true
            } else if text.eq_ignore_ascii_case("false") {
                false
            } else {
                malformed.note(name, line.as_bytes());
                continue;
            };
            if verdict.is_some_and(|(known, _)| known != said) {
                contradictions.push(format!("{name} says both true and false"));
            }
            if verdict.is_none_or(|(known, _)| known) {
                verdict = Some((said, name));
            }
        }
    }
    verdict
}
