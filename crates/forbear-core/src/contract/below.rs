//! What a contract says of layers between Forbear and the provider that try again by themselves: a gateway, a mesh, a kit
//! inside the service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A response header that says how often such a layer sent the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptsBelow {
    pub header: String,
    pub counts: Counted,
}

/// What its number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// All sends, the first included.
    Attempts,
    /// Those after the first.
    Retries,
}
