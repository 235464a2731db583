//! Which writes of before a call may repeat: by their names, by their content, and by what a client's mark says.

use crate::durable::Durable;
use crate::identity::Known;
use crate::ids::{ActionId, Digest, Key, Route, TenantId};

impl Durable {
    /// The writes of the same credential and route that bear this name, the oldest first.
    pub(crate) fn named<'a>(
        &'a self,
        owner: &'a TenantId,
        route: &'a Route,
        name: &'a Key,
    ) -> impl Iterator<Item = Known<'a>> {
        self.index.named(owner, route, name).filter_map(|id| self.known(id))
    }

    /// The writes of the same credential, route and content that are open, or were done without anybody being told, the
    /// oldest first.
    pub(crate) fn with_content<'a>(
        &'a self,
        owner: &'a TenantId,
        route: &'a Route,
        digest: Digest,
    ) -> impl Iterator<Item = Known<'a>> {
        let is_there = |id: &ActionId| match (self.open.get(id), self.ended.get(*id)) {
            (Some(open), _) => open.requested.owner() == *owner && open.requested.route == *route,
            (None, Some(ended)) => ended.is_of(owner, route),
            (None, None) => false,
        };
        self.index.with_content(digest).filter(is_there).filter_map(|id| self.known(id))
    }

    fn known(&self, action: ActionId) -> Option<Known<'_>> {
        match self.open.get(&action) {
            Some(open) => Some(Known {
                action,
                key: open.requested.key.as_ref(),
                content: open.requested.content_digest,
                key_since: open.requested_at,
                invocation: open.requested.invocation,
                ended: None,
            }),
            None => self.ended.get(action).map(|ended| ended.known(action)),
        }
    }
}
