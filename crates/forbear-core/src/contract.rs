//! What a provider says and means, as data: one contract a provider, from `providers/*.yaml` or the user's
//! configuration. Nothing here parses files; the server loads and merges, the core reads. Whether the data makes sense is
//! asked in [`policy::check`](crate::policy::check).

mod below;
mod lookup;
mod quota;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classify::Closes;
use crate::policy::Mode;

pub use below::{AttemptsBelow, Counted};
pub use lookup::{LookupBy, LookupRule};
pub use quota::{RateRule, ScopeRule};

/// One provider's contract. Every member has a default, so that a contract says only what is special.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Contract {
    /// The contract this one is laid over: a built-in provider's or another one of the same file. Resolved at loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Where what stands here was read: pages, client libraries at a commit.
    pub sources: Vec<String>,
    /// What no primary source confirmed.
    pub unverified: Vec<String>,
    /// Whether its calls are decided on or only watched; what stands at the top where it is not said.
    pub mode: Option<Mode>,
    /// Where the provider is, without a trailing slash: `https://api.example.com`.
    /// Empty in a built-in contract whose host is each customer's own; it holds once a configuration says it.
    pub base_url: String,
    /// Other hosts of this same API: what points there comes back to Forbear too. A leading `*.` stands for a customer's
    /// own name and tells people what a `base_url` looks like; nothing is rewritten by it.
    pub hosts: Vec<String>,
    /// Without TLS, speak HTTP/2 from the first byte on. With TLS the two sides agree by themselves.
    pub http2_prior_knowledge: bool,
    /// Connections that are open before a call needs one, while the provider was called within the last minute.
    pub warm_connections: u32,
    /// Request headers that carry the credential, first match wins. The account of the scope is a keyed digest of it.
    pub credential_headers: Vec<String>,
    /// Credentials that are one account and share its quota, by the account's name. A credential is named as `forbear scopes`
    /// shows it, which is the digest after the provider's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, Vec<String>>,
    /// Where the provider checks signatures of AWS's kind (SigV4): how long one is taken. A call signed for another host is
    /// refused here, and none is held beyond its signature's life.
    pub signature_seconds: Option<u64>,
    /// Limits of a scope of this provider; what is absent comes from `shared_scope`.
    pub scope: ScopeLimits,
    /// Rates of an account, beside those that its answers tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateRule>,
    /// Scopes below the account, broad to narrow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<ScopeRule>,
    /// Route templates and what they are, the first match wins.
    pub routes: Vec<RouteRule>,
    /// Limit headers beyond the generic dialects, with their value formats.
    pub limit_headers: Vec<LimitHeader>,
    /// The unit of `Retry-After` where the provider breaks RFC 9110 section 10.2.3.
    pub retry_after_unit: RetryAfterUnit,
    /// A 429 is decided before any work, so that the call had no effect.
    pub throttled_before_work: bool,
    /// A 429 without `Retry-After` speaks of a spent quota, not of a burst: no retry.
    pub throttle_needs_retry_after: bool,
    /// Refusals may be XML. Its elements are read as members of a JSON body are, the root being the first: `body:Error.Code`.
    pub xml_errors: bool,
    /// Codes in headers or JSON bodies that tell refusals apart, the first match wins.
    pub codes: Vec<CodeRule>,
    /// Members of a refusal's JSON body that say when the next call is wanted, beyond the usual ones.
    pub waits: Vec<WaitRule>,
    /// Response headers whose `true` or `false` is the provider's own verdict on a retry.
    pub verdict_headers: Vec<String>,
    /// Response headers that tell this provider's clients not to retry.
    pub no_retry_headers: BTreeMap<String, String>,
    /// Response headers whose absolute URLs of this provider's own host come back to Forbear.
    pub url_headers: Vec<String>,
    /// What the provider does with idempotency keys, where it honours any.
    pub idempotency: Option<Idempotency>,
    /// The error member that this provider's clients read.
    pub error_shape: ErrorShape,
    /// How a write whose outcome is unknown is found at the provider.
    pub lookups: Vec<LookupRule>,
    /// Better ways than what a run does call by call, told with an answer once a run.
    pub advice: Vec<AdviceRule>,
    /// Response headers in which a layer between Forbear and the provider says how often it sent the call itself. Those sends
    /// are charged as retries.
    pub attempts_below: Vec<AttemptsBelow>,
    /// How this provider's event streams end, so that a cut one is not taken for a whole one.
    pub stream: StreamRule,
}

impl Default for Contract {
    fn default() -> Self {
        Self {
            extends: None,
            sources: Vec::new(),
            unverified: Vec::new(),
            mode: None,
            base_url: String::new(),
            hosts: Vec::new(),
            http2_prior_knowledge: false,
            warm_connections: 0,
            credential_headers: vec!["authorization".into(), "x-api-key".into(), "api-key".into()],
            accounts: BTreeMap::new(),
            signature_seconds: None,
            scope: ScopeLimits::default(),
            rates: Vec::new(),
            scopes: Vec::new(),
            routes: Vec::new(),
            limit_headers: Vec::new(),
            retry_after_unit: RetryAfterUnit::Seconds,
            throttled_before_work: true,
            throttle_needs_retry_after: false,
            xml_errors: false,
            codes: Vec::new(),
            waits: Vec::new(),
            verdict_headers: vec!["x-should-retry".into()],
            no_retry_headers: BTreeMap::from([("x-should-retry".into(), "false".into())]),
            url_headers: vec!["link".into(), "location".into(), "operation-location".into()],
            idempotency: None,
            error_shape: ErrorShape::Problem,
            lookups: Vec::new(),
            advice: Vec::new(),
            attempts_below: Vec::new(),
            stream: StreamRule::default(),
        }
    }
}

/// Lines of a `text/event-stream` body that say how it ended. A mark is the beginning of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamRule {
    /// A whole stream has one of these; with none named, every stream that is not cut is whole.
    pub ends: Vec<String>,
    /// A stream with one of these failed inside. Before any content it is the answer, and the codes tell which.
    pub errors: Vec<String>,
    /// Events that come before any content and are none: they wait, for two seconds at most, for what follows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preamble: Vec<String>,
}

/// Bounds of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScopeLimits {
    /// Actions that may wait in this scope; one more is shed.
    pub max_delayed_requests: Option<u32>,
    /// Attempts in flight at once.
    pub max_concurrent_requests: Option<u32>,
    /// Retries a minute over all tasks.
    pub max_retries_per_minute: Option<u32>,
    /// Of the attempts in flight, those that only interactive work may be.
    pub kept_for_interactive: Option<u32>,
}

impl ScopeLimits {
    /// These limits where they say something, `base` where they do not.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        Self {
            max_delayed_requests: self.max_delayed_requests.or(base.max_delayed_requests),
            max_concurrent_requests: self.max_concurrent_requests.or(base.max_concurrent_requests),
            max_retries_per_minute: self.max_retries_per_minute.or(base.max_retries_per_minute),
            kept_for_interactive: self.kept_for_interactive.or(base.kept_for_interactive),
        }
    }
}

/// What one kind of call is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// Method and path template: `POST /v1/charges/{id}`; `{name}` is one segment, `{name}:verb` one that ends so, a last
    /// `{name...}` the rest (one segment or more), a method of `*` any. `GET` is `HEAD` as well.
    #[serde(rename = "match")]
    pub pattern: String,
    /// A request class, built in or added by the policy.
    pub class: String,
    /// The request header that carries the idempotency key on this route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// The effect of one send and of many is the same, and repeating it needs no key.
    #[serde(default)]
    pub repeatable: bool,
    /// Equal reads that are open at once may be one send, whose answer is for all who ask: nobody minds one that began before
    /// the call did.
    #[serde(default)]
    pub coalescable: bool,
    /// A success here may hold an error that a code with its status tells. With no such route in a contract, all are.
    #[serde(default)]
    pub disguised: bool,
    /// Members of a JSON body (`createdAt`, `meta.attempt`) that do not tell two calls apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content_ignores: Vec<String>,
}

/// A better way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdviceRule {
    /// What the run does.
    pub when: AdviceKind,
    /// On which route, by its name in the record: the `match` of its rule, or the template of a path without one.
    pub route: String,
    /// What to do instead, in one line.
    pub say: String,
    /// Where: another route, or a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

/// What a run may do in too many calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdviceKind {
    /// One detail route for many ids.
    ManyDetails,
    /// The same call again and again, and its answer does not change.
    Polling,
    /// Page after page, faster than the limit allows.
    Paging,
}

impl AdviceKind {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ManyDetails => "many_details",
            Self::Polling => "polling",
            Self::Paging => "paging",
        }
    }
}

/// One limit header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitHeader {
    pub name: String,
    pub reads: LimitPart,
    /// Which limit it speaks of, so that limit, remaining and reset of one window are read together.
    pub window: String,
    #[serde(default)]
    pub format: ValueFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitPart {
    Limit,
    Remaining,
    Reset,
}

/// How a value is written (every format met in the wild).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValueFormat {
    /// Read by its shape: a Go duration, an RFC 3339 or HTTP date, else a number that is epoch milliseconds from
    /// 10^12, epoch seconds from 10^9 and delta seconds below.
    #[default]
    Auto,
    DeltaSInt,
    DeltaSFloat,
    DeltaMsInt,
    EpochS,
    EpochSFloat,
    EpochMs,
    Rfc3339,
    GoDuration,
    ProtoDuration,
    HttpDate,
    Fraction,
    Prose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterUnit {
    #[default]
    Seconds,
    Milliseconds,
}

/// A code that decides what a refusal means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeRule {
    /// `body:error.code` (members of a JSON body, joined by dots), `event:error.code` (those of the data of an error event in
    /// a stream), `header:name`, or `text` for the body as it stands, where it is no JSON. Absent where the statuses alone decide.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The value is exactly this ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    /// ... or one of these ...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub is_any: Vec<String>,
    /// ... or contains this ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// ... or one of these. With none of the four, the member only has to be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contains_any: Vec<String>,
    /// Only on these statuses; empty means any status of 400 or more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
    pub means: CodeMeaning,
    /// Whether the refusal is decided before any work; absent means what its status says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_work: Option<bool>,
    /// Which of the call's scopes it closes; absent means the account where it is spent, else the narrowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes: Option<Closes>,
    /// How long to wait after this refusal, used where no signal names a boundary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

/// One way in which a body names a wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitRule {
    /// The member, its path joined by dots: `error.limit.reset`. For a bucket that refills, what the call needs.
    pub at: String,
    #[serde(default)]
    pub format: ValueFormat,
    /// For a bucket that refills: what is in it ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<String>,
    /// ... and what comes in every second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<String>,
}

/// What a code means. The names follow DESIGN section 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeMeaning {
    Throttled,
    Exhausted,
    Unavailable,
    Transient,
    /// The first call with this key is still running.
    InProgress,
    /// The key was used with other content.
    KeyMismatch,
    Conflict,
    Rejected,
}

/// What a provider does with a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    /// The request header that carries the key ...
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub header: String,
    /// ... or the member of a JSON body, its path joined by dots. Forbear reads a key there and writes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// A member of the same body that must be `true` for the key to be honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_with: Option<String>,
    /// How long the provider keeps a key.
    pub retention_seconds: u64,
    /// Methods on which it is honoured.
    #[serde(default = "post")]
    pub methods: Vec<String>,
    /// Response header that marks a replayed answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_header: Option<String>,
}

fn post() -> Vec<String> {
    vec!["POST".into()]
}

/// How this provider's clients read an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorShape {
    /// Problem details alone.
    #[default]
    Problem,
    /// `{"error": {"message", "type", "code"}}`
    Openai,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
    /// `{"error": {"type", "code", "message"}}`
    Stripe,
    /// `{"message"}`
    Github,
    /// `{"ok": false, "error"}`
    Slack,
    /// `{"error": {"code", "message", "status"}}`
    Google,
    /// `{"__type", "message"}`
    Aws,
}
