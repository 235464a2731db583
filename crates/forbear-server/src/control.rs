//! The control API: everything under `/-/` that a person or a script asks of a running server.
//!
//! It promises that nothing here touches the data plane's path, that reads of the journal run apart from the runtime's
//! threads and at most [`READS_AT_ONCE_MAX`] at a time, and that no web page can drive it: it refuses a `Host` that a
//! name server could have pointed here, an `Origin` that is not its own, and whatever under `/-/v1/` comes without the
//! token. The shard is reached through the few functions of [`Control`] only.

mod cancel;
mod config;
mod guard;
mod live;
mod openapi;
mod private;
mod reads;
mod reply;
mod report;
mod rows;
mod story;
mod suggestions;
mod token;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use forbear_api::control::{Listed, LiveQuery, Ready, ScopeRow, Scopes};
use forbear_api::problem::Kind;
use forbear_core::breaker::Opened;
use forbear_core::ids::{ActionId, TenantId};
use forbear_core::policy::Compiled;
use forbear_core::view::LiveView;
use tokio::sync::Semaphore;

use reply::problem;

use cancel::{Cancel, Reopen};
pub use config::Reloading;
pub(crate) use private::write_address;
pub use rows::{scope_row, scopes_of};
pub use story::text_of;
pub use token::ControlToken;

/// Reads of the journal at once; more wait for their turn.
pub const READS_AT_ONCE_MAX: usize = 4;

/// What exists, for the page that says what does not.
pub(crate) const ADDRESSES: &[(&str, &str)] = &[
    ("GET", "/-/healthy"),
    ("GET", "/-/ready"),
    ("GET", "/-/actions/{id}"),
    ("GET", "/-/problems/{slug}"),
    ("GET", "/-/v1/openapi.json"),
    ("GET", "/-/v1/scopes"),
    ("GET", "/-/v1/live"),
    ("GET", "/-/v1/circuits"),
    ("GET", "/-/v1/actions"),
    ("GET", "/-/v1/actions/{id}"),
    ("GET", "/-/v1/report"),
    ("GET", "/-/v1/routes/suggestions"),
    ("POST", "/-/v1/config/reload"),
    ("DELETE", "/-/v1/actions/{id}"),
    ("DELETE", "/-/v1/tasks/{id}"),
    ("POST", "/-/v1/tasks/{id}/reopen"),
    ("DELETE", "/-/v1/runs/{id}"),
    ("POST", "/-/v1/runs/{id}/reopen"),
];

type Ask<T> = Arc<dyn Fn() -> T + Send + Sync>;
/// Whose a request with these header fields would be at a provider, if the provider is known.
type OwnerOf = Arc<dyn Fn(&str, &HeaderMap) -> Option<TenantId> + Send + Sync>;

/// Ready when the journal has what was decided before, or does not take it.
type CatchingUp = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What is live and wanted, so many at most.
type AllLive = Arc<dyn Fn(&LiveQuery, usize) -> Vec<LiveView> + Send + Sync>;

/// What the control API needs to know of the server.
#[derive(Clone)]
pub struct Control {
    pub token: ControlToken,
    pub data_dir: PathBuf,
    pub ready: Ask<Ready>,
    pub scopes: Ask<Scopes>,
    /// What an action does right now, if it has not ended.
    pub live: Arc<dyn Fn(ActionId) -> Option<LiveView> + Send + Sync>,
    /// Everything that waits or is on the wire.
    pub all_live: AllLive,
    /// What is not sent for a while, so many at most.
    pub circuits: Arc<dyn Fn(usize) -> Vec<Opened> + Send + Sync>,
    pub caught_up: Ask<CatchingUp>,
    pub cancel: Cancel,
    pub reopen: Reopen,
    pub owner_of: OwnerOf,
    /// The policy in force.
    pub policy: Ask<Arc<Compiled>>,
    pub reload: Ask<Reloading>,
    /// Host names, beside loopback's and any IP address, under which the server may be called.
    pub names: Vec<String>,
}

#[derive(Clone)]
struct Shared {
    control: Arc<Control>,
    reads: Arc<Semaphore>,
}

/// The routes of everything under `/-/`.
pub fn router(control: Control) -> Router {
    let shared = Shared { control: Arc::new(control), reads: Arc::new(Semaphore::new(READS_AT_ONCE_MAX)) };
    let with_token = Router::new()
        .route("/-/v1/openapi.json", get(openapi::document))
        .route("/-/v1/scopes", get(scopes))
        .route("/-/v1/live", get(live::live))
        .route("/-/v1/circuits", get(live::circuits))
        .route("/-/v1/actions", get(reads::actions))
        .route("/-/v1/actions/{id}", get(reads::action).delete(cancel::action))
        .route("/-/v1/report", get(report::report))
        .route("/-/v1/routes/suggestions", get(suggestions::routes))
        .route("/-/v1/tasks/{id}", delete(cancel::task))
        .route("/-/v1/tasks/{id}/reopen", post(cancel::reopen_task))
        .route("/-/v1/runs/{id}", delete(cancel::run))
        .route("/-/v1/config/reload", post(config::reload))
        .route("/-/v1/runs/{id}/reopen", post(cancel::reopen_run))
        .method_not_allowed_fallback(reply::method_not_allowed)
        .route_layer(middleware::from_fn_with_state(shared.clone(), guard::token));
    Router::new()
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/problems/{slug}", get(problem_page))
        .route("/-/actions/{id}", get(reads::own_action))
        .method_not_allowed_fallback(reply::method_not_allowed)
        .merge(with_token)
        .fallback(reply::not_found)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::origin))
        .with_state(shared)
}

/// The process runs and answers.
async fn healthy() -> &'static str {
    "healthy\n"
}

#[utoipa::path(get, path = "/-/ready", responses(
    (status = 200, body = Ready, description = "New calls are taken"),
    (status = 503, body = Ready, description = "They are not, and why")))]
async fn ready(State(shared): State<Shared>) -> Response {
    let ready = (shared.control.ready)();
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ready)).into_response()
}

#[utoipa::path(get, path = "/-/v1/scopes", responses(
    (status = 200, body = Listed<ScopeRow>, description = "The register, in the order of its scopes")))]
async fn scopes(State(shared): State<Shared>) -> Json<Scopes> {
    Json((shared.control.scopes)())
}

/// What a problem type means, as plain text.
async fn problem_page(Path(slug): Path<String>) -> Response {
    match slug.parse::<Kind>() {
        Ok(kind) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], kind.page()).into_response(),
        Err(_) => {
            let known: Vec<&str> = Kind::ALL.iter().map(|k| k.slug()).collect();
            problem(Kind::NotFound, &format!("no problem type has this name; known: {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests;
