//! Provider codes: the contract's rules over header fields and members of JSON bodies, and the code that a body shows to
//! people. A rule matches a whole member, never text that merely quotes it, unless it says `contains`.

use http::HeaderMap;
use serde_json::Value;

use super::body;
use super::raw;
use crate::contract::{CodeRule, Contract};

/// Bytes of a code that are kept.
pub(super) const CODE_BYTES_MAX: usize = 64;
/// The place of a rule that reads a body as text.
pub(crate) const TEXT: &str = "text";
/// The place of a rule that reads the data of a stream's error event, and no body.
const EVENT: &str = "event:";

/// What a refusal's body was read as. Never both: text is for what is no JSON.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    None,
    Json(&'a Value),
    Text(&'a str),
}

/// A rule that holds, and the word of it that was met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit<'a> {
    pub(super) rule: &'a CodeRule,
    word: Option<&'a str>,
}

/// The first rule of the contract that holds for this answer.
pub(super) fn first_hit<'a>(
    contract: &'a Contract,
    status: u16,
    headers: &HeaderMap,
    body: Body<'_>,
) -> Option<Hit<'a>> {
    let of_answers = |rule: &&CodeRule| concerns(rule, status) && !rule.at.starts_with(EVENT);
    contract.codes.iter().filter(of_answers).find_map(|rule| hit(rule, headers, body))
}

/// The rule that holds for an error inside a stream, whose status was sent before anybody knew. Rules about such events come
/// first, then those about bodies that name the status or none, then the words of all the others.
pub(super) fn first_hit_of_event<'a>(contract: &'a Contract, status: u16, json: &Value) -> Option<Hit<'a>> {
    let meets = |rule| hit(rule, &HeaderMap::new(), Body::Json(json));
    let in_body = || contract.codes.iter().filter(|rule| rule.at.starts_with("body:"));
    let near = |rule: &&CodeRule| rule.statuses.is_empty() || rule.statuses.contains(&status);
    let of_events = contract.codes.iter().filter(|rule| rule.at.starts_with(EVENT)).find_map(meets);
    let first = of_events.or_else(|| in_body().filter(near).find_map(meets));
    first.or_else(|| in_body().filter_map(meets).find(|hit| hit.word.is_some()))
}

/// Whether an answer of this status has to be looked into: an error always, a success where a rule names its status.
pub(super) fn body_matters(contract: &Contract, status: u16) -> bool {
    status >= 400 || contract.codes.iter().any(|rule| concerns(rule, status) && rule.at.starts_with("body:"))
}

/// Whether a rule looks at bodies that are no JSON.
pub(super) fn text_matters(contract: &Contract, status: u16) -> bool {
    contract.codes.iter().any(|rule| rule.at == TEXT && concerns(rule, status))
}

impl Hit<'_> {
    /// `code error.code=insufficient_quota`, `code error.message~spend limit`, `code error.code`, `contract status 477`.
    pub(super) fn words(&self, status: u16) -> String {
        let Self { rule, word } = self;
        if rule.at.is_empty() {
            return format!("contract status {status}");
        }
        let at = rule.at.strip_prefix("body:").or(rule.at.strip_prefix(EVENT)).unwrap_or(&rule.at);
        let sign = if rule.is.is_some() || !rule.is_any.is_empty() { '=' } else { '~' };
        word.map_or_else(|| format!("code {at}"), |word| format!("code {at}{sign}{word}"))
    }
}

/// What the body calls the error: the most specific text first, then numbers, then a title.
pub(super) fn shown(json: &Value) -> Option<String> {
    const TEXTS: [&[&str]; 10] = [
        &["error", "code"],
        &["error", "type"],
        &["error", "status"],
        &["code"],
        &["error"],
        &["title"],
        &["response", "error", "code"],
        // XML as AWS writes it: alone, by the query protocol, and of EC2.
        &["Error", "Code"],
        &["ErrorResponse", "Error", "Code"],
        &["Response", "Errors", "Error", "Code"],
    ];
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

fn hit<'a>(rule: &'a CodeRule, headers: &HeaderMap, body: Body<'_>) -> Option<Hit<'a>> {
    let mut word = None;
    let mut fits = |found: Option<Option<&'a str>>| {
        word = found.flatten();
        found.is_some()
    };
    let holds = if let Some(path) = rule.at.strip_prefix("body:").or(rule.at.strip_prefix(EVENT)) {
        let Body::Json(json) = body else { return None };
        body::any_at(json, path, &mut |value| fits(member_fits(rule, value)))
    } else if let Some(name) = rule.at.strip_prefix("header:") {
        let mut lines = headers.get_all(name).iter().take(raw::FIELD_LINES_MAX);
        lines.any(|line| fits(text_fits(rule, String::from_utf8_lossy(line.as_bytes()).trim_matches([' ', '\t']))))
    } else if rule.at == TEXT {
        let Body::Text(text) = body else { return None };
        fits(text_fits(rule, text))
    } else {
        // The configuration's check refuses any other place; here such a rule never holds.
        rule.at.is_empty()
    };
    holds.then_some(Hit { rule, word })
}

/// The word that the value met, if the rule has any.
fn member_fits<'a>(rule: &'a CodeRule, value: &Value) -> Option<Option<&'a str>> {
    match value {
        Value::String(text) => text_fits(rule, text),
        Value::Number(number) => text_fits(rule, &number.to_string()),
        Value::Bool(truth) => text_fits(rule, if *truth { "true" } else { "false" }),
        Value::Null => None,
        Value::Array(_) | Value::Object(_) => text_fits(rule, "").filter(Option::is_none),
    }
}

fn text_fits<'a>(rule: &'a CodeRule, text: &str) -> Option<Option<&'a str>> {
    let mut whole = rule.is.iter().chain(&rule.is_any).peekable();
    let mut parts = rule.contains.iter().chain(&rule.contains_any).peekable();
    if whole.peek().is_none() && parts.peek().is_none() {
        return Some(None);
    }
    let met = whole.find(|word| *word == text).or_else(|| parts.find(|part| text.contains(part.as_str())));
    met.map(|word| Some(word.as_str()))
}
