//! Calls that have been here before: a provider whose address leads back to this Forbear, over whatever is between.
//!
//! It marks a call with `CDN-Loop` (RFC 8586), which is made for this and which no hop may take away, under a name that only
//! this Forbear has, so that one behind another is no loop. It promises that a call which comes with its own mark goes no
//! further: a loop costs one turn. An agent's own marks are kept.
//!
//! Only calls over plain `http` are marked. The listener speaks no TLS, so a loop leads over one, and such a base URL is of this
//! machine or a network of one's own. A provider on the net gets what its agent sent and nothing else: it may sign fields, or
//! refuse what it does not know.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::origin::Origin;
use crate::keys::Keys;

const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
const PREFIX: &str = "forbear-";

/// This Forbear's name among the hops of a call.
#[derive(Debug, Clone)]
pub struct Hop(HeaderValue);

impl Hop {
    /// The same after a restart, and no other's.
    #[must_use]
    pub fn new(keys: &Keys) -> Self {
        let own: String = keys.account("cdn-loop", b"own").chars().filter(char::is_ascii_alphanumeric).collect();
        let name = HeaderValue::from_str(&format!("{PREFIX}{own}"));
        Self(name.unwrap_or(HeaderValue::from_static(PREFIX)))
    }

    pub(super) fn mark(&self, origin: &Origin, fields: &mut HeaderMap) {
        if !origin.is_tls() {
            fields.append(CDN_LOOP, self.0.clone());
        }
    }

    /// Whether a call has come through here.
    pub(super) fn is_in(&self, fields: &HeaderMap) -> bool {
        let own = self.0.as_bytes();
        let hops = fields.get_all(CDN_LOOP).into_iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
        hops.filter_map(|hop| hop.split(|b| *b == b';').next()).any(|id| id.trim_ascii().eq_ignore_ascii_case(own))
    }
}
