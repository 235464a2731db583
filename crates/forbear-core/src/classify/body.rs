//! A look into an error's body, on a copy: the agent gets the bytes as they came. Bounded in and out; what is not JSON,
//! is cut, or is coded in a way that is not read here, is opaque, which is no fault.

use std::io::Read;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use serde_json::Value;

use super::raw;

/// Bytes of a body that are looked at, coded and decoded.
pub const BODY_BYTES_MAX: usize = 64 * 1_024;
/// Members of one array that a path looks into.
const ARRAY_MEMBERS_MAX: usize = 64;
/// Segments of one path.
const SEGMENTS_MAX: usize = 16;

/// The body as JSON, where it is an object or an array.
pub(super) fn json(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let parse = |plain: &[u8]| {
        // RFC 8259 section 8.1 allows to ignore it, and some servers write it.
        let plain = plain.strip_prefix(b"\xef\xbb\xbf").unwrap_or(plain);
        let first = plain.iter().find(|byte| !byte.is_ascii_whitespace())?;
        if matches!(first, b'{' | b'[') { serde_json::from_slice(plain).ok() } else { None }
    };
    uncoded(headers, body, parse)
}

/// The body as text, up to the first byte that is none.
pub(super) fn text(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    uncoded(headers, body, |plain| {
        let valid = plain.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        Some(valid.to_owned())
    })
}

fn uncoded<T>(headers: &HeaderMap, body: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let body = body.get(..BODY_BYTES_MAX).unwrap_or(body);
    let coding = match headers.get(CONTENT_ENCODING) {
        None => "",
        Some(coding) => raw::text(coding)?,
    };
    let is = |name: &str| coding.eq_ignore_ascii_case(name);
    if coding.is_empty() || is("identity") {
        read(body)
    } else if is("gzip") || is("x-gzip") {
        read(&decoded(flate2::read::MultiGzDecoder::new(body))?)
    } else if is("deflate") {
        // RFC 9110 section 8.4.1.2: with the zlib wrapper, which some leave out.
        let wrapped = decoded(flate2::read::ZlibDecoder::new(body)).and_then(|plain| read(&plain));
        wrapped.or_else(|| read(&decoded(flate2::read::DeflateDecoder::new(body))?))
    } else {
        None
    }
}

fn decoded(reader: impl Read) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let bound = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    reader.take(bound).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// Calls `found` with each value at `path` (member names joined by dots) until it returns true. An array in the way is
/// gone through; a number, `[]` or `*` in the path says so outright.
pub(super) fn any_at(value: &Value, path: &str, found: &mut dyn FnMut(&Value) -> bool) -> bool {
    walk(value, Some(path), SEGMENTS_MAX, found)
}

fn walk(value: &Value, path: Option<&str>, segments_left: usize, found: &mut dyn FnMut(&Value) -> bool) -> bool {
    let Some(path) = path else { return found(value) };
    let Some(segments_left) = segments_left.checked_sub(1) else { return false };
    let (segment, rest) = match path.split_once('.') {
        None => (path, None),
        Some((segment, rest)) => (segment, Some(rest)),
    };
    let name = segment.strip_suffix("[]").unwrap_or(segment);
    match value {
        Value::Object(members) => members.get(name).is_some_and(|member| walk(member, rest, segments_left, found)),
        Value::Array(members) if name.is_empty() || name == "*" => {
            members.iter().take(ARRAY_MEMBERS_MAX).any(|member| walk(member, rest, segments_left, found))
        }
        Value::Array(members) => match name.parse::<usize>() {
            Ok(at) => members.get(at).is_some_and(|member| walk(member, rest, segments_left, found)),
            Err(_) => {
                members.iter().take(ARRAY_MEMBERS_MAX).any(|member| walk(member, Some(path), segments_left, found))
            }
        },
        _ => false,
    }
}

/// The first text at `path`.
pub(super) fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    member_at(value, path)?.as_str()
}

/// The member at `path`, through objects alone.
pub(super) fn member_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.as_object()?.get(*name))
}
