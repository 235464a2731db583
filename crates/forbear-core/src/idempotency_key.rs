//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07) and its kin, from header bytes. The draft wants a
//! quoted string, real services take a bare value: both are read, and compared by the value without quotes. What goes to
//! the provider is the agent's bytes, which this module never changes.
//!
//! It refuses what could be read in two ways (an open quote, two lines), since the key decides whether two sends are one.

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use sfv::{Item, Parser};

/// Bytes of a key; the widest of the known services takes 255.
pub const KEY_BYTES_MAX: usize = 255;

/// What the field says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyReading {
    Absent,
    /// The value to compare by.
    Key(String),
    Malformed(KeyFault),
}

/// Why a key is none. Each is answered with 400 before anything is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    Empty,
    /// A quote that is not closed, or something behind it.
    BadQuoting,
    /// A byte that is not printable ASCII.
    BadByte,
    /// More than one line: it is an item, not a list.
    Repeated,
    TooLong,
}

impl KeyFault {
    /// For the problem's `detail`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Empty => "the idempotency key is empty",
            Self::BadQuoting => "the idempotency key's quotes do not match",
            Self::BadByte => "the idempotency key has a character that is not printable ASCII",
            Self::Repeated => "there is more than one idempotency key",
            Self::TooLong => "the idempotency key is longer than 255 bytes",
        }
    }
}

/// Reads the key from the field that the route or contract names.
#[must_use]
pub fn read(headers: &HeaderMap, name: &HeaderName) -> KeyReading {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => KeyReading::Absent,
        (Some(_), Some(_)) => KeyReading::Malformed(KeyFault::Repeated),
        (Some(line), None) => parse(line.as_bytes()).map_or_else(KeyReading::Malformed, KeyReading::Key),
    }
}

/// Reads the key from a member of a JSON body (`input.id`), for providers that take it there, some only where `only_with` is
/// true. What is no usable text is no key: nothing makes the write safe then.
#[must_use]
pub fn in_json(body: &[u8], member: &str, only_with: Option<&str>) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let at = |path: &str| path.split('.').try_fold(&json, |value, name| value.as_object()?.get(name));
    if only_with.is_some_and(|path| at(path) != Some(&Value::Bool(true))) {
        return None;
    }
    parse(at(member)?.as_str()?.as_bytes()).ok()
}

fn parse(value: &[u8]) -> Result<String, KeyFault> {
    let value = value.trim_ascii();
    if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(KeyFault::BadByte);
    }
    let key = if value.first() == Some(&b'"') {
        quoted(value).ok_or(KeyFault::BadQuoting)?
    } else {
        value.iter().copied().map(char::from).collect()
    };
    match key.len() {
        0 => Err(KeyFault::Empty),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err(KeyFault::TooLong),
    }
}

/// A structured field string; parameters say nothing about the key.
fn quoted(value: &[u8]) -> Option<String> {
    let item = Parser::new(value).parse::<Item>().ok()?;
    item.bare_item.as_string().map(|key| key.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("idempotency-key");

    fn key(lines: &[&[u8]]) -> KeyReading {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(NAME, HeaderValue::from_bytes(line).unwrap());
        }
        read(&headers, &NAME)
    }

    fn check(line: &str, expect: Result<&str, KeyFault>) {
        let expect = expect.map_or_else(KeyReading::Malformed, |key| KeyReading::Key(key.to_owned()));
        assert_eq!(key(&[line.as_bytes()]), expect, "{line}");
    }

    #[test]
    fn the_vectors_of_the_draft() {
        check("\"8e03978e-40d5-43e8-bc93-6894a57f9324\"", Ok("8e03978e-40d5-43e8-bc93-6894a57f9324"));
        check("8e03978e-40d5-43e8-bc93-6894a57f9324", Ok("8e03978e-40d5-43e8-bc93-6894a57f9324"));
        check(r#""a\"b""#, Ok(r#"a"b"#));
        check("\"abc", Err(KeyFault::BadQuoting));
        check("", Err(KeyFault::Empty));
        check("\"\"", Err(KeyFault::Empty));
        assert_eq!(key(&[b"a", b"b"]), KeyReading::Malformed(KeyFault::Repeated));
        assert_eq!(key(&[b"a", b"a"]), KeyReading::Malformed(KeyFault::Repeated));
        assert_eq!(key(&[]), KeyReading::Absent);
    }

    #[test]
    fn the_edges() {
        check("  key ", Ok("key"));
        check("a b, c", Ok("a b, c"));
        check("a\"b", Ok("a\"b"));
        check("\"abc\";v=1", Ok("abc"));
        check("\"abc\" x", Err(KeyFault::BadQuoting));
        check("\"abc\", \"d\"", Err(KeyFault::BadQuoting));
        check(r#""a\b""#, Err(KeyFault::BadQuoting));
        check("schlüssel", Err(KeyFault::BadByte));
        check("a\tb", Err(KeyFault::BadByte));
        check(&"k".repeat(KEY_BYTES_MAX), Ok(&"k".repeat(KEY_BYTES_MAX)));
        check(&"k".repeat(KEY_BYTES_MAX + 1), Err(KeyFault::TooLong));
        check(&format!("\"{}\"", "k".repeat(KEY_BYTES_MAX)), Ok(&"k".repeat(KEY_BYTES_MAX)));
    }

    #[test]
    fn a_key_in_a_body_is_text_at_its_member() {
        for (body, member, expect) in [
            (r#"{"idempotency_key": "k-1", "amount": 5}"#, "idempotency_key", Some("k-1")),
            (r#"{"input": {"id": "k-2"}}"#, "input.id", Some("k-2")),
            (r#"{"input": {"id": "k-2"}}"#, "input", None),
            (r#"{"idempotency_key": 7}"#, "idempotency_key", None),
            (r#"{"idempotency_key": ""}"#, "idempotency_key", None),
            (r#"{"idempotency_key": "\u00fc"}"#, "idempotency_key", None),
            (r#"[{"idempotency_key": "k"}]"#, "idempotency_key", None),
            (r#"{"idempotency_key": "k""#, "idempotency_key", None),
            ("", "idempotency_key", None),
        ] {
            assert_eq!(in_json(body.as_bytes(), member, None).as_deref(), expect, "{body}");
        }
        for (body, expect) in [
            (r#"{"nonce": "n", "enforce_nonce": true}"#, Some("n")),
            (r#"{"nonce": "n", "enforce_nonce": false}"#, None),
            (r#"{"nonce": "n"}"#, None),
        ] {
            assert_eq!(in_json(body.as_bytes(), "nonce", Some("enforce_nonce")).as_deref(), expect, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_no_key_is_out_of_bounds(line in proptest::collection::vec(32_u8..=255, 0..300)) {
            if HeaderValue::from_bytes(&line).is_ok()
                && let KeyReading::Key(key) = key(&[&line])
            {
                prop_assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX);
            }
        }

        #[test]
        fn quoting_changes_nothing(plain in "[!#-\\[\\]-~][ !#-\\[\\]-~]{0,80}[!#-\\[\\]-~]") {
            prop_assert_eq!(key(&[plain.as_bytes()]), key(&[format!("\"{plain}\"").as_bytes()]));
        }
    }
}
