//! The length of a provider's answer: one reading, or no answer (RFC 9110 section 8.6, RFC 9112 section 6.3).
//!
//! It promises that an answer which passes says at most one `Content-Length`, and only where that is true of the bytes that
//! follow or, to a `HEAD` and in a 304, of those that would. Several equal ones become one; where there can be no content
//! and they say nothing that holds, there is none. It refuses an answer with content whose end two parsers could see at
//! different places: lengths that differ, a length beside chunks, a coding other than `chunked`. Whoever wrote that head, or
//! put a field into it, cannot be trusted with the bytes behind it.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, response};

use super::headers;

/// Whether an answer ends with its head, whatever its fields say.
pub(super) fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Leaves one reading of an answer's length in its head. Whether the head said nothing else.
///
/// # Errors
/// With the words for it, when there are two.
pub(super) fn settle(method: &Method, head: &mut response::Parts) -> Result<bool, &'static str> {
    let lengths = lengths(&head.headers);
    let codings = codings(&head.headers);
    let (keeps, is_plain) = if is_bodiless(method, head.status) {
        // A 204 may not say one, and beside chunks it is not the length (RFC 9110 section 8.6).
        let may_say = head.status != StatusCode::NO_CONTENT && codings == Codings::None;
        match lengths {
            Lengths::One(bytes) if may_say => (Some(bytes), true),
            Lengths::One(bytes) => (None, bytes == 0 && codings == Codings::None),
            Lengths::None => (None, codings == Codings::None || *method == Method::HEAD),
            Lengths::Unclear => (None, false),
        }
    } else {
        let keeps = match (lengths, codings) {
            (Lengths::Unclear, _) => return Err("its Content-Length fields do not say one number"),
            (_, Codings::Other) => return Err("its Transfer-Encoding is not one `chunked`"),
            (Lengths::One(_), Codings::Chunked) => return Err("it has both Content-Length and Transfer-Encoding"),
            (Lengths::One(bytes), Codings::None) => Some(bytes),
            (Lengths::None, _) => None,
        };
        (keeps, true)
    };
    say(&mut head.headers, keeps);
    Ok(is_plain)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lengths {
    None,
    One(u64),
    Unclear,
}

fn lengths(fields: &HeaderMap) -> Lengths {
    let mut lengths = Lengths::None;
    for value in fields.get_all(header::CONTENT_LENGTH) {
        for item in value.as_bytes().split(|b| *b == b',') {
            lengths = match (decimal(item.trim_ascii()), lengths) {
                (Some(this), Lengths::None) => Lengths::One(this),
                (Some(this), Lengths::One(other)) if this == other => lengths,
                _ => return Lengths::Unclear,
            };
        }
    }
    lengths
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codings {
    None,
    Chunked,
    Other,
}

fn codings(fields: &HeaderMap) -> Codings {
    let mut values = fields.get_all(header::TRANSFER_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => Codings::None,
        (Some(only), None) if only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Codings::Chunked,
        _ => Codings::Other,
    }
}

/// In place where it can be, so that the other fields keep their order.
fn say(fields: &mut HeaderMap, length: Option<u64>) {
    let said = {
        let mut values = fields.get_all(header::CONTENT_LENGTH).iter();
        (values.next().cloned(), values.next().is_some())
    };
    match (said, length) {
        ((None, _), _) => {}
        ((Some(only), false), Some(bytes)) if decimal(only.as_bytes()) == Some(bytes) => {}
        ((Some(_), _), Some(bytes)) => {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        ((Some(_), _), None) => *fields = headers::without(fields, |name| *name == header::CONTENT_LENGTH),
    }
}

/// A plain decimal number.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    value.iter().try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of the length, and of everything else.
    fn settled(method: &str, status: u16, fields: &[(&str, &str)]) -> Result<(Option<String>, usize), &'static str> {
        let mut response = http::Response::builder().status(status).header("a", "1");
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let (mut head, ()) = response.header("z", "2").body(()).unwrap().into_parts();
        settle(&method.parse().unwrap(), &mut head)?;
        let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
        assert!(lengths.len() < 2);
        let names: Vec<_> = head.headers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!((names.first(), names.last()), (Some(&"a"), Some(&"z")));
        Ok((lengths.first().map(|v| v.to_str().unwrap().to_owned()), head.headers.len()))
    }

    #[test]
    fn a_length_is_said_once_where_it_is_true() {
        const CL: &str = "content-length";
        let chunked = ("transfer-encoding", "chunked");
        for (method, status, fields, left) in [
            ("GET", 200, vec![(CL, "2")], Some("2")),
            ("GET", 200, vec![(CL, "2"), (CL, "2")], Some("2")),
            ("GET", 200, vec![(CL, "2, 2")], Some("2")),
            ("GET", 200, vec![(CL, "02"), (CL, "2")], Some("2")),
            ("GET", 200, vec![], None),
            ("GET", 200, vec![chunked], None),
            ("GET", 204, vec![(CL, "5")], None),
            ("GET", 204, vec![(CL, "0")], None),
            ("GET", 204, vec![(CL, "5"), chunked], None),
            ("GET", 304, vec![(CL, "5"), (CL, "5")], Some("5")),
            ("GET", 304, vec![(CL, "5"), (CL, "6")], None),
            ("HEAD", 200, vec![(CL, "5, 5")], Some("5")),
            ("HEAD", 200, vec![(CL, "+5")], None),
            ("HEAD", 200, vec![(CL, "5"), chunked], None),
            ("HEAD", 204, vec![(CL, "5")], None),
        ] {
            assert_eq!(
                settled(method, status, &fields).map(|s| s.0),
                Ok(left.map(String::from)),
                "{status} {fields:?}"
            );
        }
    }

    #[test]
    fn an_end_that_two_parsers_see_at_different_places_is_none() {
        for fields in [
            vec![("content-length", "2"), ("content-length", "3")],
            vec![("content-length", "2, 3")],
            vec![("content-length", "-2")],
            vec![("content-length", "2 2")],
            vec![("content-length", "")],
            vec![("content-length", "2"), ("transfer-encoding", "chunked")],
            vec![("transfer-encoding", "gzip, chunked")],
            vec![("transfer-encoding", "identity")],
            vec![("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ] {
            assert!(settled("GET", 200, &fields).is_err(), "{fields:?}");
        }
    }
}
