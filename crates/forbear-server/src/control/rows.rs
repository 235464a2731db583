//! From what the core and the store know to what is said over the wire.

use forbear_api::At;
use forbear_api::control::{ActionRow, ScopeLimits, ScopeRow, Scopes, Standing, Window};
use forbear_core::time::Wall;
use forbear_core::view::{LiveView, ScopeView};

/// What `request_class` says where a scope covers every class.
const ANY_CLASS: &str = "*";

pub(super) const fn at(wall: Wall) -> At {
    At(wall.0)
}

/// Of these the first `max`.
#[must_use]
pub fn scopes_of(views: &[ScopeView], max: usize) -> Scopes {
    Scopes::first(max, views.iter().map(scope_row))
}

#[must_use]
pub fn scope_row(view: &ScopeView) -> ScopeRow {
    let scope = view.scope.as_str();
    ScopeRow {
        provider: view.scope.provider().to_owned(),
        scope: scope.to_owned(),
        request_class: ANY_CLASS.to_owned(),
        next_allowed_at: view.next_allowed_at.map(at),
        remaining: view.remaining,
        reset_after_seconds: view.reset_after_seconds,
        source: view.source.clone(),
        in_flight: view.in_flight,
        delayed: view.delayed,
        limits: view.limits.map(|l| ScopeLimits {
            max_delayed_requests: l.max_delayed_requests,
            max_concurrent_requests: l.max_concurrent_requests,
            max_retries_per_minute: l.max_retries_per_minute,
        }),
        windows: view.windows.iter().map(window).collect(),
        retries_last_minute: view.retries_last_minute,
    }
}

fn window(w: &forbear_core::classify::Window) -> Window {
    Window {
        name: w.name.clone(),
        limit: w.limit,
        remaining: w.remaining,
        reset_ms: w.reset_ms,
        window_ms: w.window_ms,
    }
}

pub(super) fn standing(live: &LiveView) -> Standing {
    Standing {
        stage: live.stage.to_owned(),
        waits_for: live.waits_for.map(|reason| reason.as_str().to_owned()),
        next_allowed_at: live.next_allowed_at.map(at),
        place: live.place,
        attempts: live.attempts,
        waited_ms: live.waited_ms,
    }
}

pub(super) fn action_row(row: forbear_store::ActionRow) -> ActionRow {
    ActionRow {
        action: row.id.to_string(),
        started_at: at(row.started_at),
        finished_at: row.finished_at.map(at),
        provider: row.provider,
        scope: row.scope,
        route: row.route,
        request_class: row.class,
        task: row.task,
        run: row.run,
        outcome: row.outcome,
        effect: row.effect,
        provider_status: row.status,
        attempts: row.attempts,
        waited_ms: row.waited_ms,
    }
}
