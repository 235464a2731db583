//! What must hold of writes: one effect for each that is meant, whatever is made again, and nothing on hope.

use forbear_core::ids::{ActionId, Digest};
use forbear_core::policy::Rank;

use super::calls::Call;
use super::intents::Intent;
use super::world::World;

/// Well within a day, whichever way the wall clock was stepped.
const NAMES_KEPT_MS: u64 = 20 * 3_600_000;

impl World<'_> {
    /// A name that was used means what it was used for, for as long as an ended write is remembered at the least.
    pub(super) fn check_name(&mut self, action: ActionId) {
        let now = self.now.mono;
        let Some(call) = self.calls.get(action) else { return };
        let (of, content) = (call.intent, call.request.content_digest);
        if !(self.intents[of].is_named() && call.request.rank.writes() && content.is_some()) {
            return;
        }
        let other = self.calls.iter().find(|c| {
            let used = c.sends > c.refused && c.key_since.is_some_and(|at| now.ms_since(at) < NAMES_KEPT_MS);
            c.intent == of && c.request.content_digest != content && used
        });
        if let Some(other) = other.map(|c| c.request.action.0) {
            self.fail("a_name_means_one_thing", |_| format!("a{} leaves under the name of a{other}", action.0));
        }
    }

    /// Beside an equal write whose effect nobody knows none leaves, unless it has a name of its own.
    pub(super) fn check_equals(&mut self, by: u32, action: ActionId) {
        let (Some(call), Some(node)) = (self.calls.get(action), self.node(by)) else { return };
        let is_known = call.request.rank.writes() && call.request.content_digest.is_some() && !call.unknown;
        if !is_known || self.intents[call.intent].is_named() {
            return;
        }
        let is_open = |c: &Call| {
            let trail = node.ledger.trails.get(&c.request.action);
            trail.is_some_and(|trail| trail.open_unknown && trail.ended.is_none())
        };
        let open =
            self.calls.iter().find(|c| c.request.action != action && self.what(c) == self.what(call) && is_open(c));
        if let Some(open) = open.map(|c| c.request.action.0) {
            self.fail("unknown_is_not_repeated", |_| format!("a{} leaves beside its equal a{open}", action.0));
        }
    }

    fn what(&self, call: &Call) -> (usize, Option<usize>, usize, Option<Digest>) {
        let intent = &self.intents[call.intent];
        (intent.scope, intent.tenant, intent.route, call.request.content_digest)
    }

    /// What a call of one tenant came to is told to no other.
    pub(super) fn check_tenants(&mut self, action: ActionId, about: ActionId) {
        let tenant = |action| self.calls.get(action).map(|call| (&call.request.scope, &call.request.tenant));
        if tenant(action) != tenant(about) {
            self.fail("tenants_are_apart", |_| format!("a{} is told of a{}, another tenant's", action.0, about.0));
        }
    }

    /// Invariant 5.
    pub(super) fn check_resend(&mut self, action: ActionId) {
        let now = self.now.mono;
        let Some(call) = self.calls.get(action).filter(|c| c.unknown && c.request.rank.writes()) else { return };
        let retention = call.request.key.as_ref().and_then(|k| k.retention_seconds);
        let honoured = retention.zip(call.key_since).is_some_and(|(s, since)| now.ms_since(since) < s * 1_000);
        let may = call.request.rank == Rank::IdempotentWrite && (honoured || call.request.repeatable);
        if !may {
            self.fail("unknown_is_not_resent", |_| format!("a{} leaves again, its fate unknown", action.0));
        }
    }

    /// Wants of equal content that have no name are one another's equals: a repeat of one may have been answered with
    /// what was done for the other, which then is missing there.
    fn more_than_meant(&self, intent: &Intent) -> bool {
        if intent.is_named() || intent.is_marked_exactly() {
            return true;
        }
        let equal = |i: &&Intent| {
            !i.is_named() && (i.scope, i.route, i.digest) == (intent.scope, intent.route, intent.digest) && i.calls > 0
        };
        let equals = || self.intents.iter().filter(equal);
        let done: u32 = equals().map(|i| i.effects).sum();
        !equals().any(|i| i.loose) && done as usize > equals().count()
    }

    /// Invariant 2, when an effect happens.
    pub(super) fn check_effect(&mut self, action: ActionId) {
        let Some(call) = self.calls.get(action) else { return };
        let intent = &self.intents[call.intent];
        if !intent.rank.writes() || intent.repeatable {
            return;
        }
        let (by_call, by_intent) = (call.effects, intent.effects);
        // A clock set back while the process was away makes every key look younger: nothing left can tell.
        let untold = self.tally.clock_stepped && self.processes > 1;
        let too_many = by_intent > 1 && !intent.loose && !untold && self.more_than_meant(intent);
        if by_call > 1 || too_many {
            self.fail("one_effect", |_| {
                format!("a{}: {by_call} effects of the call, {by_intent} of its intent", action.0)
            });
        }
    }
}
