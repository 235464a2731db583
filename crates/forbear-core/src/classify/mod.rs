//! What an answer means. Pure: status, header fields, a prefix of the body and the contract go in, a
//! [`Classification`] with its reason comes out. Malformed signals are data, never errors.
//!
//! Classify first, then [`effect`](crate::effect): the kind says what to do about the scope, the effect what happened to
//! the world.
//!
//! | file | reads |
//! |---|---|
//! | `retry_after`, `rate_limit`, `x_rate_limit` | header fields: a wait, or windows of a limit (`seen`) |
//! | `values`, `duration`, `http_date`, `number` | what one value says, in every format |
//! | `body`, `xml`, `codes`, `problem`, `body_reset` | a copy of an error's body |
//! | `opening` | whether an event stream begins with an error |
//! | `signals` | all of an answer that says when, gathered |
//! | `below` | how often a layer below sent the call by itself |
//! | `server_time` | the server's clock, against which instants are measured |
//! | `meaning`, `boundary` | from all of these to a kind and an instant |

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::policy::Rank;
use crate::time::{Now, Wall};

mod below;
mod body;
mod body_reset;
mod boundary;
mod codes;
mod duration;
mod http_date;
mod meaning;
mod number;
mod opening;
mod problem;
mod rate_limit;
mod raw;
mod retry_after;
mod seen;
mod server_time;
mod signals;
#[cfg(test)]
mod tests;
mod values;
mod verdict;
mod x_rate_limit;
mod xml;

pub use below::{Below, RETRIES_BELOW_MAX};
pub use body::BODY_BYTES_MAX;
pub(crate) use codes::TEXT;
pub use opening::{Opening, is_event_stream, opening};

/// What stands in a record for words that are not to be recorded.
const WITHHELD: &str = "[withheld]";

/// Reads one answer. `rank` is that of the action's class.
#[must_use]
pub fn classify(contract: &Contract, rank: Rank, facts: &ResponseFacts<'_>) -> Classification {
    let json = facts
        .body
        .filter(|_| codes::body_matters(contract, facts.status))
        .and_then(|body| read_body(contract, facts.headers, body));
    let text = facts.body.filter(|_| json.is_none() && codes::text_matters(contract, facts.status));
    let text = text.and_then(|body| body::text(facts.headers, body));
    read(contract, facts, json.as_ref(), |signals| {
        meaning::read(contract, rank, facts, json.as_ref(), text.as_deref(), signals)
    })
}

/// XML where the contract says so, as if it were JSON.
fn read_body(contract: &Contract, headers: &http::HeaderMap, body: &[u8]) -> Option<serde_json::Value> {
    let xml = || body::text(headers, body).and_then(|text| xml::read(&text));
    body::json(headers, body).or_else(|| if contract.xml_errors { xml() } else { None })
}

/// Reads the error that an event stream begins with: the body is that event's data. Never a success.
#[must_use]
pub fn classify_event(contract: &Contract, facts: &ResponseFacts<'_>) -> Classification {
    let json = facts.body.and_then(|data| body::json(facts.headers, data));
    read(contract, facts, json.as_ref(), |_| meaning::of_event(contract, facts.status, json.as_ref()))
}

fn read<'a>(
    contract: &Contract,
    facts: &ResponseFacts<'a>,
    json: Option<&'a serde_json::Value>,
    meaning: impl FnOnce(&signals::Signals<'a>) -> meaning::Meaning<'a>,
) -> Classification {
    let mut malformed = raw::Malformed::default();
    let mut contradictions = Vec::new();
    let verdict = verdict::read(&contract.verdict_headers, facts.headers, &mut malformed, &mut contradictions);
    let mut signals = signals::Signals::read(contract, facts, &mut malformed);
    let below = below::read(&contract.attempts_below, facts.headers, &mut malformed);
    let meaning = meaning(&signals);
    if let (Some(json), Kind::Throttled | Kind::Exhausted | Kind::Unavailable) = (json, meaning.kind) {
        signals.read_body(contract, facts, json, &mut malformed);
    }
    let boundary = boundary::choose(facts, &meaning, &signals, &mut contradictions);
    Classification {
        before_work: before_work(contract, facts.status, &meaning),
        kind: meaning.kind,
        rule: match verdict {
            Some((said, field)) => format!("{}, {field}: {said}", meaning.rule).into(),
            None => meaning.rule,
        },
        closes: meaning.closes,
        boundary,
        windows: signals.into_windows(),
        should_retry: verdict.map(|(said, _)| said),
        malformed: malformed.0,
        contradictions,
        below,
        code: json.filter(|_| meaning.kind != Kind::Success).and_then(codes::shown),
    }
}

/// Whether a success of this status may be a refusal in disguise by this contract, so that its body has to be read.
#[must_use]
pub fn may_disguise(contract: &Contract, status: u16) -> bool {
    status < 400 && codes::body_matters(contract, status)
}

/// Whether `body` is a whole document already, of JSON or of what else the contract reads.
#[must_use]
pub fn is_whole(contract: &Contract, headers: &http::HeaderMap, body: &[u8]) -> bool {
    read_body(contract, headers, body).is_some()
}

/// The code rule's word first. A 429 is what the contract says of it. Any other 4xx that means "not now" would count as
/// not applied if it meant "never" ([`effect`](crate::effect)); reading it better takes nothing of that away.
fn before_work(contract: &Contract, status: u16, meaning: &meaning::Meaning<'_>) -> bool {
    let refused = matches!(meaning.kind, Kind::Throttled | Kind::Exhausted);
    meaning.before_work.unwrap_or(match status {
        429 => refused && contract.throttled_before_work,
        408 | 409 | 425 => false,
        400..500 => refused,
        _ => false,
    })
}

/// What was seen of one answer.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFacts<'a> {
    pub status: u16,
    pub headers: &'a http::HeaderMap,
    /// The first bytes of the body, as they came (maybe compressed), where the caller read any.
    pub body: Option<&'a [u8]>,
    /// When the head was read.
    pub received: Now,
}

impl Classification {
    /// Takes out whatever of the provider's words must not be recorded.
    pub fn withhold(&mut self, must: impl Fn(&str) -> bool) {
        let boundary = self.boundary.iter_mut().flat_map(|b| [&mut b.raw, &mut b.reading]);
        let windows = self.windows.iter_mut().map(|w| &mut w.name);
        let lists = self.malformed.iter_mut().chain(&mut self.contradictions);
        let texts = boundary.chain(windows).chain(lists).chain(&mut self.code);
        let texts = texts.chain(self.below.iter_mut().map(|b| &mut b.said));
        for text in texts.filter(|text| must(text)) {
            WITHHELD.clone_into(text);
        }
        if matches!(&self.rule, Cow::Owned(rule) if must(rule)) {
            self.rule = Cow::Borrowed(WITHHELD);
        }
    }
}

/// The result of DESIGN section 4, "classify first".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Success,
    /// Slow the scope.
    Throttled,
    /// Quota or billing: no retry before the reset.
    Exhausted,
    /// Overload: bounded retry, no cut of the scope's throughput.
    Unavailable,
    /// 408, 425, 500, 502, 504, resets: bounded, and for writes through the effect.
    Transient,
    Conflict,
    /// The first call with this key is still running at the provider.
    InProgress,
    /// Never unchanged.
    Rejected,
    /// A success status with an error inside.
    Disguised,
}

/// Which of a call's scopes a refusal closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closes {
    /// The narrowest one: the model, the endpoint family.
    #[default]
    Narrowest,
    /// The whole account.
    Home,
}

impl Closes {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_narrowest(&self) -> bool {
        matches!(self, Self::Narrowest)
    }
}

/// Where a boundary was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundarySource {
    RetryAfter,
    RetryAfterMs,
    /// A RateLimit field of any draft.
    RateLimit,
    /// An `x-ratelimit-*` or contract header.
    LimitHeader,
    /// A member of the body.
    Body,
    /// The contract's word on this refusal, where the answer itself names no instant.
    Contract,
}

impl BoundarySource {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry_after",
            Self::RetryAfterMs => "retry_after_ms",
            Self::RateLimit => "rate_limit",
            Self::LimitHeader => "limit_header",
            Self::Body => "body",
            Self::Contract => "contract",
        }
    }
}

/// The instant before which the provider does not want another call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Milliseconds from the receipt of the head. Already floored by nothing: zero is what zero said.
    pub wait_ms: u64,
    /// The same as wall time on our clock.
    pub until: Wall,
    pub source: BoundarySource,
    /// How the raw value was read: `delta seconds`, `http-date against Date`, `epoch seconds` ...
    pub reading: String,
    /// The raw value, as sent (cut at 128 bytes).
    pub raw: String,
}

/// One window of a limit, as far as the answer told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// `requests`, `tokens`, a policy's name ...
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remaining: Option<u64>,
    /// Milliseconds from the receipt of the head until more is available.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reset_ms: Option<u64>,
    /// The window's length, where it was said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_ms: Option<u64>,
}

/// A meaning with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classification {
    pub kind: Kind,
    /// Which rule decided, and the field of the provider's verdict: `status 429`, `code error.code=insufficient_quota`,
    /// `status 429, x-should-retry: false` ...
    pub rule: Cow<'static, str>,
    /// The contract's word that this refusal was decided before any work.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub before_work: bool,
    /// Whose boundary it is.
    #[serde(skip_serializing_if = "Closes::is_narrowest", default)]
    pub closes: Closes,
    /// On a success only a window that it left without quota; what a redirect or a job to poll asks for is not read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boundary: Option<Boundary>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub windows: Vec<Window>,
    /// The provider's own verdict, where it gave one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub should_retry: Option<bool>,
    /// Signals that were there and could not be read: `retry-after: 120junk`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub malformed: Vec<String>,
    /// Signals that speak against each other; the safe side was taken.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub contradictions: Vec<String>,
    /// Sends that a layer below made by itself, where it says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub below: Option<Below>,
    /// The provider's error code, where the body had one (cut at 64 bytes).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
}
