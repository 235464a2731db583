//! How an event stream begins: the first line is the mark of an error, the rest the stream, which comes in pieces.

use forbear_core::classify::{Opening, classify_event, opening};
use forbear_core::contract::{Contract, StreamRule};
use http::HeaderMap;

use super::recorded::facts;
use super::response::holds;

/// Every piece is looked at, so that the time is its square.
const STREAM_BYTES_MAX: usize = 512;

pub(super) fn check(data: &[u8]) {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let Ok(mark) = str::from_utf8(&data[..end]) else { return };
    let stream = data.get(end + 1..).unwrap_or_default();
    let stream = &stream[..stream.len().min(STREAM_BYTES_MAX)];
    let preamble = vec!["event: made".to_owned()];
    let rule = StreamRule { errors: vec![mark.to_owned()], preamble, ..StreamRule::default() };
    let mut decided = Opening::Open;
    for length in 0..=stream.len() {
        let now = opening(&rule, &stream[..length], false);
        assert!(decided == Opening::Open || now == decided, "{decided:?} became {now:?} at {length}");
        decided = now;
    }
    let whole = opening(&rule, stream, true);
    assert!(decided == Opening::Open || whole == decided, "{decided:?} is {whole:?} at the end");
    match whole {
        Opening::Error(data) => {
            assert!(data.len() <= stream.len());
            holds(&classify_event(&Contract::default(), &facts(200, &HeaderMap::new(), Some(&data))));
        }
        // Content is no beginning of an error, and nothing but comments and empty lines is.
        Opening::Content => assert!(stream.iter().any(|b| !matches!(b, b'\r' | b'\n'))),
        Opening::Open => {}
    }
}
