//! How an event stream begins: an error before anything else is the answer, and classified as one; one after content is a cut.
//!
//! Spaces count for nothing in a mark: the one behind the colon is optional, and JSON is written with and without.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::contract::StreamRule;

/// What a stream begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// It may be either.
    Open,
    Content,
    /// An event that the contract marks as an error, with its data.
    Error(Vec<u8>),
}

/// Where in a stream's beginning a line stands.
enum At {
    Between,
    /// In an event that is no content yet.
    Preamble,
    /// In an error, with its data so far.
    Error(Vec<u8>),
}

/// Reads the beginning of a stream; `is_all` where nothing follows.
#[must_use]
pub fn opening(rule: &StreamRule, begun: &[u8], is_all: bool) -> Opening {
    let is_one = |line: &[u8], marks: &[String]| marks.iter().any(|mark| begins(line, mark));
    let may_be = |line: &[u8]| rule.errors.iter().chain(&rule.preamble).any(|mark| may_begin(line, mark));
    let (mut rest, mut at) = (begun, At::Between);
    while !rest.is_empty() {
        let length = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
        let (line, end) = rest.split_at(length);
        rest = end.strip_prefix(b"\r\n").or_else(|| end.get(1..)).unwrap_or_default();
        at = match at {
            At::Error(data) if line.is_empty() => return Opening::Error(data),
            At::Error(data) => At::Error(with_data(data, line)),
            // A comment keeps the connection alive, and is no event.
            At::Between | At::Preamble if line.is_empty() => At::Between,
            At::Preamble => At::Preamble,
            At::Between if line.starts_with(b":") => At::Between,
            At::Between if is_one(line, &rule.errors) => At::Error(with_data(Vec::new(), line)),
            At::Between if is_one(line, &rule.preamble) => At::Preamble,
            At::Between if end.is_empty() && may_be(line) => return Opening::Open,
            At::Between => return Opening::Content,
        };
    }
    match at {
        // Its last event may lack the empty line behind it.
        At::Error(data) if is_all => Opening::Error(data),
        At::Between | At::Preamble | At::Error(_) => Opening::Open,
    }
}

fn with_data(mut data: Vec<u8>, line: &[u8]) -> Vec<u8> {
    let Some(value) = line.strip_prefix(b"data:") else { return data };
    if !data.is_empty() {
        data.push(b'\n');
    }
    data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
    data
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
        let rule = StreamRule {
            errors: vec!["event: error".into(), "data: {\"error\"".into()],
            preamble: vec!["event: made".into()],
            ..StreamRule::default()
        };
        opening(&rule, begun.as_bytes(), is_all)
    }

    #[test]
    fn an_error_is_known_by_its_first_line_and_whole_at_its_empty_line() {
        for (event, rest, data) in [
            ("data: {\"error\": 1}\n\n", "", "{\"error\": 1}"),
            ("data:{ \"error\":1}\r\n\r", "\ndata: more", "{ \"error\":1}"),
            (": keep-alive\n\n\r\nevent: error\rdata: a\rdata: b\r\r", "", "a\nb"),
            ("event: error\ndata\nid: 7\n\n", "data: more\n\n", ""),
            ("event: made\ndata: {\"error\": 0}\n\nevent:made\n\ndata: {\"error\": 1}\n\n", "", "{\"error\": 1}"),
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
        for begun in [
            "data: {\"i",
            "data: h",
            "event: n",
            "event: mn",
            "event: made\n\ndata: t",
            "event: erx",
            "x",
            ": c\n\ni",
            "data: {\n",
            "event: err\n",
        ] {
            assert_eq!(reads(begun, false), Opening::Content, "{begun:?}");
            assert_eq!(reads(&begun[..begun.len() - 1], false), Opening::Open, "{begun:?}");
        }
    }
}
