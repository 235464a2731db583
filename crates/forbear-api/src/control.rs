//! The types of the control API. Each is what is sent, member by member; a server fills them in, a client reads them.
//!
//! Members that are not known are `null` and present, so that a reader never has to tell "absent" from "unknown".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::at::At;

/// Actions of one page where the query names no limit.
pub const PAGE_DEFAULT: u32 = 50;
/// Actions of one page at most.
pub const PAGE_MAX: u32 = 1_000;

/// Whether new calls are taken, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    pub ready: bool,
    /// Why not; null when ready.
    pub why: Option<String>,
}

/// One row of the register: what is known of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScopeRow {
    pub provider: String,
    /// The provider and its account: a keyed digest of the credential, never the credential.
    pub scope: String,
    /// `*` where the scope covers every class.
    pub request_class: String,
    /// Nothing is sent before this instant; null when the scope is open.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_allowed_at: Option<At>,
    /// The least that any window has left, as last told.
    pub remaining: Option<u64>,
    pub reset_after_seconds: Option<u64>,
    /// Where the boundary was read: `retry_after`, `rate_limit`, …, `malformed` where it could not be read, or
    /// `uncertain_boundary` where nothing was said; null when open.
    pub source: Option<String>,
    pub in_flight: u32,
    /// Actions that wait in this scope.
    pub delayed: u32,
    pub limits: Option<ScopeLimits>,
    pub windows: Vec<Window>,
    pub retries_last_minute: u32,
}

/// A list that says whether it is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Listed<T> {
    pub items: Vec<T>,
    /// There are more than one answer holds.
    pub cut: bool,
}

impl<T> Listed<T> {
    /// The first `max` of them.
    pub fn first(max: usize, of: impl IntoIterator<Item = T>) -> Self {
        let mut of = of.into_iter();
        let items = of.by_ref().take(max).collect();
        Self { items, cut: of.next().is_some() }
    }
}

/// The register, in the order of its scopes.
pub type Scopes = Listed<ScopeRow>;

/// The limits in force of one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScopeLimits {
    pub max_delayed_requests: u32,
    pub max_concurrent_requests: u32,
    pub max_retries_per_minute: u32,
}

/// One window of a provider's limit, as last told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    pub name: String,
    pub limit: Option<u64>,
    pub remaining: Option<u64>,
    pub reset_ms: Option<u64>,
    pub window_ms: Option<u64>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActionRow {
    pub action: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: At,
    /// Null while it stands.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<At>,
    pub provider: String,
    pub scope: String,
    /// Method and path template; never a path with its identifiers.
    pub route: String,
    pub request_class: String,
    pub task: String,
    pub run: String,
    /// Null while it has none.
    pub outcome: Option<String>,
    pub effect: Option<String>,
    /// The provider's last status.
    pub provider_status: Option<u16>,
    pub attempts: u32,
    pub waited_ms: u64,
}

impl ActionRow {
    /// Whether it has no terminal outcome.
    #[must_use]
    pub const fn open(&self) -> bool {
        self.finished_at.is_none()
    }
}

/// One action's whole story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ActionStory {
    pub action: ActionRow,
    /// Oldest first.
    pub events: Vec<StoryEvent>,
    /// Earlier events are no longer kept.
    pub cut: bool,
    /// Sends beyond its attempts that layers below made by themselves, as far as answers said so.
    #[serde(default)]
    pub sends_below: u32,
    /// What it does right now; null once it has ended.
    #[serde(default)]
    pub now: Option<Standing>,
}

/// What an action that an agent waits for does right now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Standing {
    /// `waiting`, `in_flight`, `relaying`, or `telling` where the provider is done and the agent has not taken it all.
    pub stage: String,
    /// Why it waits: `boundary`, `backoff`, `slot` or `pacing`.
    pub waits_for: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_allowed_at: Option<At>,
    /// The how manyth it is of those who wait at its home, by when they came. Turns go by priority, lane, credential and task, so
    /// that a later one may leave before. Null where nobody counted.
    #[serde(default)]
    pub place: Option<u32>,
    pub attempts: u32,
    pub waited_ms: u64,
}

/// One durable fact, in words and as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoryEvent {
    #[schema(value_type = String, format = DateTime)]
    pub at: At,
    /// Its place in the journal.
    pub seq: u64,
    #[serde(rename = "type")]
    pub kind: String,
    /// One line that a person can read, with times and reasons.
    pub text: String,
    /// The event as the journal has it.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// A part of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Ask again with `before` set to this; null at the end.
    pub next: Option<String>,
}

/// Which actions are wanted; what is absent does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ActionQuery {
    pub task: Option<String>,
    pub run: Option<String>,
    pub outcome: Option<String>,
    /// Only those without a terminal outcome.
    pub open: bool,
    /// 50 where absent, 1,000 at most.
    pub limit: Option<u32>,
    /// Only those that began before this action.
    pub before: Option<String>,
}

/// What was done, and what would have been done where calls are only watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// The first event that was counted; null where there was none.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub from: Option<At>,
    /// The last one.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub to: Option<At>,
    pub providers: Vec<ProviderReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderReport {
    pub provider: String,
    /// Of all its scopes.
    pub total: ScopeReport,
    pub scopes: Vec<ScopeReport>,
}

/// The calls of one scope that began and ended in the time that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScopeReport {
    /// `*` for all of a provider; `provider/*` for those beyond the first thousand.
    pub scope: String,
    pub calls: u64,
    pub sends: u64,
    /// What Forbear did.
    pub done: Decided,
    /// What it would have done, where calls are only watched.
    pub would: Decided,
}

/// How many calls were decided on that did not just pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decided {
    /// Did not reach the provider when they came: held, joined, done before, or open.
    pub saved: u64,
    /// Would have acted, or may have acted, a second time: joined, done before, or open.
    pub duplicates_prevented: u64,
    pub held: u64,
    /// Further sends.
    pub retries: u64,
    pub joined: u64,
    pub already_done: u64,
    pub open: u64,
    pub key_mismatch: u64,
    /// Ended with an answer of Forbear's own for another reason.
    pub ended: u64,
    pub waits: Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waits {
    pub count: u64,
    pub total_ms: u64,
    /// To an eighth.
    pub p50_ms: u64,
    pub max_ms: u64,
}

/// From when on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct SinceQuery {
    /// RFC 3339, or a duration before the newest event on record, such as `90m`, `24h` or `7d`; a day where absent.
    pub since: Option<String>,
}

/// Rules for routes that were seen and have none. Each is a proposal, and none is looser than what holds without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteSuggestions {
    pub items: Vec<RouteSuggestion>,
    /// Calls on routes beyond those that are told apart.
    pub calls_beyond: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteSuggestion {
    pub provider: String,
    #[serde(rename = "match")]
    pub pattern: String,
    pub class: String,
    pub calls: u64,
    /// How many calls ended with each status.
    pub statuses: BTreeMap<u16, u64>,
    pub reason: String,
    /// What may stand instead of the class where the provider's documentation says that it honours the key; else null.
    pub instead: Option<String>,
}

/// From when on, and of which provider; all where absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct RoutesQuery {
    /// RFC 3339, or a duration before the newest event on record, such as `90m`, `24h` or `7d`; a day where absent.
    pub since: Option<String>,
    pub provider: Option<String>,
}

/// What can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Named {
    Task,
    Run,
    Action,
}

impl Named {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Run => "run",
            Self::Action => "action",
        }
    }
}

/// What a cancel did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    pub what: Named,
    pub id: String,
    /// Its actions that were waiting or on the wire.
    pub actions: u32,
    /// Whether any action of it was ever seen, as far as the journal goes back; null where that could not be read.
    pub known: Option<bool>,
}

/// What taking a cancel back did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reopened {
    pub what: Named,
    pub id: String,
    /// It was cancelled before.
    pub was_cancelled: bool,
}

/// What reading the configuration again did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigReloaded {
    /// The name of the policy in force from now on.
    pub policy: String,
    /// It is another than before.
    pub changed: bool,
    /// Keys whose new values hold after the next start.
    pub needs_restart: Vec<String>,
    pub warnings: Vec<String>,
}

/// Which of the live actions: all where nothing is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct LiveQuery {
    pub task: Option<String>,
    /// A home scope, as the register names it.
    pub scope: Option<String>,
}

/// An action that waits or is on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LiveRow {
    pub action: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: At,
    pub provider: String,
    pub scope: String,
    pub route: String,
    pub request_class: String,
    pub task: String,
    pub run: String,
    #[serde(flatten)]
    pub now: Standing,
}

/// What this server has in line and on the wire, oldest first.
pub type Live = Listed<LiveRow>;

/// What is not sent for a while, because it failed again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CircuitRow {
    /// `request`, `path`, `credential`, `endpoint` or `scope`.
    pub kind: String,
    /// The scope or the credential's account, as the register names it.
    pub scope: String,
    pub run: Option<String>,
    pub route: Option<String>,
    /// The last failure's; null where no answer came.
    pub status: Option<u16>,
    pub code: Option<String>,
    pub failures: u32,
    /// From then on one call is let through, and what becomes of it decides.
    #[schema(value_type = String, format = DateTime)]
    pub until: At,
    pub reason: String,
}

/// What is not sent for a while.
pub type CircuitRows = Listed<CircuitRow>;
