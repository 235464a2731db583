//! By what a call is known again: its content, and what the sends of one call have in common.

use forbear_core::fingerprint::{self, Multipart};
use forbear_core::ids::Digest;
use forbear_core::route;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE,
};
use sha2::{Digest as _, Sha256};

use super::call::Call;
use crate::http::body::{Once, Replay};

/// Fields by which one address gives several answers.
const CHOOSING: [HeaderName; 7] =
    [ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, RANGE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH];

impl Call {
    pub(super) fn body_digest(&self, body: &Replay) -> [u8; 32] {
        let kind = self.plain_type();
        if let Some(mut parts) = Multipart::new(kind) {
            body.chunks().iter().for_each(|chunk| parts.pass(chunk));
            return parts.whole().unwrap_or_else(|| body.sha256());
        }
        if !fingerprint::is_json(kind, body.bytes()) {
            return body.sha256();
        }
        let canonical = match body.chunks() {
            [only] => fingerprint::of_json(only, &self.understood.content_ignores),
            chunks => fingerprint::of_json(&chunks.concat(), &self.understood.content_ignores),
        };
        canonical.unwrap_or_else(|| body.sha256())
    }

    /// The type of a body whose bytes are what they say.
    fn plain_type(&self) -> Option<&str> {
        let headers = &self.head.headers;
        headers.get(CONTENT_TYPE).filter(|_| !headers.contains_key(CONTENT_ENCODING)).and_then(|v| v.to_str().ok())
    }

    /// Of a body that is streamed once: its beginning and its length.
    pub(super) fn beginning_digest(&self, body: &Once) -> [u8; 32] {
        let prefix = || body.prefix(self.gateway.limits.replay_bytes_max);
        let parts = Multipart::new(self.plain_type()).and_then(|mut parts| {
            prefix().for_each(|piece| parts.pass(piece));
            parts.beginning()
        });
        let mut hasher = Sha256::new();
        match parts {
            Some(parts) => hasher.update(parts),
            None => prefix().for_each(|piece| hasher.update(piece)),
        }
        hasher.update(body.declared().unwrap_or(u64::MAX).to_be_bytes());
        hasher.finalize().into()
    }

    /// Of the id that its client gives to all sends of one call.
    pub(super) fn invocation(&self) -> Option<Digest> {
        let id = self.understood.marker.as_ref()?.invocation.as_deref()?;
        Some(Digest(Sha256::digest(id).into()))
    }

    /// What makes two writes the same: method, target and body. The route would not do, since it leaves identifiers out. A
    /// target is the same however it is spelled; a trailing slash makes it another.
    pub(super) fn content_digest(&self, body_sha256: &[u8; 32]) -> Digest {
        let mut hasher = Sha256::new();
        // Neither has a space in it, so that no two pairs read alike.
        let target = self.understood.uri.to_string();
        let target = route::unescaped(&target);
        for part in [self.head.method.as_str().as_bytes(), b" ", target.as_bytes(), b" "] {
            hasher.update(part);
        }
        hasher.update(body_sha256);
        Digest(hasher.finalize().into())
    }

    /// What the sends of one call without lasting effect have in common: its content, the fields that choose among answers,
    /// its task, and the id that its client gives it.
    pub(super) fn call_digest(&self, content: Digest) -> Option<Digest> {
        let u = &self.understood;
        if u.class.rank.writes() || (u.marker.is_none() && !u.task_named) {
            return None;
        }
        let mut hasher = Sha256::new();
        hasher.update(content.0);
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
