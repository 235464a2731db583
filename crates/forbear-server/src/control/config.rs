//! Reloading the configuration by request.

use std::pin::Pin;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use forbear_api::control::ConfigReloaded;
use forbear_api::problem::{Kind, Problem};

use super::Shared;
use super::reply::problem;
use crate::reload::{ReloadError, Reloaded};

/// What a reload comes to, with who asked for it.
pub type Reloading = Pin<Box<dyn Future<Output = Result<Reloaded, ReloadError>> + Send>>;

#[utoipa::path(post, path = "/-/v1/config/reload", responses(
    (status = 200, body = ConfigReloaded, description = "What the file says holds for calls from now on, and its limits for all"),
    (status = 422, body = Problem, description = "The file has faults, which the detail lists, or there is none; nothing was changed"),
    (status = 500, body = Problem, description = "It holds in this process, but the journal does not have it")))]
pub(super) async fn reload(State(shared): State<Shared>) -> Response {
    match (shared.control.reload)().await {
        Ok(Reloaded { policy, changed, needs_restart, warnings }) => {
            Json(ConfigReloaded { policy, changed, needs_restart, warnings }).into_response()
        }
        Err(error) => {
            let kind = match error {
                ReloadError::NoFile => Kind::NoConfiguration,
                ReloadError::Config(_) | ReloadError::Provider(_) => Kind::BadConfiguration,
                ReloadError::NotKept(_) => Kind::NotDurable,
            };
            problem(kind, &error.to_string())
        }
    }
}
