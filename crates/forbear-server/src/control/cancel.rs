//! Cancelling by a person's hand, and taking it back.

use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use forbear_api::control::{Cancelled, Named, Reopened};
use forbear_api::problem::{Kind, Problem};
use forbear_core::ids::{ActionId, RunId, TaskId};
use forbear_core::input::Whose;
use forbear_store::ActionFilter;

use super::reply::problem;
use super::{Shared, reads};

/// The name of a task or run in an address.
const NAME_BYTES_MAX: usize = 256;
const BY: &str = "control API";

/// Ready when the journal has it, with how many actions were waiting or on the wire, or when it has not, with why.
pub(crate) type Cancelling = Pin<Box<dyn Future<Output = Result<u32, &'static str>> + Send>>;
/// The same, with whether there was anything to take back.
pub(crate) type Reopening = Pin<Box<dyn Future<Output = Result<bool, &'static str>> + Send>>;
/// What is done at once, with the name of who does it.
pub(crate) type Cancel = Arc<dyn Fn(Whose, &str) -> Cancelling + Send + Sync>;
pub(crate) type Reopen = Arc<dyn Fn(Whose, &str) -> Reopening + Send + Sync>;

#[utoipa::path(delete, path = "/-/v1/tasks/{id}", params(("id" = String, Path, description = "The task's name")), responses(
    (status = 200, body = Cancelled, description = "Its waiting actions end and will never wake; writes on the wire are followed to their end; new calls of it are refused"),
    (status = 500, body = Problem, description = "So it is in this process, but the journal does not have it")))]
pub(super) async fn task(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let filter = ActionFilter { task: Some(id.clone()), ..ActionFilter::default() };
    cancel(&shared, Named::Task, id, |id| Whose::Task(TaskId::new(id)), filter).await
}

#[utoipa::path(delete, path = "/-/v1/runs/{id}", params(("id" = String, Path, description = "The run's name")), responses(
    (status = 200, body = Cancelled, description = "As for a task, of all tasks"),
    (status = 500, body = Problem, description = "So it is in this process, but the journal does not have it")))]
pub(super) async fn run(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let filter = ActionFilter { run: Some(id.clone()), ..ActionFilter::default() };
    cancel(&shared, Named::Run, id, |id| Whose::Run(RunId::new(id)), filter).await
}

#[utoipa::path(delete, path = "/-/v1/actions/{id}", params(("id" = String, Path, description = "The action")), responses(
    (status = 200, body = Cancelled, description = "It ends if it waits; a read on the wire is broken off, a write followed to its end"),
    (status = 404, body = Problem, description = "No action has this id"),
    (status = 500, body = Problem, description = "So it is in this process, but the journal does not have it")))]
pub(super) async fn action(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let Ok(action) = id.parse::<ActionId>() else { return reads::no_action(&id) };
    let actions = match (shared.control.cancel)(Whose::Action(action), BY).await {
        Ok(actions) => actions,
        Err(why) => return not_kept(Named::Action, &id, why),
    };
    if actions == 0 {
        match reads::find(&shared, &id).await {
            Ok(Some(_)) => {}
            Ok(None) => return reads::no_action(&id),
            Err(response) => return response,
        }
    }
    Json(Cancelled { what: Named::Action, id, actions, known: Some(true) }).into_response()
}

#[utoipa::path(post, path = "/-/v1/tasks/{id}/reopen", params(("id" = String, Path, description = "The task's name")), responses(
    (status = 200, body = Reopened, description = "New calls of it are taken; those that were cancelled stay so"),
    (status = 500, body = Problem, description = "So it is in this process, but the journal does not have it")))]
pub(super) async fn reopen_task(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    reopen(&shared, Named::Task, id, |id| Whose::Task(TaskId::new(id))).await
}

#[utoipa::path(post, path = "/-/v1/runs/{id}/reopen", params(("id" = String, Path, description = "The run's name")), responses(
    (status = 200, body = Reopened, description = "As for a task"),
    (status = 500, body = Problem, description = "So it is in this process, but the journal does not have it")))]
pub(super) async fn reopen_run(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    reopen(&shared, Named::Run, id, |id| Whose::Run(RunId::new(id))).await
}

async fn cancel(
    shared: &Shared,
    what: Named,
    id: String,
    whose: impl Fn(&str) -> Whose,
    filter: ActionFilter,
) -> Response {
    if !is_name(&id) {
        return no_name(what);
    }
    let actions = match (shared.control.cancel)(whose(&id), BY).await {
        Ok(actions) => actions,
        Err(why) => return not_kept(what, &id, why),
    };
    let known = if actions > 0 { Some(true) } else { reads::has(shared, filter).await };
    Json(Cancelled { what, id, actions, known }).into_response()
}

async fn reopen(shared: &Shared, what: Named, id: String, whose: impl Fn(&str) -> Whose) -> Response {
    if !is_name(&id) {
        return no_name(what);
    }
    match (shared.control.reopen)(whose(&id), BY).await {
        Ok(was_cancelled) => Json(Reopened { what, id, was_cancelled }).into_response(),
        Err(why) => {
            let what = what.as_str();
            problem(Kind::NotDurable, &format!("{what} {id} is open again in this process, but {why}"))
        }
    }
}

fn is_name(id: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&id.len())
}

fn no_name(what: Named) -> Response {
    problem(Kind::BadQuery, &format!("a {}'s name has 1 to {NAME_BYTES_MAX} bytes", what.as_str()))
}

fn not_kept(what: Named, id: &str, why: &str) -> Response {
    problem(Kind::NotDurable, &format!("{} {id} is cancelled in this process, but {why}", what.as_str()))
}
