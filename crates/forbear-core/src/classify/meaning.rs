//! From an answer to its kind, in this order: a code rule of the contract; what is safe to read in any error's body
//! (problem types of the RateLimit draft, codes of spent quotas); the status.
//!
//! A success is only ever doubted by a code rule that names its status: text of an answer that happens to quote an
//! error is not one.

use std::borrow::Cow;

use serde_json::Value;

use super::body;
use super::codes::{self, Body, Hit};
use super::problem::{self, ProblemType};
use super::signals::Signals;
use super::{Closes, Kind, ResponseFacts};
use crate::contract::{CodeMeaning, Contract};
use crate::policy::Rank;

/// A violated policy of at least this length is a quota, not a burst.
const QUOTA_WINDOW_MS_MIN: u64 = 86_400_000;
/// Codes that say, on any provider, that waiting a little does not help.
const SPENT_CODES: [&str; 6] = [
    "insufficient_quota",
    "insufficient_credits",
    "usage_limit_reached",
    "credit_balance_exhausted",
    "enforced_spend_limit_reached",
    "GoUsageLimitError",
];

/// A kind with its reason.
#[derive(Debug)]
pub(super) struct Meaning<'a> {
    pub(super) kind: Kind,
    pub(super) rule: Cow<'static, str>,
    /// The code rule's word, where it gave one.
    pub(super) before_work: Option<bool>,
    pub(super) closes: Closes,
    /// The code rule's wait, where it gave one.
    pub(super) wait_seconds: Option<u64>,
    /// Windows that the body names as the ones that refused.
    pub(super) violated: Vec<&'a str>,
}

pub(super) fn read<'a>(
    contract: &Contract,
    rank: Rank,
    facts: &ResponseFacts<'_>,
    json: Option<&'a Value>,
    text: Option<&str>,
    signals: &Signals<'_>,
) -> Meaning<'a> {
    let status = facts.status;
    let body = match (json, text) {
        (Some(json), _) => Body::Json(json),
        (None, Some(text)) => Body::Text(text),
        (None, None) => Body::None,
    };
    if let Some(hit) = codes::first_hit(contract, status, facts.headers, body) {
        return by_rule(hit, status);
    }
    let by_body = if status >= 400 { json.and_then(|json| by_body(status, json, signals)) } else { None };
    by_body.unwrap_or_else(|| by_status(contract, status, rank, signals))
}

/// The error that a stream begins with. Nothing but its code tells what it is, and one without a known code is content
/// that went wrong.
pub(super) fn of_event<'a>(contract: &Contract, status: u16, json: Option<&'a Value>) -> Meaning<'a> {
    let by_rule = || Some(by_rule(codes::first_hit_of_event(contract, status, json?)?, status));
    match by_rule().or_else(|| spent_code(json?)) {
        Some(meaning) => Meaning { rule: format!("error event, {}", meaning.rule).into(), ..meaning },
        None => plain(Kind::Disguised, "error event"),
    }
}

fn plain<'a>(kind: Kind, rule: impl Into<Cow<'static, str>>) -> Meaning<'a> {
    // What is spent is spent for all that the account pays for.
    let closes = if kind == Kind::Exhausted { Closes::Home } else { Closes::Narrowest };
    Meaning { kind, rule: rule.into(), before_work: None, closes, wait_seconds: None, violated: Vec::new() }
}

fn by_rule<'a>(hit: Hit<'_>, status: u16) -> Meaning<'a> {
    let rule = hit.rule;
    let kind = match rule.means {
        // Whatever it is called, it slows or closes the scope, also inside a 200.
        CodeMeaning::Throttled => Kind::Throttled,
        CodeMeaning::Exhausted => Kind::Exhausted,
        CodeMeaning::Unavailable => Kind::Unavailable,
        _ if status < 400 => Kind::Disguised,
        CodeMeaning::Transient => Kind::Transient,
        CodeMeaning::InProgress => Kind::InProgress,
        CodeMeaning::Conflict => Kind::Conflict,
        CodeMeaning::KeyMismatch | CodeMeaning::Rejected => Kind::Rejected,
    };
    let plain = plain(kind, hit.words(status));
    let closes = rule.closes.unwrap_or(plain.closes);
    Meaning { before_work: rule.before_work, wait_seconds: rule.wait_seconds, closes, ..plain }
}

fn by_body<'a>(status: u16, json: &'a Value, signals: &Signals<'_>) -> Option<Meaning<'a>> {
    let problem = problem::read(json);
    match (status, problem.known_type) {
        (429, Some(ProblemType::AbnormalUsageDetected)) => {
            return Some(plain(Kind::Rejected, "problem abnormal-usage-detected"));
        }
        (429, Some(ProblemType::QuotaExceeded)) => {
            let long = signals.windows().any(|seen| {
                problem.violated.contains(&seen.window.name.as_str())
                    && seen.window.window_ms.is_some_and(|ms| ms >= QUOTA_WINDOW_MS_MIN)
            });
            let (kind, rule) = if long {
                (Kind::Exhausted, "problem quota-exceeded, of a window of a day or more")
            } else {
                (Kind::Throttled, "problem quota-exceeded")
            };
            return Some(Meaning { violated: problem.violated, ..plain(kind, rule) });
        }
        (503, Some(ProblemType::TemporaryReducedCapacity)) => {
            return Some(plain(Kind::Unavailable, "problem temporary-reduced-capacity"));
        }
        _ => {}
    }
    if status == 429 { spent_code(json) } else { None }
}

fn spent_code<'a>(json: &Value) -> Option<Meaning<'a>> {
    const MEMBERS: [&[&str]; 4] = [&["error", "code"], &["error", "type"], &["code"], &["type"]];
    MEMBERS.iter().find_map(|path| {
        let code = body::text_at(json, path).filter(|code| code.len() <= codes::CODE_BYTES_MAX)?;
        let spent = SPENT_CODES.contains(&code)
            || code.starts_with("billing_")
            || code.ends_with("_spend_limit_exceeded")
            || code.ends_with("_usage_limit_exceeded");
        spent.then(|| plain(Kind::Exhausted, format!("code {}={code}", path.join("."))))
    })
}

fn by_status<'a>(contract: &Contract, status: u16, rank: Rank, signals: &Signals<'_>) -> Meaning<'a> {
    let kind = match status {
        0..400 => Kind::Success,
        403 if signals.windows().any(|seen| seen.window.remaining == Some(0)) => {
            return plain(Kind::Throttled, "status 403 with no quota left");
        }
        403 if signals.asked.is_some() => return plain(Kind::Throttled, "status 403 with retry-after"),
        // What a read did not find may be there later; the breaker counts it apart.
        404 if rank == Rank::Read => return plain(Kind::Rejected, "status 404 on a read"),
        429 if contract.throttle_needs_retry_after && !signals.retry_after_sent => {
            return plain(Kind::Exhausted, "status 429 without retry-after");
        }
        429 => Kind::Throttled,
        503 | 529 => Kind::Unavailable,
        408 | 425 => Kind::Transient,
        409 => Kind::Conflict,
        // No server, and no proxy before it, will do it the next time either.
        400..500 | 501 | 505 | 511 => Kind::Rejected,
        500.. => Kind::Transient,
    };
    plain(kind, status_words(status))
}

/// `status 429`; the usual ones without allocating.
fn status_words(status: u16) -> Cow<'static, str> {
    macro_rules! usual {
        ($($code:literal)*) => {
            match status {
                $($code => Cow::Borrowed(concat!("status ", $code)),)*
                other => Cow::Owned(format!("status {other}")),
            }
        };
    }
    usual!(200 201 202 203 204 205 206 207 301 302 303 304 307 308 400 401 402 403 404 405 406 408 409 410 411 412 413
        414 415 416 417 421 422 423 424 425 426 428 429 431 451 499 500 501 502 503 504 505 507 508 511 520 521 522 523
        524 529)
}
