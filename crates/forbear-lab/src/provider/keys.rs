//! Idempotency keys as providers keep them: one effect a key, replays, mismatches, and forgetting after a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::render::Rendered;

/// So many keys are kept; beyond, the oldest is forgotten, as a provider's retention would.
pub(crate) const KEYS_MAX: usize = 50_000;

/// Space, scope, key.
pub(crate) type KeyId = (String, String, String);

#[derive(Debug)]
struct Kept {
    first_ns: u64,
    body_sha256: String,
    /// In progress until then; `None` while the first request is under way.
    settled_ns: Option<u64>,
    answer: Option<Arc<Rendered>>,
}

#[derive(Debug)]
pub(crate) enum KeyState {
    /// The first of its key: it holds the key until it is settled or given up.
    New,
    InProgress,
    Mismatch,
    Settled(Arc<Rendered>),
}

#[derive(Debug, Default)]
pub(crate) struct Keys(BTreeMap<KeyId, Kept>);

impl Keys {
    pub(crate) fn claim(&mut self, id: &KeyId, body_sha256: Option<&str>, now_ns: u64, retention_ns: u64) -> KeyState {
        if self.0.get(id).is_some_and(|kept| kept.first_ns.saturating_add(retention_ns) <= now_ns) {
            self.0.remove(id);
        }
        let Some(kept) = self.0.get(id) else {
            if self.0.len() >= KEYS_MAX {
                self.forget_oldest();
            }
            let body_sha256 = body_sha256.unwrap_or_default().to_owned();
            self.0.insert(id.clone(), Kept { first_ns: now_ns, body_sha256, settled_ns: None, answer: None });
            return KeyState::New;
        };
        let known = !kept.body_sha256.is_empty();
        if known && body_sha256.is_some_and(|given| given != kept.body_sha256) {
            return KeyState::Mismatch;
        }
        match (&kept.answer, kept.settled_ns) {
            (Some(answer), Some(settled_ns)) if now_ns >= settled_ns => KeyState::Settled(Arc::clone(answer)),
            _ => KeyState::InProgress,
        }
    }

    pub(crate) fn settle(&mut self, id: &KeyId, body_sha256: &str, answer: &Arc<Rendered>, settled_ns: u64) {
        if let Some(kept) = self.0.get_mut(id) {
            body_sha256.clone_into(&mut kept.body_sha256);
            kept.settled_ns = Some(settled_ns);
            kept.answer = Some(Arc::clone(answer));
        }
    }

    /// The first request came to nothing: the key is as if it had never been used.
    pub(crate) fn give_up(&mut self, id: &KeyId) {
        if self.0.get(id).is_some_and(|kept| kept.answer.is_none()) {
            self.0.remove(id);
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, kept)| kept.first_ns).map(|(id, _)| id.clone());
        if let Some(id) = oldest {
            self.0.remove(&id);
        }
    }
}
