//! What the server holds right now: calls in line and on the wire, and what is not sent for a while.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use forbear_api::control::{CircuitRow, Listed, LiveQuery, LiveRow};
use forbear_api::problem::Kind;
use forbear_core::breaker::{Circuit, Opened};
use forbear_core::view::LiveView;

use super::Shared;
use super::reply::problem;
use super::rows::{at, standing};

/// Rows in one answer.
const ROWS_MAX: usize = 1_000;

#[utoipa::path(get, path = "/-/v1/live", params(LiveQuery), responses(
    (status = 200, body = Listed<LiveRow>, description = "Calls that wait or are on the wire, oldest first")))]
pub(super) async fn live(State(shared): State<Shared>, query: Result<Query<LiveQuery>, QueryRejection>) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(e) => return problem(Kind::BadQuery, &e.body_text()),
    };
    let found = (shared.control.all_live)(&query, ROWS_MAX + 1);
    Json(Listed::first(ROWS_MAX, found.into_iter().map(row))).into_response()
}

fn row(view: LiveView) -> LiveRow {
    LiveRow {
        now: standing(&view),
        action: view.action.to_string(),
        started_at: at(view.came),
        provider: view.provider.to_string(),
        scope: view.scope.to_string(),
        route: view.route.to_string(),
        request_class: view.class.to_string(),
        task: view.task.to_string(),
        run: view.run.to_string(),
    }
}

#[utoipa::path(get, path = "/-/v1/circuits", responses(
    (status = 200, body = Listed<CircuitRow>, description = "What failed again and again and is not sent for a while")))]
pub(super) async fn circuits(State(shared): State<Shared>) -> Json<Listed<CircuitRow>> {
    Json(Listed::first(ROWS_MAX, (shared.control.circuits)(ROWS_MAX + 1).iter().map(circuit)))
}

fn circuit(opened: &Opened) -> CircuitRow {
    let (scope, run, route) = match &opened.circuit {
        Circuit::Request { owner, run, route, .. } => (owner.as_str(), run.as_ref(), Some(route)),
        Circuit::Path { owner, run, route } => (owner.as_str(), Some(run), Some(route)),
        Circuit::Credential { owner } => (owner.as_str(), None, None),
        Circuit::Endpoint { scope, route } => (scope.as_str(), None, Some(route)),
        Circuit::Scope { scope } => (scope.as_str(), None, None),
    };
    CircuitRow {
        kind: opened.circuit.as_str().to_owned(),
        scope: scope.to_owned(),
        run: run.map(ToString::to_string),
        route: route.map(ToString::to_string),
        status: opened.status,
        code: opened.code.clone(),
        failures: opened.failures,
        until: at(opened.until),
        reason: opened.reason(),
    }
}
