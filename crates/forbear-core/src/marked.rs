//! Ended writes without a name, as far as a repeat that its client marks needs to know them.
//!
//! A mark says that a call was made before, and not which. With an id that the client gives to all sends of one call it is
//! exact, whichever send comes first, and holds for as long as a name does. Without one it means the newest of the equal
//! writes, for a quarter of an hour: clients repeat a call within seconds, a minute at most, so that an older write is another
//! call's.
//!
//! It refuses to know what nobody marks: equal calls may be meant to be equal. At its bound the oldest is forgotten.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::event::{ActionFinished, ActionRequested};
use crate::identity::{ENDED_KEPT_MS, ENDED_MAX, names};
use crate::ids::{ActionId, Digest, Route, TenantId};
use crate::time::Wall;

/// How long a mark without an id is taken for the newest equal write.
const WITHOUT_ID_MS: u64 = 15 * 60_000;

/// What the sends of one call have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Call {
    /// Older snapshots name the account, which was the credential then.
    #[serde(alias = "scope")]
    owner: TenantId,
    route: Route,
    content_digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    invocation: Option<Digest>,
}

/// The newest write of a call that came to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Send {
    #[serde(flatten)]
    call: Call,
    action: ActionId,
    effect: Effect,
    status: Option<u16>,
    attempts: u32,
    at: Wall,
}

/// The memory of them, bounded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Send>", into = "Vec<Send>")]
pub struct Marked {
    sends: BTreeMap<ActionId, Send>,
    newest: BTreeMap<Call, ActionId>,
}

impl Marked {
    /// Also one that was not done: it is the one that a mark means then, and may be sent again.
    pub(crate) fn remember(
        &mut self,
        action: ActionId,
        requested: &ActionRequested,
        finished: &ActionFinished,
        at: Wall,
    ) {
        let is_named = names(requested.key.as_ref(), requested.reference_key.as_ref()).next().is_some();
        let Some(content_digest) = requested.content_digest.filter(|_| requested.rank.writes() && !is_named) else {
            return;
        };
        let (owner, route) = (requested.owner(), requested.route.clone());
        let call = Call { owner, route, content_digest, invocation: requested.invocation };
        let (effect, status, attempts) = (finished.effect, finished.status, finished.attempts);
        self.insert(Send { call, action, effect, status, attempts, at });
        while let Some((oldest, is_old)) = self.sends.iter().next().map(|(id, send)| (*id, send.is_old(at))) {
            if self.sends.len() <= ENDED_MAX && !is_old {
                break;
            }
            if let Some(send) = self.sends.remove(&oldest) {
                self.newest.remove(&send.call);
            }
        }
    }

    fn insert(&mut self, send: Send) {
        if let Some(older) = self.newest.insert(send.call.clone(), send.action) {
            self.sends.remove(&older);
        }
        self.sends.insert(send.action, send);
    }

    /// The write that a marked repeat means, if that one was done.
    pub(crate) fn done(
        &self,
        owner: &TenantId,
        route: &Route,
        content_digest: Digest,
        invocation: Option<Digest>,
        now: Wall,
    ) -> Option<ActionId> {
        let call = Call { owner: owner.clone(), route: route.clone(), content_digest, invocation };
        let send = self.sends.get(self.newest.get(&call)?)?;
        (send.effect == Effect::Applied && !send.is_old(now)).then_some(send.action)
    }

    /// The status and the attempts of a write that is remembered.
    pub(crate) fn told(&self, action: ActionId) -> Option<(Option<u16>, u32)> {
        self.sends.get(&action).map(|send| (send.status, send.attempts))
    }
}

impl Send {
    const fn is_old(&self, now: Wall) -> bool {
        let kept_ms = if self.call.invocation.is_some() { ENDED_KEPT_MS } else { WITHOUT_ID_MS };
        self.at.ms_until(now) >= kept_ms
    }
}

impl From<Vec<Send>> for Marked {
    fn from(sends: Vec<Send>) -> Self {
        let mut marked = Self::default();
        sends.into_iter().for_each(|send| marked.insert(send));
        marked
    }
}

impl From<Marked> for Vec<Send> {
    fn from(marked: Marked) -> Self {
        marked.sends.into_values().collect()
    }
}
