//! What may be spent on retries, and what bounds everything: the policy as data.
//!
//! The server reads it from YAML (`forbear.default.yaml` names every key); the core only asks it. [`Policy::default`] is
//! what ships, without providers; [`check`] says what is wrong with a policy, and [`Compiled`] is one that may be used.

mod check;
mod compiled;
mod scopes;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::breaker::BreakerRule;
use crate::contract::{Contract, ScopeLimits};

pub use check::{Fault, FaultKind, check};
pub use compiled::{Class, Compiled, CompiledProvider, Limits};
pub use scopes::{By, CompiledScope, ScopeFault};

/// The whole of the decision-making configuration. `providers` holds merged contracts, built in and the user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Whether Forbear decides, or only watches and says what it would have decided.
    pub mode: Mode,
    /// What may be spent on one action, by its class.
    pub request_classes: BTreeMap<String, ClassRule>,
    /// Limits of every scope whose provider says nothing narrower.
    pub shared_scope: ScopeLimits,
    /// What one task may spend on retries, over all of its actions.
    pub task: TaskRule,
    /// Waiting where the provider names no boundary.
    pub backoff: BackoffRule,
    /// How waiters leave when a scope opens again.
    pub pacing: PacingRule,
    /// Whose turn comes how often.
    pub fairness: FairnessRule,
    /// What fails in the same way again and again is not sent for a while.
    pub breakers: BreakerRule,
    /// Providers by name, the first segment of the path that agents use.
    pub providers: BTreeMap<String, Contract>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            request_classes: default_classes(),
            // Eight calls at once is what a small API stands, and more than one agent has open. 250 places hold a burst of
            // ten agents of 25 calls. 60 retries a minute are two full rounds of eight slots with three retries each,
            // with some to spare: a scope that needs more than that is down.
            shared_scope: ScopeLimits {
                max_delayed_requests: Some(250),
                max_concurrent_requests: Some(8),
                max_retries_per_minute: Some(60),
                kept_for_interactive: Some(0),
            },
            task: TaskRule { max_retries: 10, max_wait_seconds: 600 },
            backoff: BackoffRule { base_ms: 1_000, cap_ms: 60_000, floor_ms: 1_000 },
            pacing: PacingRule { release_gap_ms: 100, jitter_ms: 100, target_share_bp: 9_500, arrival_spread_ms: 250 },
            fairness: FairnessRule {
                interactive_weight: 8,
                normal_weight: 4,
                background_weight: 1,
                claim_max: Priority::Interactive,
            },
            breakers: BreakerRule::default(),
            providers: BTreeMap::new(),
        }
    }
}

/// The four classes that are always there.
fn default_classes() -> BTreeMap<String, ClassRule> {
    let rule = |max_attempts, max_wait_seconds, retry_statuses: &[u16], unknown_resends| ClassRule {
        rank: None,
        max_attempts,
        max_wait_seconds,
        retry_statuses: retry_statuses.to_vec(),
        unknown_resends,
        unsent_resends: default_unsent_resends(),
        max_queue_seconds: default_max_queue_seconds(),
        deadline_seconds: default_deadline_seconds(),
    };
    BTreeMap::from([
        (Rank::Read.class().into(), rule(4, 90, &[408, 429, 500, 502, 503, 504], 0)),
        (Rank::IdempotentWrite.class().into(), rule(3, 120, &[408, 429, 502, 503, 504], 0)),
        (Rank::UncertainWrite.class().into(), rule(1, 0, &[], 0)),
        // A completion leaves nothing behind but its cost, so that one lost answer may be asked for again.
        (Rank::Inference.class().into(), rule(4, 120, &[408, 429, 500, 502, 503, 504, 529], 1)),
    ])
}

/// What Forbear does with the calls of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Holds, retries, joins and refuses, as the policy says.
    Enforce,
    /// Forwards each call once, as it is, and records what would have been decided.
    Observe,
}

/// How strict a class is: `read` < `inference` < `idempotent_write` < `uncertain_write`. A class that the policy adds
/// carries the rank of the built-in whose rules of evidence it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    Read,
    Inference,
    IdempotentWrite,
    UncertainWrite,
}

impl Rank {
    /// Whether a send may leave a lasting effect, so that its intent must be durable first.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::IdempotentWrite | Self::UncertainWrite)
    }

    /// The built-in class of this rank.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Inference => "inference",
            Self::IdempotentWrite => "idempotent_write",
            Self::UncertainWrite => "uncertain_write",
        }
    }

    /// The rank of a built-in class.
    #[must_use]
    pub fn built_in(class: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.class() == class)
    }

    pub const ALL: [Self; 4] = [Self::Read, Self::Inference, Self::IdempotentWrite, Self::UncertainWrite];
}

/// Whose turn comes rather: what a person waits for, the rest, and what has time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Interactive,
    #[default]
    Normal,
    Background,
}

impl Priority {
    /// The highest first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Normal, Self::Background];

    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Normal => "normal",
            Self::Background => "background",
        }
    }

    /// A priority by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == name)
    }
}

/// What may be spent on one action of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRule {
    /// The built-in class whose rules of evidence apply. The four built-in classes are their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Sends of one action, the first included.
    pub max_attempts: u32,
    /// From the first refusal on.
    pub max_wait_seconds: u64,
    /// Statuses after which a further attempt may be made, where evidence and contract allow it.
    pub retry_statuses: Vec<u16>,
    /// Resends after an attempt whose fate is unknown. Above 0 only for classes without lasting effect.
    #[serde(default)]
    pub unknown_resends: u32,
    /// Resends after an attempt that is proven unsent or unprocessed; those cost no attempt.
    #[serde(default = "default_unsent_resends")]
    pub unsent_resends: u32,
    /// Before the first send.
    #[serde(default = "default_max_queue_seconds")]
    pub max_queue_seconds: u64,
    /// The whole action's deadline, where the agent names none; also the most an agent may ask for.
    #[serde(default = "default_deadline_seconds")]
    pub deadline_seconds: u64,
}

pub const fn default_unsent_resends() -> u32 {
    2
}
pub const fn default_max_queue_seconds() -> u64 {
    60
}
pub const fn default_deadline_seconds() -> u64 {
    900
}

/// What one task may spend on retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskRule {
    /// Retries of all of a task's actions together.
    pub max_retries: u32,
    /// Waiting time of all of a task's actions together.
    pub max_wait_seconds: u64,
}

/// Waiting where the provider names no boundary: `uniform(0, min(cap, base * 2^n))`, n = 1 for the first retry, and
/// never less than the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackoffRule {
    /// Doubled for each further retry.
    pub base_ms: u64,
    /// No wait of our own choosing is longer; one that the provider names may be.
    pub cap_ms: u64,
    /// The least wait before any retry, also where a provider says `Retry-After: 0`.
    pub floor_ms: u64,
}

/// How waiters leave when a scope opens again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PacingRule {
    /// Between two sends of a scope that has just opened.
    pub release_gap_ms: u64,
    /// Added at random on top of a boundary and of each gap; never taken away.
    pub jitter_ms: u64,
    /// How much of a published limit is used, in basis points.
    pub target_share_bp: u64,
    /// By how much the way to a provider may differ from call to call: a limit that counts by arrival sees the calls of so
    /// much longer a time at once.
    pub arrival_spread_ms: u64,
}

/// Turns of a scope's line, beside each other. Each class waits for its own, and none for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FairnessRule {
    pub interactive_weight: u32,
    pub normal_weight: u32,
    pub background_weight: u32,
    /// The highest priority that an agent can claim.
    pub claim_max: Priority,
}

impl FairnessRule {
    /// In the order of [`Priority::ALL`].
    #[must_use]
    pub const fn weights(self) -> [u32; 3] {
        [self.interactive_weight, self.normal_weight, self.background_weight]
    }
}
