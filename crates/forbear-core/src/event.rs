//! Durable facts. Everything that must outlive the process is an [`Event`]; [`Coordinator::apply`] is the only place
//! where one changes state, at the decision and at replay alike.
//!
//! No credential and no body is ever in an event: content is named by digest and size, paths by their template.
//!
//! [`Coordinator::apply`]: crate::coordinator::Coordinator::apply

use serde::{Deserialize, Serialize};

use crate::breaker::{Circuit, Opened};
use crate::classify::{Boundary, Classification, Window};
use crate::effect::{Effect, Evidence};
use crate::ids::{
    ActionId, AttemptNo, ClassName, Digest, Key, PolicyMark, ProviderName, Route, RunId, ScopeId, Seq, TaskId, TenantId,
};
use crate::input::owner;
use crate::policy::Rank;
use crate::time::Wall;

/// The version that this code writes. Older ones are read for ever.
pub const EVENT_VERSION: u8 = 1;

/// One fact, with where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub v: u8,
    pub seq: Seq,
    pub at: Wall,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub action: Option<ActionId>,
    /// The action's event before this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prev: Option<Seq>,
    /// The policy in force.
    pub policy: PolicyMark,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    PolicyLoaded {
        digest: Digest,
        by: String,
    },
    ActionRequested(Box<ActionRequested>),
    ActionSent {
        attempt: AttemptNo,
    },
    ActionResult(Box<ActionResult>),
    /// A further attempt was planned and charged.
    RetryScheduled {
        attempt: AttemptNo,
        scheduled_retry_at: Wall,
        retry_not_before: Option<Wall>,
        reason: String,
        scope: ScopeId,
        task: TaskId,
        wait_ms: u64,
    },
    RetryStarted {
        attempt: AttemptNo,
        retry_started_at: Wall,
    },
    /// A charged retry that never left: the charge goes back.
    RetryReturned {
        attempt: AttemptNo,
        scope: ScopeId,
        task: TaskId,
        wait_ms: u64,
    },
    ScopeUpdated(Box<ScopeUpdated>),
    ReconciliationRequired {
        attempt: AttemptNo,
        reason: String,
    },
    TaskCancelled {
        task: TaskId,
        by: String,
    },
    RunCancelled {
        run: RunId,
        by: String,
    },
    /// This action alone: its end follows.
    ActionCancelled {
        by: String,
    },
    /// What was cancelled by mistake is asked for again.
    TaskReopened {
        task: TaskId,
        by: String,
    },
    RunReopened {
        run: RunId,
        by: String,
    },
    /// What failed again and again is not sent for a while.
    CircuitOpened(Box<Opened>),
    CircuitClosed {
        circuit: Circuit,
        reason: String,
    },
    ActionFinished(Box<ActionFinished>),
    /// Another call was answered with this action's result instead of being sent.
    CallJoined {
        how: Joined,
        /// The task to whose budget a repeat is charged, of a layer above that repeats calls by itself.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        charged: Option<TaskId>,
    },
    /// The call was only watched: what would have been decided here.
    DecisionObserved {
        would: Would,
    },
    /// Events that were decided but never became durable: how many at most, and why.
    LogGap {
        events_at_most: u64,
        reason: String,
    },
}

/// What the agent wants, before anything is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRequested {
    pub task: TaskId,
    pub run: RunId,
    pub provider: ProviderName,
    pub scope: ScopeId,
    /// The credential, where its account has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<TenantId>,
    pub route: Route,
    pub class: ClassName,
    pub rank: Rank,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub content_digest: Option<Digest>,
    pub content_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<KeyUsed>,
    pub deadline: Wall,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
    /// Derived from the reference and its task: equal where an agent means the same effect.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference_key: Option<Key>,
    /// Of the id that its client gives to all sends of one call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invocation: Option<Digest>,
}

impl ActionRequested {
    /// Whose agent asked.
    #[must_use]
    pub fn owner(&self) -> TenantId {
        owner(&self.scope, self.tenant.as_ref())
    }
}

/// The idempotency key of an action. It never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUsed {
    pub header: String,
    pub value: Key,
    pub origin: KeyOrigin,
    /// How long the provider is known to honour it; absent when nothing says that it does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retention_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrigin {
    /// The agent's own, forwarded byte for byte.
    Agent,
    /// Derived from the agent's task and reference, so that it can be made again.
    Derived,
    /// Derived from the action id: it dies with the journal.
    Made,
}

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionResult {
    pub attempt: AttemptNo,
    pub evidence: Evidence,
    pub effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub classification: Option<Box<Classification>>,
    /// What the transport saw, in words: `connection reset after 1,024 bytes`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transport: Option<String>,
}

/// The register moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeUpdated {
    pub scope: ScopeId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_not_before: Option<Wall>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub boundary: Option<Boundary>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub windows: Vec<Window>,
    /// What stood where a boundary should, and could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub malformed: Vec<String>,
    pub reason: String,
}

/// The end, or the standing, of an action. A straight read is this one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionFinished {
    pub outcome: Outcome,
    pub effect: Effect,
    pub attempts: u32,
    pub waited_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Why it was not sent at once, where it was not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waited_for: Option<WaitedFor>,
    /// Only where no `action_requested` came before: a read that went straight.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub straight: Option<Straight>,
    /// Nobody was there to be told of it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub agent_left: bool,
    /// It was not sent because of another action.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused: Option<Refused>,
}

/// Why a call is not sent where its name or content is another action's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// That one was done.
    AlreadyDone,
    /// Nobody knows whether that one was done.
    Open,
    /// That one has other content.
    KeyMismatch,
}

impl Straight {
    /// Whose agent asked.
    #[must_use]
    pub fn owner(&self) -> TenantId {
        owner(&self.scope, self.tenant.as_ref())
    }
}

impl Refused {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlreadyDone => "already_done",
            Self::Open => "open",
            Self::KeyMismatch => "key_mismatch",
        }
    }
}

/// What would have been decided of a call that was only watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Would {
    /// It would have waited before its first send; without `hold_ms` until a slot is free.
    Hold {
        reason: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        hold_ms: Option<u64>,
    },
    /// It would have got the result of that action, and not been sent.
    Join { to: ActionId, how: Joined },
    /// It would not have been sent.
    Refuse { why: Refused, of: ActionId },
    /// It would have been sent again after this wait.
    Retry { wait_ms: u64, reason: String },
    /// It would have ended here, with an answer of Forbear's own.
    End { outcome: Outcome, reason: String },
}

/// What an action waited for before its first send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// `boundary`, `slot`, `pacing`.
    pub reason: String,
    /// The instant that was waited for, where there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Wall>,
}

/// Who asked for what, in the one event of a straight read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Straight {
    pub task: TaskId,
    pub run: RunId,
    pub scope: ScopeId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<TenantId>,
    pub route: Route,
    pub class: ClassName,
}

/// By what a call was known as a repeat of an action on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joined {
    /// Its idempotency key.
    SameKey,
    /// Its `Forbear-Reference`.
    SameReference,
    /// Its client's own mark, and the same content.
    MarkedRepeat,
    /// The same content, and the first call's agent had left.
    FirstLeft,
}

impl Joined {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameKey => "same_key",
            Self::SameReference => "same_reference",
            Self::MarkedRepeat => "marked_repeat",
            Self::FirstLeft => "first_left",
        }
    }
}

/// How an action ends or stands: the closed list of DESIGN section 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    Rejected,
    BudgetExhausted,
    DeadlineExhausted,
    OutcomeUnknown,
    NotApplied,
    Shed,
    Deferred,
    Cancelled,
    Denied,
    /// It failed in the same way too often, or its provider is down: it was not sent.
    CircuitOpen,
    /// A stream that ended without its end, or with an error inside.
    StreamIncomplete,
}

impl Outcome {
    pub const ALL: [Self; 12] = [
        Self::Succeeded,
        Self::Rejected,
        Self::BudgetExhausted,
        Self::DeadlineExhausted,
        Self::OutcomeUnknown,
        Self::NotApplied,
        Self::Shed,
        Self::Deferred,
        Self::Cancelled,
        Self::Denied,
        Self::CircuitOpen,
        Self::StreamIncomplete,
    ];

    #[must_use]
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::OutcomeUnknown)
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Rejected => "rejected",
            Self::BudgetExhausted => "budget_exhausted",
            Self::DeadlineExhausted => "deadline_exhausted",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::NotApplied => "not_applied",
            Self::Shed => "shed",
            Self::Deferred => "deferred",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
            Self::CircuitOpen => "circuit_open",
            Self::StreamIncomplete => "stream_incomplete",
        }
    }
}
