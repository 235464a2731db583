//! The routes that were called, each with how its calls ended.
//!
//! It promises to hold only sums, and what is not ended yet: `ROUTES_MAX` routes, `OPEN_MAX` calls.

use std::collections::BTreeMap;

use forbear_core::event::{ActionFinished, Event, Fact, KeyOrigin, KeyUsed};
use forbear_core::ids::{ActionId, Route};
use forbear_core::route::suggest::SeenRoute;

use crate::tally::{OPEN_MAX, provider_of};

/// Routes told apart; those beyond are only counted.
const ROUTES_MAX: usize = 5_000;

#[derive(Debug, Default)]
pub struct RoutesSeen {
    /// By provider and route.
    pub routes: BTreeMap<(String, Route), SeenRoute>,
    /// Calls on routes that are not told apart.
    pub beyond: u64,
    open: BTreeMap<ActionId, Open>,
}

#[derive(Debug)]
struct Open {
    provider: String,
    route: Route,
    key_header: Option<String>,
}

impl RoutesSeen {
    /// Takes the next event.
    pub fn note(&mut self, event: &Event) {
        let Some(action) = event.action else { return };
        match &event.fact {
            Fact::ActionRequested(r) => {
                if self.open.len() >= OPEN_MAX {
                    self.open.pop_first();
                }
                // A key in the body is no header's.
                let is_header = |key: &&KeyUsed| key.origin == KeyOrigin::Agent && !key.header.contains(':');
                let key_header = r.key.as_ref().filter(is_header).map(|key| key.header.clone());

                let open = Open { provider: r.provider.to_string(), route: r.route.clone(), key_header };
                self.open.insert(action, open);
            }
            Fact::ActionFinished(finished) => self.finished(action, finished),
            _ => {}
        }
    }

    fn finished(&mut self, action: ActionId, f: &ActionFinished) {
        let straight = f.straight.as_ref().map(|s| Open {
            provider: provider_of(s.scope.as_str()).to_owned(),
            route: s.route.clone(),
            key_header: None,
        });
        let Some(Open { provider, route, key_header }) = self.open.remove(&action).or(straight) else { return };
        let at = (provider, route);
        if self.routes.len() >= ROUTES_MAX && !self.routes.contains_key(&at) {
            self.beyond += 1;
            return;
        }
        let statuses = f.status.map(|status| (status, 1)).into_iter().collect();
        let keyed = u64::from(key_header.is_some());
        self.routes.entry(at).or_default().add(&SeenRoute { calls: 1, statuses, keyed, key_header });
    }
}
