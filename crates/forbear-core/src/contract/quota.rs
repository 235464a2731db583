//! What a contract says of quotas: the rates that are allowed, and how calls are cut into scopes below the account.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pacer::Unit;

/// One rate that the provider allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateRule {
    /// What is counted.
    pub of: Unit,
    /// So many ...
    pub amount: u64,
    /// ... in so long.
    pub per_seconds: u64,
    /// How many may come at once; absent means half of what `target_share_bp` leaves of the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// A kind of scopes below the account. A call has one of each kind that it falls under, in the order of the contract, broad to
/// narrow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeRule {
    /// What people call it: `model`, `search`.
    pub name: String,
    /// The calls that it holds, as `match` of a route; none named means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// Of those, the calls that it does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// What tells its scopes apart: `route`, `method`, `body:model` (a member of a JSON body), `header:name`, `path:id` (a
    /// segment that each of `routes` names so). Absent, all those calls share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Attempts in flight at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_requests: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateRule>,
}
