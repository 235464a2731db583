//! By what a call is known again: its content, and what the sends of one call have in common.

use forbear_core::fingerprint;
use forbear_core::ids::Digest;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE,
};
use sha2::{Digest as _, Sha256};

use super::call::Call;
use crate::http::body::{Replay, RequestBody};

/// Fields by which one address gives several answers.
const CHOOSING: [HeaderName; 7] =
    [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, RANGE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH];

impl Call {
    pub(super) fn body_digest(&self, body: &Replay) -> [u8; 32] {
        let kind = self.head.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
        if !fingerprint::is_json(kind, body.bytes()) || self.head.headers.contains_key(CONTENT_ENCODING) {
            return body.sha256();
        }
        let canonical = match body.chunks() {
            [only] => fingerprint::of_json(only, &self.understood.content_ignores),
            chunks => fingerprint::of_json(&chunks.concat(), &self.understood.content_ignores),
        };
        canonical.unwrap_or_else(|| body.sha256())
    }

    /// What makes two writes the same: method, target and body. The route would not do, since it leaves identifiers out.
    pub(super) fn content_digest(&self, body_sha256: &[u8; 32]) -> Digest {
        let mut hasher = Sha256::new();
        // Neither has a space in it, so that no two pairs read alike.
        for part in [self.head.method.as_str().as_bytes(), b" ", self.understood.uri.to_string().as_bytes(), b" "] {
            hasher.update(part);
        }
        hasher.update(body_sha256);
        Digest(hasher.finalize().into())
    }

    /// What the sends of one call without lasting effect have in common: its content, the fields that choose among answers,
    /// its task, and the id that its client gives it.
    pub(super) fn call_digest(&self) -> Option<Digest> {
        let u = &self.understood;
        let Some(RequestBody::Replayable(body)) = &self.body else { return None };
        if u.class.rank.writes() || (u.marker.is_none() && !u.task_named) {
            return None;
        }
        let mut hasher = Sha256::new();
        hasher.update(self.content_digest(&self.body_digest(body)).0);
        let task = u.task_named.then(|| u.task.as_str().as_bytes());
        let invocation = u.marker.as_ref().and_then(|marker| marker.invocation.as_deref()).map(str::as_bytes);
        let chosen = CHOOSING.iter().map(|name| self.head.headers.get(name).map(HeaderValue::as_bytes));
        for part in [task, invocation].into_iter().chain(chosen) {
            hasher.update(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            hasher.update(part.unwrap_or_default());
        }
        Some(Digest(hasher.finalize().into()))
    }
}
