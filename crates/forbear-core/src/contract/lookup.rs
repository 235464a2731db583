//! How one finds out at a provider whether a write was done whose outcome nobody knows, as data.
//!
//! A rule says which writes it finds, what to ask, and how a match is recognised. A match proves that the write was done. What
//! is not found proves nothing, unless the rule says so, and even then only once a commit can no longer appear late.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LookupRule {
    /// The writes that it finds: method and path template, as the `match` of a route.
    pub of: String,
    /// What the asking goes by.
    pub by: LookupBy,
    /// Where the write carries that name: `body:metadata.reference` of JSON, `form:metadata[reference]` of a form,
    /// `header:x-request-id`, `path:id`. For an operation id, where the provider's answer does: `body:id`.
    pub carried_at: String,
    /// What is asked, a read: `GET /v1/charges/{name}`. `{name}` is what it goes by, `{path.owner}` a segment that the template
    /// of the write names so.
    pub ask: String,
    /// Parameters of its query, whose values may hold the same and `{body.member}`, a member of the write's JSON body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Where the candidates lie in the answer: `$.data[*]`; absent where the whole answer is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_at: Option<String>,
    /// Members of a candidate and what each is where it is the write: `$.metadata.reference: "{name}"`. All of them hold. With
    /// none, a success is the match, as where the name is in the path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub is: BTreeMap<String, String>,
    /// When a candidate was made (`$.created_at`, RFC 3339 or epoch seconds). One from before the first attempt is another's,
    /// which tells where a name is not made for this call alone: a login, a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_at: Option<String>,
    /// How late a commit may still appear: not found before that says nothing.
    pub visible_within_seconds: u64,
    /// Once that has passed, not found means not done. Only where the asking sees every write: a search that may be late, or a
    /// list that is cut, is no proof, and a person decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absence_is_proof: bool,
    /// Where this was read.
    pub source: String,
    /// No primary source confirmed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
}

/// By which of its names a write is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LookupBy {
    /// The provider's own name for it, which only an answer tells.
    OperationId,
    /// The idempotency key.
    Key,
    /// A reference that the client chose.
    Reference,
}
