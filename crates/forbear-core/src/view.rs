//! What people may see of the core: the register and one action's standing. Reading decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::live::{Live, Stage};
use crate::breaker::Opened;
use crate::classify::Window;
use crate::coordinator::Coordinator;
use crate::effect::Effect;
use crate::home::{Home, Wants};
use crate::ids::{ActionId, ClassName, ProviderName, Route, RunId, ScopeId, TaskId};
use crate::input::Request;
use crate::policy::Limits;
use crate::register::{Scope, Turn, WaitReason, closed_wall};
use crate::time::{Mono, Now, Wall};

/// Actions that one look walks over; more would hold others up.
pub const LOOKED_AT_MAX: usize = 10_000;

/// One row of the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeView {
    pub scope: ScopeId,
    pub next_allowed_at: Option<Wall>,
    /// The least that any window has left, as last told.
    pub remaining: Option<u64>,
    pub reset_after_seconds: Option<u64>,
    /// Where the boundary was read: `retry_after`, `rate_limit`, ...; `malformed` where what was sent could not be read,
    /// `uncertain_boundary` where nothing was said. Then the instant is our own backoff.
    pub source: Option<String>,
    pub raw: Option<String>,
    pub in_flight: u32,
    pub delayed: u32,
    pub limits: Option<Limits>,
    pub retries_last_minute: u32,
    pub windows: Vec<Window>,
}

/// One action that this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveView {
    pub action: ActionId,
    pub task: TaskId,
    pub run: RunId,
    pub provider: ProviderName,
    /// Its home.
    pub scope: ScopeId,
    pub route: Route,
    pub class: ClassName,
    pub came: Wall,
    pub stage: &'static str,
    pub waits_for: Option<WaitReason>,
    pub next_allowed_at: Option<Wall>,
    /// The how manyth it is of those who wait at its home, by when they came. Turns go by priority, lane, tenant and task, so that
    /// a later one may leave before. None where so many wait that counting them would hold others up.
    pub place: Option<u32>,
    pub attempts: u32,
    /// Up to now.
    pub waited_ms: u64,
    pub effect: Effect,
}

impl Coordinator {
    /// The register, in the order of its scopes, at most `max` rows.
    #[must_use]
    pub fn scopes_view(&self, now: Now, max: usize) -> Vec<ScopeView> {
        let homes = self.scopes.iter().flat_map(|(id, home)| {
            let narrow = home.narrow().map(move |(id, scope)| (id, (home, scope)));
            std::iter::once((id, (home, &home.scope))).chain(narrow)
        });
        let live: BTreeMap<&ScopeId, (&Home, &Scope)> = homes.collect();
        let ids: BTreeSet<&ScopeId> = live.keys().copied().chain(self.durable.scopes.keys()).collect();
        ids.into_iter().take(max).map(|id| self.scope_view(now, id, live.get(id).copied())).collect()
    }

    fn scope_view(&self, now: Now, id: &ScopeId, live: Option<(&Home, &Scope)>) -> ScopeView {
        let scope = live.map(|(_, scope)| scope);
        // A line and its limits are the home's.
        let home = live.filter(|_| self.scopes.contains_key(id)).map(|(home, _)| home);
        let record = self.durable.scopes.get(id);
        let stored = record.and_then(|r| r.retry_not_before).filter(|at| *at > now.wall);
        let next_allowed_at = scope.map_or(stored, |s| closed_wall(s, record.and_then(|r| r.retry_not_before), now));
        let boundary = record.and_then(|r| r.boundary.as_ref()).filter(|_| next_allowed_at.is_some());
        let malformed = record.and_then(|r| r.malformed.first()).filter(|_| next_allowed_at.is_some());
        let source = next_allowed_at.map(|_| match (boundary, malformed) {
            (Some(b), _) => b.source.as_str().to_owned(),
            (None, Some(_)) => "malformed".to_owned(),
            (None, None) => "uncertain_boundary".to_owned(),
        });
        let windows = scope.map(|s| s.windows.clone()).filter(|w| !w.is_empty());
        let windows = windows.or_else(|| record.map(|r| r.windows.clone())).unwrap_or_default();
        ScopeView {
            scope: id.clone(),
            next_allowed_at,
            remaining: windows.iter().filter_map(|w| w.remaining).min(),
            reset_after_seconds: next_allowed_at.map(|at| now.wall.ms_until(at).div_ceil(1_000)),
            source,
            raw: boundary.map(|b| b.raw.clone()).or_else(|| malformed.cloned()),
            in_flight: scope.map_or(0, |s| s.in_flight),
            delayed: home.map_or(0, |h| u32::try_from(h.delayed()).unwrap_or(u32::MAX)),
            limits: home.map(|h| h.limits),
            retries_last_minute: u32::try_from(self.durable.retries_in_minute(id, now.wall)).unwrap_or(u32::MAX),
            windows,
        }
    }

    #[must_use]
    pub fn live_view(&self, now: Now, action: ActionId) -> Option<LiveView> {
        self.live.get(&action).map(|live| self.view(now, live))
    }

    /// The same with its place, which walks over its line.
    #[must_use]
    pub fn placed_view(&self, now: Now, action: ActionId) -> Option<LiveView> {
        self.live.get(&action).map(|live| LiveView { place: self.place(live), ..self.view(now, live) })
    }

    /// Everything in line or on the wire that is `wanted`, at most `max`, oldest first. No place is counted.
    #[must_use]
    pub fn live_views(&self, now: Now, max: usize, wanted: impl Fn(&Request) -> bool) -> Vec<LiveView> {
        self.live.values().filter(|live| wanted(&live.request)).take(max).map(|live| self.view(now, live)).collect()
    }

    /// Of the oldest [`LOOKED_AT_MAX`] actions those that wait for so long already.
    pub fn waiting_for(&self, now: Now, at_least_ms: u64) -> impl Iterator<Item = ActionId> {
        let waits_long =
            move |stage| matches!(stage, Stage::Waiting { since, .. } if now.mono.ms_since(since) >= at_least_ms);
        let oldest = self.live.values().take(LOOKED_AT_MAX);
        oldest.filter(move |live| waits_long(live.stage)).map(|live| live.request.action)
    }

    /// What is not sent for a while, at most `max`.
    #[must_use]
    pub fn circuits(&self, max: usize) -> Vec<Opened> {
        self.durable.circuits.iter().take(max).cloned().collect()
    }

    fn place(&self, live: &Live) -> Option<u32> {
        let home = self.scopes.get(&live.request.scope)?;
        if !matches!(live.stage, Stage::Waiting { .. }) || home.delayed() > LOOKED_AT_MAX {
            return None;
        }
        let order_of = |action| self.live.get(&action).map_or(u64::MAX, |live| live.order);
        let before = home.waiting().filter(|action| order_of(*action) < live.order).count();
        u32::try_from(before + 1).ok()
    }

    fn view(&self, now: Now, live: &Live) -> LiveView {
        let (stage, waits, waits_since) = match live.stage {
            Stage::Waiting { place, since, reason, .. } => {
                ("waiting", Some(self.waits_for(now, live, (place.due, reason))), since)
            }
            Stage::InFlight(_) => ("in_flight", None, now.mono),
            Stage::Relaying(_) => ("relaying", None, now.mono),
            Stage::Telling(_) => ("telling", None, now.mono),
        };
        let r = &live.request;
        LiveView {
            action: r.action,
            task: r.task.clone(),
            run: r.run.clone(),
            provider: r.provider.clone(),
            scope: r.scope.clone(),
            route: r.route.clone(),
            class: r.class.clone(),
            came: now.wall_at(live.came),
            place: None,
            stage,
            waits_for: waits.map(|(reason, _)| reason),
            next_allowed_at: waits.and_then(|(_, at)| at).map(|at| now.wall_at(at)),
            attempts: live.sends,
            waited_ms: live.waited_ms + now.mono.ms_since(waits_since),
            effect: live.effect,
        }
    }

    /// What holds it up now, which may be something else than what it began to wait for; and until when, where that is known.
    fn waits_for(&self, now: Now, live: &Live, own: (Mono, WaitReason)) -> (WaitReason, Option<Mono>) {
        let (due, reason) = own;
        if due > now.mono && live.was_refused() {
            return (reason, Some(due));
        }
        let r = &live.request;
        let wants = Wants { lane: &r.quota.lane, ask: r.quota.ask, priority: r.quota.priority };
        match self.scopes.get(&r.scope).map(|home| home.turn(now.mono, &wants)) {
            Some(Turn::At(at, reason)) => (reason, Some(at)),
            Some(Turn::WhenFree) => (WaitReason::Slot, None),
            // Others go first.
            Some(Turn::Now) | None => (WaitReason::Pacing, None),
        }
    }
}
