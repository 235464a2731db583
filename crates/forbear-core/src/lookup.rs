//! How the answer to a lookup is read: whether the write that was looked for is in it.
//!
//! It promises a bounded look at any JSON, and that what is not wholly there, or is older than the write, is no match. It refuses to guess: two candidates
//! that match are [`Found::Several`], which proves nothing about one.

mod path;
mod text;

use serde_json::Value;

use crate::contract::LookupRule;

pub use path::{Path, PathFault};
pub use text::{Names, TextFault, fill, placeholders};

/// Candidates of one answer that are looked at; where there are more, the answer is no proof that nothing is there.
pub const CANDIDATES_MAX: usize = 1_000;

/// How far a provider's clock may be behind ours and its record still be of this write.
const SKEW_MS_MAX: i64 = 120_000;

/// What an answer says of the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'v> {
    /// It was done, and this is the provider's record of it.
    One(&'v Value),
    /// More than one record is like it.
    Several,
    /// None is: not yet, or not at all.
    Nothing,
    /// The answer is not as the rule expects it.
    Unreadable,
}

/// Looks for the write in the answer. `names` is what the rule's placeholders stand for.
#[must_use]
pub fn find<'v>(rule: &LookupRule, names: &Names<'_>, answer: &'v Value) -> Found<'v> {
    let candidates = match &rule.found_at {
        None => vec![answer],
        Some(at) => {
            let Ok(path) = Path::parse(at) else { return Found::Unreadable };
            match path.list(answer, CANDIDATES_MAX) {
                Some(candidates) => candidates,
                None => return Found::Unreadable,
            }
        }
    };
    let mut wanted = Vec::with_capacity(rule.is.len());
    for (at, is) in &rule.is {
        let (Ok(path), Some(is)) = (Path::parse(at), fill(is, names)) else { return Found::Unreadable };
        wanted.push((path, is));
    }
    let is_it = |candidate: &&Value| wanted.iter().all(|(path, is)| path.one(candidate).is_some_and(|v| says(v, is)));
    let mut found = Found::Nothing;
    for candidate in candidates.into_iter().filter(is_it) {
        match made_ms(rule, candidate) {
            Err(()) => return Found::Unreadable,
            Ok(Some(made_ms)) if made_ms.saturating_add(SKEW_MS_MAX) < names.sent.0 => {}
            Ok(_) if found == Found::Nothing => found = Found::One(candidate),
            Ok(_) => return Found::Several,
        }
    }
    found
}

/// When a candidate was made, where the rule says how that is told.
fn made_ms(rule: &LookupRule, candidate: &Value) -> Result<Option<i64>, ()> {
    let Some(at) = &rule.made_at else { return Ok(None) };
    let ms = match Path::parse(at).map_err(|_| ())?.one(candidate) {
        Some(Value::String(text)) => text.parse::<jiff::Timestamp>().map_err(|_| ())?.as_millisecond(),
        Some(Value::Number(seconds)) => seconds.as_i64().and_then(|s| s.checked_mul(1_000)).ok_or(())?,
        _ => return Err(()),
    };
    Ok(Some(ms))
}

/// Text is compared as it is, a number or a truth value by how JSON writes it.
fn says(value: &Value, is: &str) -> bool {
    match value {
        Value::String(text) => text == is,
        Value::Number(number) => number.to_string() == is,
        Value::Bool(truth) => (if *truth { "true" } else { "false" }) == is,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
