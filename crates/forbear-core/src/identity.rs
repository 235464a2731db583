//! What makes two writes one: the names that their agents gave (an idempotency key, a reference) and their content.
//! Remembers open writes and, within bounds, ended ones, so that a repeat is known as one.
//!
//! It promises that a name is looked up within its credential and route only. What is beyond the bounds is forgotten, the
//! oldest first; then only the provider's own memory of the key is left.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::durable::OpenAction;
use crate::effect::Effect;
use crate::event::{ActionFinished, ActionRequested, KeyOrigin, KeyUsed};
use crate::ids::{ActionId, Digest, Key, Route, TenantId};
use crate::time::Wall;

/// Ended writes that are remembered.
pub const ENDED_MAX: usize = 20_000;
/// How long an ended write is remembered, or as long as its provider honours its key, if that is longer.
pub(crate) const ENDED_KEPT_MS: u64 = 24 * 3_600_000;

/// A name within the credential and the route that it was used with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    owner: TenantId,
    route: Route,
    name: Key,
}

/// A write that came to its end and may be asked for again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Older snapshots name the account, which was the credential then.
    #[serde(alias = "scope")]
    owner: TenantId,
    route: Route,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) key: Option<KeyUsed>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reference_key: Option<Key>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    content_digest: Option<Digest>,
    pub(crate) effect: Effect,
    pub(crate) status: Option<u16>,
    pub(crate) attempts: u32,
    /// Its agent was there when it ended.
    pub(crate) told: bool,
    /// When its key was first used.
    key_since: Wall,
    at: Wall,
}

/// Open and ended writes by their names, and by their content those that an equal write without a name would repeat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    names: BTreeMap<Identity, BTreeSet<ActionId>>,
    contents: BTreeMap<Digest, BTreeSet<ActionId>>,
}

/// One known write, as far as a repeat of it needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub action: ActionId,
    pub key: Option<&'a KeyUsed>,
    pub content: Option<Digest>,
    /// When its key was first used.
    pub key_since: Wall,
    /// Of the id that its client gave it, while it is open.
    pub invocation: Option<Digest>,
    /// Its effect, if it came to an end.
    pub ended: Option<Effect>,
}

/// The names by which an agent can mean the same effect again. A key that was made for one action is none.
pub(crate) fn names<'a>(key: Option<&'a KeyUsed>, reference_key: Option<&'a Key>) -> impl Iterator<Item = &'a Key> {
    let key = key.filter(|k| k.origin != KeyOrigin::Made).map(|k| &k.value);
    key.into_iter().chain(reference_key)
}

impl Index {
    pub(crate) fn open(&mut self, action: ActionId, requested: &ActionRequested) {
        if !requested.rank.writes() {
            return;
        }
        let owner = requested.owner();
        for name in names(requested.key.as_ref(), requested.reference_key.as_ref()) {
            self.add_name(action, &owner, &requested.route, name);
        }
        if let Some(digest) = requested.content_digest {
            self.contents.entry(digest).or_default().insert(action);
        }
    }

    pub(crate) fn close(&mut self, action: ActionId, requested: &ActionRequested) {
        let owner = requested.owner();
        for name in names(requested.key.as_ref(), requested.reference_key.as_ref()) {
            self.drop_name(action, &owner, &requested.route, name);
        }
        self.drop_content(action, requested.content_digest);
    }

    fn add_name(&mut self, action: ActionId, owner: &TenantId, route: &Route, name: &Key) {
        let identity = Identity { owner: owner.clone(), route: route.clone(), name: name.clone() };
        self.names.entry(identity).or_default().insert(action);
    }

    fn drop_name(&mut self, action: ActionId, owner: &TenantId, route: &Route, name: &Key) {
        let identity = Identity { owner: owner.clone(), route: route.clone(), name: name.clone() };
        if let Some(actions) = self.names.get_mut(&identity) {
            actions.remove(&action);
            if actions.is_empty() {
                self.names.remove(&identity);
            }
        }
    }

    fn drop_content(&mut self, action: ActionId, digest: Option<Digest>) {
        let Some(digest) = digest else { return };
        if let Some(actions) = self.contents.get_mut(&digest) {
            actions.remove(&action);
            if actions.is_empty() {
                self.contents.remove(&digest);
            }
        }
    }

    pub(crate) fn named(&self, owner: &TenantId, route: &Route, name: &Key) -> impl Iterator<Item = ActionId> {
        let identity = Identity { owner: owner.clone(), route: route.clone(), name: name.clone() };
        self.names.get(&identity).into_iter().flatten().copied()
    }

    pub(crate) fn with_content(&self, digest: Digest) -> impl Iterator<Item = ActionId> {
        self.contents.get(&digest).into_iter().flatten().copied()
    }
}

/// The memory of ended writes, bounded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Memory(BTreeMap<ActionId, Ended>);

impl Memory {
    pub(crate) fn get(&self, action: ActionId) -> Option<&Ended> {
        self.0.get(&action)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// After a snapshot was read: what it remembers is found again.
    pub(crate) fn enter(&self, index: &mut Index) {
        for (action, ended) in &self.0 {
            ended.enter(*action, index);
        }
    }

    /// Remembers an ended write that may be asked for again: one with a name that left, or one that was done and of which
    /// nobody was told.
    pub(crate) fn remember(
        &mut self,
        index: &mut Index,
        action: ActionId,
        open: &OpenAction,
        finished: &ActionFinished,
        at: Wall,
    ) {
        let requested = &open.requested;
        if !requested.rank.writes() {
            return;
        }
        let is_named = names(requested.key.as_ref(), requested.reference_key.as_ref()).next().is_some();
        let told = !finished.agent_left;
        let may_come_again = is_named && finished.attempts > 0 || !told && finished.effect == Effect::Applied;
        if !may_come_again {
            return;
        }
        let mut ended = Ended {
            owner: requested.owner(),
            route: requested.route.clone(),
            key: requested.key.clone(),
            reference_key: requested.reference_key.clone(),
            content_digest: requested.content_digest,
            effect: finished.effect,
            status: finished.status,
            attempts: finished.attempts,
            told,
            key_since: open.requested_at,
            at,
        };
        if !self.takes_over(index, &mut ended) {
            return;
        }
        ended.enter(action, index);
        self.0.insert(action, ended);
        while let Some((oldest, is_old)) = self.0.iter().next().map(|(id, e)| (*id, e.is_old(at))) {
            if self.0.len() <= ENDED_MAX && !is_old {
                break;
            }
            self.forget(index, oldest);
        }
    }

    /// One memory a name: the newest, unless an older one says that it was done and the newest does not.
    fn takes_over(&mut self, index: &mut Index, ended: &mut Ended) -> bool {
        let older: BTreeSet<ActionId> = names(ended.key.as_ref(), ended.reference_key.as_ref())
            .flat_map(|name| index.named(&ended.owner, &ended.route, name))
            .filter(|id| self.0.contains_key(id))
            .collect();
        let says_more = |e: &Ended| e.effect == Effect::Applied && ended.effect != Effect::Applied;
        if older.iter().any(|id| self.0.get(id).is_some_and(says_more)) {
            return false;
        }
        for id in older {
            if let Some(old) = self.0.get(&id) {
                ended.key_since = ended.key_since.min(old.key_since);
            }
            self.forget(index, id);
        }
        true
    }

    fn forget(&mut self, index: &mut Index, action: ActionId) {
        let Some(ended) = self.0.remove(&action) else { return };
        for name in names(ended.key.as_ref(), ended.reference_key.as_ref()) {
            index.drop_name(action, &ended.owner, &ended.route, name);
        }
        index.drop_content(action, ended.content_digest);
    }
}

impl Ended {
    fn enter(&self, action: ActionId, index: &mut Index) {
        for name in names(self.key.as_ref(), self.reference_key.as_ref()) {
            index.add_name(action, &self.owner, &self.route, name);
        }
        if let Some(digest) = self.content_digest.filter(|_| !self.told && self.effect == Effect::Applied) {
            index.contents.entry(digest).or_default().insert(action);
        }
    }

    fn is_old(&self, now: Wall) -> bool {
        let honoured_ms = self.key.as_ref().and_then(|k| k.retention_seconds).unwrap_or(0).saturating_mul(1_000);
        self.at.ms_until(now) >= honoured_ms.max(ENDED_KEPT_MS)
    }

    pub(crate) fn is_of(&self, owner: &TenantId, route: &Route) -> bool {
        self.owner == *owner && self.route == *route
    }

    pub(crate) fn known(&self, action: ActionId) -> Known<'_> {
        Known {
            action,
            key: self.key.as_ref(),
            content: self.content_digest,
            key_since: self.key_since,
            invocation: None,
            ended: Some(self.effect),
        }
    }
}
