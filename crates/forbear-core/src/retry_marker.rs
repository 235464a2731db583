//! What a request says about being a repeat: the layer above has its own retries, and some mark them. A marker is a
//! claim, good for joining a repeat to its action; nothing becomes safe by it. A malformed marker is none.

use http::{HeaderMap, HeaderName};

/// Bytes of an invocation's id.
const INVOCATION_BYTES_MAX: usize = 64;
/// Members of one field that are looked at.
const MEMBERS_MAX: usize = 64;

const STAINLESS_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
const AWS_REQUEST: HeaderName = HeaderName::from_static("amz-sdk-request");
const AWS_INVOCATION: HeaderName = HeaderName::from_static("amz-sdk-invocation-id");
const GOOGLE_CLIENT: HeaderName = HeaderName::from_static("x-goog-api-client");

/// Whose marker it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// `x-stainless-retry-count` (clients of OpenAI, Anthropic and others).
    Stainless,
    /// `amz-sdk-request`.
    Aws,
    /// `gccl-attempt-count` in `x-goog-api-client`.
    GoogleCloud,
}

/// One send of a call that the client numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryMarker {
    pub marker: Marker,
    /// 1 is the first send, whatever the client counts from.
    pub send: u32,
    /// Sends that the client would make in all, where it says so.
    pub sends_max: Option<u32>,
    /// Equal over all sends of one call, where the client gives it: an exact correlation.
    pub invocation: Option<String>,
}

impl RetryMarker {
    #[must_use]
    pub const fn is_repeat(&self) -> bool {
        self.send > 1
    }
}

/// The request's marker, if it bears one. No marker says nothing: most clients have none.
#[must_use]
pub fn read(headers: &HeaderMap) -> Option<RetryMarker> {
    stainless(headers).or_else(|| aws(headers)).or_else(|| google_cloud(headers))
}

fn stainless(headers: &HeaderMap) -> Option<RetryMarker> {
    // Counts repeats: 0 on the first send.
    let send = count(only(headers, &STAINLESS_COUNT)?)?.checked_add(1)?;
    Some(RetryMarker { marker: Marker::Stainless, send, sends_max: None, invocation: None })
}

/// `ttl=20261130T120000Z; attempt=2; max=3`, in any order.
fn aws(headers: &HeaderMap) -> Option<RetryMarker> {
    let (mut send, mut sends_max) = (None, None);
    for member in only(headers, &AWS_REQUEST)?.split(';').take(MEMBERS_MAX) {
        let (name, value) = member.split_once('=')?;
        match name.trim() {
            "attempt" => send = Some(count(value.trim()).filter(|send| *send > 0)?),
            "max" => sends_max = count(value.trim()),
            _ => {}
        }
    }
    let invocation = only(headers, &AWS_INVOCATION).and_then(invocation);
    Some(RetryMarker { marker: Marker::Aws, send: send?, sends_max, invocation })
}

/// `gl-python/3.12 gccl/2.18 gccl-invocation-id/6f1c gccl-attempt-count/3`.
fn google_cloud(headers: &HeaderMap) -> Option<RetryMarker> {
    let (mut send, mut id) = (None, None);
    for member in only(headers, &GOOGLE_CLIENT)?.split_ascii_whitespace().take(MEMBERS_MAX) {
        match member.split_once('/') {
            Some(("gccl-attempt-count", value)) => send = Some(count(value).filter(|send| *send > 0)?),
            Some(("gccl-invocation-id", value)) => id = invocation(value),
            _ => {}
        }
    }
    Some(RetryMarker { marker: Marker::GoogleCloud, send: send?, sends_max: None, invocation: id })
}

/// The value of a field that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    if lines.next().is_some() { None } else { line.to_str().ok().map(str::trim) }
}

/// Digits alone: `parse` would take a sign.
fn count(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn invocation(text: &str) -> Option<String> {
    let fits =
        !text.is_empty() && text.len() <= INVOCATION_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn marker(fields: &[(&str, &str)]) -> Option<RetryMarker> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        read(&headers)
    }

    fn check(fields: &[(&str, &str)], expect: Option<(Marker, u32, Option<u32>, Option<&str>)>) {
        let read = marker(fields);
        let read = read.as_ref().map(|read| (read.marker, read.send, read.sends_max, read.invocation.as_deref()));
        assert_eq!(read, expect, "{fields:?}");
    }

    #[test]
    fn the_vectors_of_the_reference() {
        let stainless = |send| Some((Marker::Stainless, send, None, None));
        check(&[("x-stainless-retry-count", "0")], stainless(1));
        check(&[("x-stainless-retry-count", "2")], stainless(3));
        check(&[], None);
        check(&[("amz-sdk-request", "attempt=1; max=3")], Some((Marker::Aws, 1, Some(3), None)));
        check(&[("amz-sdk-request", "ttl=20261130T120000Z; attempt=2; max=3")], Some((Marker::Aws, 2, Some(3), None)));
        check(
            &[("x-goog-api-client", "gl-python/3.12 gccl/2.18 gccl-invocation-id/6f1c gccl-attempt-count/3")],
            Some((Marker::GoogleCloud, 3, None, Some("6f1c"))),
        );
        check(&[("x-stainless-retry-count", "-1")], None);
        check(&[("x-stainless-retry-count", "abc")], None);
    }

    #[test]
    fn only_a_later_send_is_a_repeat() {
        assert!(!marker(&[("x-stainless-retry-count", "0")]).unwrap().is_repeat());
        assert!(marker(&[("x-stainless-retry-count", "1")]).unwrap().is_repeat());
        assert!(!marker(&[("amz-sdk-request", "attempt=1")]).unwrap().is_repeat());
    }

    #[test]
    fn aws_calls_have_an_exact_correlation() {
        check(
            &[("amz-sdk-invocation-id", "5a-7"), ("amz-sdk-request", "max=3;attempt=2")],
            Some((Marker::Aws, 2, Some(3), Some("5a-7"))),
        );
        check(&[("amz-sdk-invocation-id", "5a-7")], None);
    }

    #[test]
    fn malformed_markers_are_none() {
        for (name, value) in [
            ("x-stainless-retry-count", "+1"),
            ("x-stainless-retry-count", ""),
            ("x-stainless-retry-count", "4294967295"),
            ("x-stainless-retry-count", "99999999999999999999"),
            ("x-stainless-retry-count", "1.0"),
            ("amz-sdk-request", "attempt=0; max=3"),
            ("amz-sdk-request", "attempt=x; max=3"),
            ("amz-sdk-request", "max=3"),
            ("amz-sdk-request", "attempt"),
            ("x-goog-api-client", "gccl-attempt-count/0"),
            ("x-goog-api-client", "gl-python/3.12"),
        ] {
            check(&[(name, value)], None);
        }
        check(&[("x-stainless-retry-count", "1"), ("x-stainless-retry-count", "2")], None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0_usize..4, value in proptest::collection::vec(32_u8..=255, 0..80)) {
            let names = ["x-stainless-retry-count", "amz-sdk-request", "amz-sdk-invocation-id", "x-goog-api-client"];
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                let mut headers = HeaderMap::new();
                headers.append(names[at], value);
                let _ = read(&headers);
            }
        }
    }
}
