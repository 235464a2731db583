//! Provider codes: the contract's rules over header fields and members of JSON bodies, and the code that a body shows to
//! people. A rule matches a whole member, never text that merely quotes it, unless it says `contains`.

use http::HeaderMap;
use serde_json::Value;

use super::body;
use super::raw;
use crate::contract::{CodeRule, Contract};

/// Bytes of a code that are kept.
pub(super) const CODE_BYTES_MAX: usize = 64;

/// The first rule of the contract that holds for this answer.
pub(super) fn first_hit<'a>(
    contract: &'a Contract,
    status: u16,
    headers: &HeaderMap,
    json: Option<&Value>,
) -> Option<&'a CodeRule> {
    contract.codes.iter().find(|rule| concerns(rule, status) && hits(rule, headers, json))
}

/// Whether an answer of this status has to be looked into: an error always, a success where a rule names its status.
pub(super) fn body_matters(contract: &Contract, status: u16) -> bool {
    status >= 400 || contract.codes.iter().any(|rule| concerns(rule, status) && rule.at.starts_with("body:"))
}

/// `code error.code=insufficient_quota`, `code error.message~spend limit`, `code error.code`.
pub(super) fn words(rule: &CodeRule) -> String {
    let at = rule.at.strip_prefix("body:").unwrap_or(&rule.at);
    match (&rule.is, &rule.contains) {
        (Some(is), _) => format!("code {at}={is}"),
        (None, Some(contains)) => format!("code {at}~{contains}"),
        (None, None) => format!("code {at}"),
    }
}

/// What the body calls the error: the most specific text first, then numbers, then a title.
pub(super) fn shown(json: &Value) -> Option<String> {
    const TEXTS: [&[&str]; 6] =
        [&["error", "code"], &["error", "type"], &["error", "status"], &["code"], &["error"], &["title"]];
    const NUMBERS: [&[&str]; 2] = [&["error", "code"], &["code"]];
    let text = TEXTS.iter().find_map(|path| body::text_at(json, path).filter(|text| !text.is_empty()));
    let code = text.map(str::to_owned).or_else(|| {
        NUMBERS.iter().find_map(|path| body::member_at(json, path)?.as_number()).map(ToString::to_string)
    })?;
    let mut shown = raw::shown(code.as_bytes());
    shown.truncate(CODE_BYTES_MAX);
    Some(shown)
}

fn concerns(rule: &CodeRule, status: u16) -> bool {
    if rule.statuses.is_empty() { status >= 400 } else { rule.statuses.contains(&status) }
}

fn hits(rule: &CodeRule, headers: &HeaderMap, json: Option<&Value>) -> bool {
    if let Some(path) = rule.at.strip_prefix("body:") {
        json.is_some_and(|json| body::any_at(json, path, &mut |value| member_fits(rule, value)))
    } else if let Some(name) = rule.at.strip_prefix("header:") {
        let mut lines = headers.get_all(name).iter().take(raw::FIELD_LINES_MAX);
        lines.any(|line| text_fits(rule, String::from_utf8_lossy(line.as_bytes()).trim_matches([' ', '\t'])))
    } else {
        // The configuration's check refuses such a rule; here it never holds.
        false
    }
}

fn member_fits(rule: &CodeRule, value: &Value) -> bool {
    match value {
        Value::String(text) => text_fits(rule, text),
        Value::Number(number) => text_fits(rule, &number.to_string()),
        Value::Bool(truth) => text_fits(rule, if *truth { "true" } else { "false" }),
        Value::Null => false,
        Value::Array(_) | Value::Object(_) => rule.is.is_none() && rule.contains.is_none(),
    }
}

fn text_fits(rule: &CodeRule, text: &str) -> bool {
    rule.is.as_ref().is_none_or(|is| text == is)
        && rule.contains.as_ref().is_none_or(|contains| text.contains(contains.as_str()))
}
