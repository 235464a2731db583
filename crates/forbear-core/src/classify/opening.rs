//! How an event stream begins: an error before anything else is the answer, and classified as one; one after content is a cut.
//!
//! Spaces count for nothing in a mark: the one behind the colon is optional, and JSON is written with and without.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

/// What a stream begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// It may be either.
    Open,
    Content,
    /// An event that the contract marks as an error, with its data.
    Error(Vec<u8>),
}

/// Reads the beginning of a stream whose errors have these marks; `is_all` where nothing follows.
#[must_use]
pub fn opening(errors: &[String], begun: &[u8], is_all: bool) -> Opening {
    let (mut rest, mut data) = (begun, None::<Vec<u8>>);
    while !rest.is_empty() {
        let length = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, end) = rest.split_at(length);
        rest = end.strip_prefix(b"\r\n").or_else(|| end.get(1..)).unwrap_or_default();
        match &mut data {
            Some(data) if line.is_empty() => return Opening::Error(std::mem::take(data)),
            Some(data) => add_data(data, line),
            // A comment keeps the connection alive, and is no event.
            None if line.is_empty() || line.starts_with(b":") => {}
            None if errors.iter().any(|mark| begins(line, mark)) => add_data(data.insert(Vec::new()), line),
            None if end.is_empty() && errors.iter().any(|mark| may_begin(line, mark)) => return Opening::Open,
            None => return Opening::Content,
        }
    }
    // Its last event may lack the empty line behind it.
    data.filter(|_| is_all).map_or(Opening::Open, Opening::Error)
}

fn add_data(data: &mut Vec<u8>, line: &[u8]) {
    let Some(value) = line.strip_prefix(b"data:") else { return };
    if !data.is_empty() {
        data.push(b'\n');
    }
    data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
}

/// Whether an answer is an event stream, in no coding, so that its lines can be read.
#[must_use]
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/event-stream") && !headers.contains_key(CONTENT_ENCODING)
}

fn spaceless(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().copied().filter(|b| *b != b' ')
}

fn begins(line: &[u8], mark: &str) -> bool {
    let mut line = spaceless(line);
    spaceless(mark.as_bytes()).all(|byte| line.next() == Some(byte))
}

/// With more to come.
fn may_begin(line: &[u8], mark: &str) -> bool {
    let mut mark = spaceless(mark.as_bytes());
    spaceless(line).all(|byte| mark.next() == Some(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(begun: &str, is_all: bool) -> Opening {
        opening(&["event: error".into(), "data: {\"error\"".into()], begun.as_bytes(), is_all)
    }

    #[test]
    fn an_error_is_known_by_its_first_line_and_whole_at_its_empty_line() {
        for (event, rest, data) in [
            ("data: {\"error\": 1}\n\n", "", "{\"error\": 1}"),
            ("data:{ \"error\":1}\r\n\r", "\ndata: more", "{ \"error\":1}"),
            (": keep-alive\n\n\r\nevent: error\rdata: a\rdata: b\r\r", "", "a\nb"),
            ("event: error\ndata\nid: 7\n\n", "data: more\n\n", ""),
        ] {
            let open = (1..event.len()).all(|to| reads(&event[..to], false) == Opening::Open);
            assert!(open, "{event:?}");
            assert_eq!(reads(event, false), Opening::Error(data.into()), "{event:?}");
            assert_eq!(reads(&[event, rest].concat(), true), Opening::Error(data.into()), "{event:?}");
        }
        assert_eq!(reads("data: {\"error\"", true), Opening::Error(b"{\"error\"".into()));
        assert_eq!(reads("data: {\"error\": 1}\n", true), Opening::Error(b"{\"error\": 1}".into()));
    }

    #[test]
    fn content_goes_on_at_the_first_byte_that_is_no_error() {
        for begun in ["data: {\"i", "data: h", "event: m", "event: erx", "x", ": c\n\ni", "data: {\n", "event: err\n"] {
            assert_eq!(reads(begun, false), Opening::Content, "{begun:?}");
            assert_eq!(reads(&begun[..begun.len() - 1], false), Opening::Open, "{begun:?}");
        }
    }
}
