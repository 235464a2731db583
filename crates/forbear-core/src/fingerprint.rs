//! What two bodies are compared by. JSON by its canonical form (RFC 8785), so that the order of members and the space between
//! them do not tell two apart; multipart by its parts ([`Multipart`]); everything else by its bytes.
//!
//! It refuses to compare numbers that a double cannot hold exactly (RFC 8785 section 3.2.2.3 would round them).

mod multipart;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical;
pub use multipart::Multipart;

/// A JSON body up to this size is brought into its canonical form; a larger one is compared by its bytes.
pub const JSON_BYTES_MAX: u64 = 64 * 1024;
/// The largest integer of which a double holds every smaller one.
const EXACT_MAX: u64 = 1 << 53;

/// Whether a body of this type and size is compared as JSON.
#[must_use]
pub fn is_json(content_type: Option<&str>, bytes: u64) -> bool {
    let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    bytes <= JSON_BYTES_MAX && (kind == "application/json" || kind.ends_with("+json"))
}

/// The digest of a JSON text's canonical form without the members of `ignores` (`a.b` is `b` in `a`), or none if it has none
/// that is exact.
#[must_use]
pub fn of_json(body: &[u8], ignores: &[Box<str>]) -> Option<[u8; 32]> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    for path in ignores {
        leave_out(&mut value, path);
    }
    if !is_exact(&value) {
        return None;
    }
    let canonical = canonical::of(&value).ok()?;
    let mut hasher = Sha256::new();
    // No body read as bytes has this digest.
    hasher.update(b"forbear canonical json\0");
    hasher.update(&canonical);
    Some(hasher.finalize().into())
}

fn leave_out(value: &mut Value, path: &str) {
    match (value, path.split_once('.')) {
        (Value::Object(members), Some((outer, inner))) => {
            if let Some(member) = members.get_mut(outer) {
                leave_out(member, inner);
            }
        }
        (Value::Object(members), None) => {
            members.remove(path);
        }
        _ => {}
    }
}

fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(n) => {
            n.as_u64().map(|n| n <= EXACT_MAX).or_else(|| n.as_i64().map(|n| n.unsigned_abs() <= EXACT_MAX)).unwrap_or(
                // Read as a double: beyond its exact integers it may have been rounded.
                n.as_f64().is_some_and(|f| f.abs() < 9_007_199_254_740_992.0),
            )
        }
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_tells_nothing_apart() {
        let ignores = ["at".into(), "meta.attempt".into(), "meta.no.such".into()];
        let of = |text: &str| of_json(text.as_bytes(), &ignores);
        assert_eq!(
            of(r#"{"n":1,"at":"t1","meta":{"attempt":"a"}}"#),
            of(r#"{"n":1,"at":"t2","meta":{"attempt":"b"}}"#)
        );
        assert_ne!(of(r#"{"n":1,"meta":{"at":1}}"#), of(r#"{"n":1,"meta":{"at":2}}"#));
        assert_eq!(of("[1]"), of_json(b"[1]", &[]));
    }

    #[test]
    fn order_space_and_spelling_of_numbers_do_not_count() {
        let same = [r#"{"a":1,"b":[1.0,"\u20ac"]}"#, "{ \"b\" : [1, \"€\"],\n\"a\":1e0 }"];
        assert_eq!(of_json(same[0].as_bytes(), &[]), of_json(same[1].as_bytes(), &[]));
        assert!(of_json(same[0].as_bytes(), &[]).is_some());
        for other in [r#"{"a":2,"b":[1,"€"]}"#, r#"{"a":1,"b":["€",1]}"#, r#"{"a":1}"#] {
            assert_ne!(of_json(other.as_bytes(), &[]), of_json(same[0].as_bytes(), &[]), "{other}");
        }
    }

    #[test]
    fn what_would_be_rounded_or_is_no_json_has_no_canonical_form() {
        for text in [
            "{\"n\":9007199254740993}",
            "9007199254740993.0",
            "[-9007199254740994]",
            "123456789012345678901234567890",
            "{",
            "",
        ] {
            assert_eq!(of_json(text.as_bytes(), &[]), None, "{text}");
        }
        assert!(of_json(b"9007199254740992", &[]).is_some());
    }

    #[test]
    fn only_json_of_some_size_is_looked_at() {
        assert!(is_json(Some("application/json"), 10));
        assert!(is_json(Some("Application/Problem+JSON ; charset=utf-8"), 10));
        assert!(!is_json(Some("application/json"), JSON_BYTES_MAX + 1));
        assert!(!is_json(Some("text/plain"), 10));
        assert!(!is_json(None, 10));
    }
}
