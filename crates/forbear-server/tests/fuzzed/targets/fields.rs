//! Small request fields: `Prefer`, `traceparent`, and an idempotency key.

use forbear_core::idempotency_key::{self, KEY_BYTES_MAX, KeyReading};
use forbear_core::{prefer, traceparent};
use http::{HeaderMap, HeaderName, HeaderValue};

fn lines(name: &'static str, data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|b| *b == b'\n').take(32) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    headers
}

/// Lines are a list that is written in pieces: joined, they say the same.
pub(super) fn prefer(data: &[u8]) {
    let headers = lines("prefer", data);
    let read = prefer::read(&headers);
    let all: Vec<&str> = headers.get_all("prefer").iter().filter_map(|line| line.to_str().ok()).collect();
    // An open quote takes in what follows it; a line that is no text is left out of some counts.
    if all.len() <= 16 && all.len() == headers.len() && !data.contains(&b'"') {
        let mut joined = HeaderMap::new();
        joined.append("prefer", all.join(",").parse().unwrap());
        assert_eq!(prefer::read(&joined), read, "{all:?}");
    }
    if read.respond_async {
        assert!(all.iter().any(|line| line.to_ascii_lowercase().contains("respond-async")), "{all:?}");
    }
    if let Some(seconds) = read.wait_seconds.filter(|seconds| *seconds < u64::MAX) {
        assert!(all.iter().any(|line| line.contains(&seconds.to_string())), "{all:?}");
    }
}

/// What is taken for one is one, and goes out as it came.
pub(super) fn traceparent(data: &[u8]) {
    let Some(parent) = traceparent::parse(data) else { return };
    // What a later version adds behind may be anything.
    let (known, more) = data.trim_ascii().split_at(55);
    let text = str::from_utf8(known).unwrap();
    assert!(text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b'-')), "{text}");
    assert_eq!(parent.to_header()[2..], text[2..]);
    assert!(parent.version > 0 || more.is_empty(), "{text}");
    let again = traceparent::parse(parent.to_header().as_bytes()).unwrap();
    assert_eq!((again.trace_id, again.parent_id, again.flags), (parent.trace_id, parent.parent_id, parent.flags));
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(data) {
        headers.append("traceparent", value);
        assert_eq!(traceparent::read(&headers), Some(parent));
    }
}

/// A key is compared by its value, so a bare one is what it says and a quoted one the same without quotes.
pub(super) fn idempotency_key(data: &[u8]) {
    const NAME: HeaderName = HeaderName::from_static("idempotency-key");
    let headers = lines("idempotency-key", data);
    let read = idempotency_key::read(&headers, &NAME);
    let count = headers.get_all(NAME).iter().count();
    match &read {
        KeyReading::Absent => assert_eq!(count, 0),
        KeyReading::Malformed(_) => assert!(count > 0),
        KeyReading::Key(key) => {
            assert_eq!(count, 1);
            assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| matches!(b, b' '..=b'~')), "{key}");
            let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            let mut again = HeaderMap::new();
            again.append(NAME, quoted.parse().unwrap());
            assert_eq!(idempotency_key::read(&again, &NAME), read, "{quoted}");
        }
    }
    if let Some(key) = idempotency_key::in_json(data, "key", None) {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
        assert!(idempotency_key::in_json(data, "key", Some("key")).is_none());
    }
}
