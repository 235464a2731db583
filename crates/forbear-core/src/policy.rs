//! What may be spent on retries, and what bounds everything: the policy as data.
//!
//! The server reads it from YAML (`forbear.default.yaml` names every key); the core only asks it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::contract::{Contract, ScopeLimits};

/// The whole of the decision-making configuration. `providers` holds merged contracts, built in and the user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub request_classes: BTreeMap<String, ClassRule>,
    pub shared_scope: ScopeLimits,
    pub task: TaskRule,
    pub backoff: BackoffRule,
    pub pacing: PacingRule,
    pub providers: BTreeMap<String, Contract>,
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
}

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
    pub base_ms: u64,
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
}
