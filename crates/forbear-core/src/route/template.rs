//! Names for paths that no rule describes: what looks like an identifier becomes `{id}`, and length is bounded, so that
//! neither a customer's number nor a secret in a path reaches the journal, a metric or a page.
//!
//! A word that is an identifier (`/users/alice`) cannot be told from one that is not; a contract that has such paths
//! declares them as routes.

use std::borrow::Cow;

use crate::ids::Route;

/// A whole template, method included.
pub const TEMPLATE_BYTES_MAX: usize = 200;
/// Segments shown; the rest becomes `{more...}`.
const SEGMENTS_MAX: usize = 10;
/// The longest segment that may be a word.
const WORD_BYTES_MAX: usize = 32;
const METHOD_BYTES_MAX: usize = 16;
const ID: &str = "{id}";
const MORE: &str = "{more...}";

/// Method and path with whatever looks like an identifier replaced.
#[must_use]
pub fn template(method: &str, path: &str) -> Route {
    let path = &*unescaped(path);
    let mut out = String::with_capacity(method.len() + path.len() + 8);
    out.push_str(method_name(method));
    out.push(' ');
    let Some(inner) = path.strip_prefix('/') else {
        // `OPTIONS *`; nothing else without a slash is a path.
        out.push_str(if path == "*" { "*" } else { "/" });
        return Route::new(&out);
    };
    for (i, segment) in inner.split('/').enumerate() {
        out.push('/');
        let room = TEMPLATE_BYTES_MAX.saturating_sub(out.len() + 1 + MORE.len());
        if i >= SEGMENTS_MAX || room < WORD_BYTES_MAX + 1 + ID.len() {
            out.push_str(MORE);
            break;
        }
        push_segment(&mut out, segment);
    }
    Route::new(&out)
}

/// A method as it may be shown: an unknown one is the caller's text.
pub(super) fn method_name(method: &str) -> &str {
    let fits = method.len() <= METHOD_BYTES_MAX && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
    if fits && !method.is_empty() { method } else { "OTHER" }
}

/// The path as rules are compared with it: escapes of unreserved characters undone (RFC 3986 section 6.2.2.2) and one
/// trailing slash gone. `None` where two servers could read it in two ways.
pub(super) fn plain(path: &str) -> Option<Cow<'_, str>> {
    let plain = unescaped(path);
    let ambiguous = |p: &str| {
        p.contains("//") || p.contains('\\') || p.split('/').any(|s| matches!(s.split(';').next(), Some("." | "..")))
    };
    if ambiguous(&plain) || hides_dots(path) {
        return None;
    }
    Some(match plain {
        Cow::Borrowed(p) => Cow::Borrowed(p.strip_suffix('/').unwrap_or(p)),
        Cow::Owned(mut p) => {
            if p.ends_with('/') {
                p.pop();
            }
            Cow::Owned(p)
        }
    })
}

/// Whether a server that decodes more than once, as some do behind others, would find a dot segment (`%252e%252e`).
fn hides_dots(path: &str) -> bool {
    if !path.contains("%25") {
        return false;
    }
    // All layers of `%25` come off in one pass: what one leaves behind may be the beginning of the next.
    let mut bare = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        bare.push(byte);
        if bare.ends_with(b"%25") {
            bare.truncate(bare.len() - 2);
        }
    }
    let bare = unescape(&String::from_utf8_lossy(&bare)).to_ascii_lowercase().replace("%2f", "/").replace("%5c", "/");
    bare.split(['/', '\\']).any(|s| matches!(s.split([';', '?']).next(), Some("." | "..")))
}

/// A path, or a whole target, as it is compared with another: escapes of unreserved characters undone, and those that stay
/// in upper case (RFC 3986 sections 6.2.2.1 and 6.2.2.2).
#[must_use]
pub fn unescaped(target: &str) -> Cow<'_, str> {
    if target.contains('%') { Cow::Owned(unescape(target)) } else { Cow::Borrowed(target) }
}

fn unescape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut left = path;
    while let Some(at) = left.find('%') {
        out.push_str(&left[..at]);
        let byte = left.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(b) if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') => {
                out.push(char::from(b));
                left = &left[at + 3..];
            }
            Some(_) => {
                out.push_str(&left[at..at + 3].to_ascii_uppercase());
                left = &left[at + 3..];
            }
            None => {
                out.push('%');
                left = &left[at + 1..];
            }
        }
    }
    out.push_str(left);
    out
}

fn push_segment(out: &mut String, segment: &str) {
    // `models/some-model:generateContent`: the verb after the colon is part of the interface.
    match segment.rsplit_once(':') {
        Some((head, verb)) if is_word(verb) && !verb.is_empty() => {
            out.push_str(if is_word(head) { head } else { ID });
            if out.len() + 1 + verb.len() + MORE.len() < TEMPLATE_BYTES_MAX {
                out.push(':');
                out.push_str(verb);
            }
        }
        _ => out.push_str(if is_word(segment) { segment } else { ID }),
    }
}

/// Whether a segment reads as part of the interface, not as the name of one thing.
fn is_word(s: &str) -> bool {
    s.len() <= WORD_BYTES_MAX
        && (is_version(s)
            || (s.bytes().all(|b| b.is_ascii_alphabetic() || matches!(b, b'_' | b'-' | b'.')) && !looks_random(s)))
}

/// `v1`, `v1.2`, `v2beta1`, `v1alpha`.
fn is_version(s: &str) -> bool {
    let Some(rest) = s.strip_prefix('v') else { return false };
    let digits = |t: &str| t.bytes().take_while(u8::is_ascii_digit).count();
    let major = digits(rest);
    let rest = &rest[major..];
    if !(1..=2).contains(&major) {
        return false;
    }
    let rest = ["alpha", "beta", "."].iter().find_map(|stage| rest.strip_prefix(stage)).unwrap_or(rest);
    digits(rest) == rest.len() && rest.len() <= 2
}

/// Letters that no person would have chosen for a path: a token without digits in it.
fn looks_random(s: &str) -> bool {
    let (mut consonants, mut upper, mut humps) = (0u32, 0u32, 0u32);
    let (mut worst_consonants, mut worst_upper) = (0u32, 0u32);
    let mut last_lower = false;
    for b in s.bytes() {
        let letter = b.is_ascii_alphabetic();
        let vowel = matches!(b.to_ascii_lowercase(), b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
        consonants = if letter && !vowel { consonants + 1 } else { 0 };
        upper = if b.is_ascii_uppercase() { upper + 1 } else { 0 };
        humps += u32::from(last_lower && b.is_ascii_uppercase());
        last_lower = b.is_ascii_lowercase();
        worst_consonants = worst_consonants.max(consonants);
        worst_upper = worst_upper.max(upper);
    }
    let hex = s.len() >= 12 && s.bytes().all(|b| b.is_ascii_hexdigit());
    worst_consonants >= 7 || worst_upper >= 8 || humps >= 5 || hex
}
