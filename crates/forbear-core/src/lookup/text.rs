//! Text with places to fill: `{name}` is what a write is looked up by, `{path.owner}` a segment of its path, `{body.amount}` a
//! member of its JSON body. A brace stands nowhere else.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::time::Wall;

/// Why a text cannot be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    #[error("a brace has no other")]
    Unbalanced,
    #[error("a place is `{{name}}`, `{{path.SEGMENT}}` or `{{body.MEMBER}}`")]
    Unknown,
}

/// What the places stand for.
#[derive(Debug, Clone, Default)]
pub struct Names<'a> {
    pub name: &'a str,
    /// Segments of the write's path, by how its template calls them.
    pub path: BTreeMap<&'a str, &'a str>,
    /// The write's JSON body.
    pub body: Option<&'a Value>,
    /// When its first attempt left.
    pub sent: Wall,
}

/// The places of a text, in their order, without braces.
pub fn placeholders(text: &str) -> Result<Vec<&str>, TextFault> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let inner = rest.get(at..).and_then(|open| open.strip_prefix('{')).ok_or(TextFault::Unbalanced)?;
        let (place, after) = inner.split_once('}').ok_or(TextFault::Unbalanced)?;
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        };
        let known = match place.split_once('.') {
            None => place == "name",
            Some(("path", segment)) => is_word(segment),
            Some(("body", member)) => member.split('.').all(is_word),
            Some(_) => false,
        };
        if !known {
            return Err(TextFault::Unknown);
        }
        found.push(place);
        rest = after;
    }
    Ok(found)
}

/// The text with its places filled; nothing where one of them is not known, or no plain value.
#[must_use]
pub fn fill(text: &str, names: &Names<'_>) -> Option<String> {
    placeholders(text).ok()?;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inner)) = rest.split_once('{') {
        let (place, after) = inner.split_once('}')?;
        out.push_str(before);
        match place.split_once('.') {
            Some(("path", segment)) => out.push_str(names.path.get(segment)?),
            Some(("body", member)) => {
                match member.split('.').try_fold(names.body?, |value, name| value.as_object()?.get(name))? {
                    Value::String(text) => out.push_str(text),
                    Value::Number(number) => out.push_str(&number.to_string()),
                    _ => return None,
                }
            }
            _ => out.push_str(names.name),
        }
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}
