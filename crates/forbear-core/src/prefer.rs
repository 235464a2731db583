//! `Prefer` (RFC 7240): whether the agent would rather be told "accepted" than wait, and how long it is ready to wait.
//! Unknown preferences are ignored; of a repeated one the first counts, whatever its value. Names are taken in any case.

use http::HeaderMap;

/// Lines of the field, and preferences in all, that are looked at.
const LINES_MAX: usize = 16;
const PREFERENCES_MAX: usize = 64;

/// The preferences that Forbear knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prefer {
    pub respond_async: bool,
    /// Saturated; a value that is no number of seconds says nothing.
    pub wait_seconds: Option<u64>,
}

/// Reads all `Prefer` lines of a request.
#[must_use]
pub fn read(headers: &HeaderMap) -> Prefer {
    let mut prefer = Prefer::default();
    let mut wait_seen = false;
    let lines = headers.get_all("prefer").iter().take(LINES_MAX).filter_map(|line| line.to_str().ok());
    for preference in lines.flat_map(|line| split_unquoted(line, b',')).take(PREFERENCES_MAX) {
        // What follows a semicolon are parameters of this preference, and none is known.
        let preference = split_unquoted(preference, b';').next().unwrap_or_default();
        let (name, value) = match preference.split_once('=') {
            None => (preference, ""),
            Some((name, value)) => (name, value),
        };
        let (name, value) = (name.trim(), value.trim());
        if name.eq_ignore_ascii_case("respond-async") {
            prefer.respond_async = true;
        } else if name.eq_ignore_ascii_case("wait") && !wait_seen {
            wait_seen = true;
            prefer.wait_seconds = seconds(value);
        }
    }
    prefer
}

fn seconds(value: &str) -> Option<u64> {
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(value.parse().unwrap_or(u64::MAX))
}

/// The pieces between separators that stand outside of quoted strings.
fn split_unquoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |c: char| {
        if escaped {
            escaped = false;
        } else if quoted && c == '\\' {
            escaped = true;
        } else if c == '"' {
            quoted = !quoted;
        } else {
            return !quoted && c == char::from(separator);
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn check(lines: &[&str], respond_async: bool, wait_seconds: Option<u64>) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("prefer", line.parse().unwrap());
        }
        assert_eq!(read(&headers), Prefer { respond_async, wait_seconds }, "{lines:?}");
    }

    #[test]
    fn the_vectors_of_the_standard() {
        check(&["respond-async"], true, None);
        check(&["respond-async, wait=10"], true, Some(10));
        check(&["wait=5, wait=50"], false, Some(5));
        check(&["return=minimal; foo=\"x\""], false, None);
        check(&["Respond-Async"], true, None);
    }

    #[test]
    fn whatever_else_is_written() {
        check(&[], false, None);
        check(&[""], false, None);
        check(&["wait=10", "RESPOND-ASYNC"], true, Some(10));
        check(&["respond-async;x=1 , WAIT = \"7\""], true, Some(7));
        check(&["respond-async=\"\""], true, None);
        check(&["foo=\"a, respond-async; \\\", wait=3\""], false, None);
        check(&["foo; respond-async"], false, None);
        check(&["wait=soon, wait=5"], false, None);
        check(&["wait=-1"], false, None);
        check(&["wait"], false, None);
        check(&["wait=99999999999999999999999"], false, Some(u64::MAX));
        check(&["respond-asynchronously"], false, None);
    }

    #[test]
    fn what_is_beyond_the_bound_is_not_read() {
        check(&[&format!("{}respond-async", "x,".repeat(PREFERENCES_MAX))], false, None);
        check(&[&format!("{}respond-async", "x,".repeat(PREFERENCES_MAX - 1))], true, None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(line in proptest::collection::vec(32_u8..=255, 0..80)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let mut headers = HeaderMap::new();
                headers.append("prefer", value);
                let _ = read(&headers);
            }
        }
    }
}
