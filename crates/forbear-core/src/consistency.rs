//! What must hold between the parts of the coordinator after every input. The simulator asks after each step; nothing
//! else does, because it walks everything that is live.

use std::collections::BTreeMap;

use crate::action::live::Stage;
use crate::coordinator::Coordinator;
use crate::home::Home;
use crate::ids::ScopeId;

impl Coordinator {
    /// The first disagreement found, in words: slots against attempts, lines and expiries against waiting actions, looks
    /// against lines.
    #[must_use]
    pub fn inconsistency(&self) -> Option<String> {
        let mut slots: BTreeMap<&ScopeId, u32> = BTreeMap::new();
        let mut waiting = 0;
        for (id, live) in &self.live {
            let Some(home) = self.scopes.get(&live.request.scope) else {
                if matches!(live.stage, Stage::Telling(_)) {
                    continue;
                }
                return Some(format!("{id} is live in a scope that is gone"));
            };
            match live.stage {
                Stage::Waiting { expires, .. } => {
                    waiting += 1;
                    if !home.waiting().any(|action| action == *id) {
                        return Some(format!("{id} waits and is in no line"));
                    }
                    if !self.expiries.contains(&(expires, *id)) {
                        return Some(format!("{id} waits and never gives up"));
                    }
                }
                Stage::InFlight(_) | Stage::Relaying(_) => {
                    for scope in std::iter::once(&live.request.scope).chain(live.request.quota.lane.scopes()) {
                        *slots.entry(scope).or_default() += 1;
                    }
                }
                Stage::Telling(_) if !live.joined.is_empty() => {
                    return Some(format!("{id} was answered, and who joined it waits"));
                }
                Stage::Telling(_) => {}
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
        for (id, home) in &self.scopes {
            for (id, scope) in std::iter::once((id, &home.scope)).chain(home.narrow()) {
                let taken = slots.remove(id).unwrap_or(0);
                if scope.in_flight != taken {
                    return Some(format!("{id} counts {} slots of {taken} attempts", scope.in_flight));
                }
            }
            lines += home.delayed();
            // With slots free in all of its scopes only time can move a line.
            let kept = home.limits.kept_for_interactive;
            let is_free = home.scope.in_flight < home.scope.slots_max.saturating_sub(kept).max(1)
                && home.narrow().all(|(_, scope)| scope.in_flight < scope.slots_max);
            if home.delayed() > 0 && is_free && !self.next_look.contains_key(id) {
                return Some(format!("{id} has a line, free slots, and no one looks"));
            }
            if home.delayed() != home.waiting().count() {
                return Some(format!("{id} counts {} of {} in line", home.delayed(), home.waiting().count()));
            }
        }
        let owned = self.live.keys().chain(self.waiters.keys()).filter(|id| self.owned.has(**id)).count();
        if owned != self.live.len() + joined || self.owned.len() != owned {
            return Some(format!("{} actions can be cancelled of {} here", self.owned.len(), self.live.len() + joined));
        }
        let below: usize = self.scopes.values().map(Home::narrow_len).sum();
        if below != self.narrow_scopes {
            return Some(format!("{} scopes below homes of {below}", self.narrow_scopes));
        }
        if let Some((id, taken)) = slots.first_key_value() {
            return Some(format!("{taken} attempts hold slots of {id}, which is gone"));
        }
        if lines != waiting {
            return Some(format!("{lines} places of {waiting} waiting actions"));
        }
        (self.looks.len() != self.next_look.len()).then(|| "looks and their reasons differ".to_owned())
    }
}
