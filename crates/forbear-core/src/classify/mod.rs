//! What an answer means. Pure: status, header fields, a prefix of the body and the contract go in, a
//! [`Classification`] with its reason comes out. Malformed signals are data, never errors.
//!
//! Classify first, then [`effect`](crate::effect): the kind says what to do about the scope, the effect what happened to
//! the world.

use serde::{Deserialize, Serialize};

use crate::time::{Now, Wall};

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
    /// Which rule decided: `status 429`, `code error.code=insufficient_quota`, `x-should-retry: false` ...
    pub rule: String,
    /// The contract's word that this refusal was decided before any work.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub before_work: bool,
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
    /// The provider's error code, where the body had one (cut at 64 bytes).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
}
