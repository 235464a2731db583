//! What must hold between the parts of the coordinator after every input. The simulator asks after each step; nothing
//! else does, because it walks everything that is live.

use std::collections::BTreeMap;

use crate::action::live::Stage;
use crate::coordinator::Coordinator;
use crate::ids::ScopeId;

impl Coordinator {
    /// The first disagreement found, in words: slots against attempts, lines and expiries against waiting actions, looks
    /// against lines.
    #[must_use]
    pub fn inconsistency(&self) -> Option<String> {
        let mut slots: BTreeMap<&ScopeId, u32> = BTreeMap::new();
        let mut waiting = 0;
        for (id, live) in &self.live {
            let Some(scope) = self.scopes.get(&live.request.scope) else {
                return Some(format!("{id} is live in a scope that is gone"));
            };
            match live.stage {
                Stage::Waiting { place, expires, .. } => {
                    waiting += 1;
                    if !scope.line().any(|p| *p == place) {
                        return Some(format!("{id} waits and is in no line"));
                    }
                    if !self.expiries.contains(&(expires, *id)) {
                        return Some(format!("{id} waits and never gives up"));
                    }
                }
                Stage::InFlight(_) | Stage::Relaying(_) => *slots.entry(&live.request.scope).or_default() += 1,
            }
        }
        let joined = self.waiters.len();
        if self.expiries.len() != waiting + joined {
            return Some(format!("{} expiries of {waiting} waiting and {joined} joined", self.expiries.len()));
        }
        for (id, waiter) in &self.waiters {
            if self.live.get(&waiter.to).is_none_or(|live| !live.joined.contains(id)) {
                return Some(format!("{id} waits for the result of {}, which does not know it", waiter.to));
            }
        }
        if self.live.values().map(|live| live.joined.len()).sum::<usize>() != joined {
            return Some("an action has a call joined that does not wait".to_owned());
        }
        let mut lines = 0;
        for (id, scope) in &self.scopes {
            let taken = slots.get(id).copied().unwrap_or(0);
            if scope.in_flight != taken {
                return Some(format!("{id} counts {} slots of {taken} attempts", scope.in_flight));
            }
            lines += scope.delayed();
            let free = scope.in_flight < scope.limits.max_concurrent_requests;
            if scope.delayed() > 0 && free && !self.next_look.contains_key(id) {
                return Some(format!("{id} has a line, a free slot, and no one looks"));
            }
        }
        if lines != waiting {
            return Some(format!("{lines} places of {waiting} waiting actions"));
        }
        (self.looks.len() != self.next_look.len()).then(|| "looks and their reasons differ".to_owned())
    }
}
