//! What the journal tells: lists of actions, and one action's story. Reads run on the blocking threads, in short
//! transactions of their own connection, whether the writer is well or not.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use forbear_api::control::{ActionQuery, ActionRow, ActionStory, PAGE_DEFAULT, PAGE_MAX, Page};
use forbear_api::problem::{Kind, Problem};
use forbear_core::event::{Fact, Straight};
use forbear_core::ids::{ActionId, TenantId};
use forbear_store::{ActionFilter, Reader, StoreError};

use super::Shared;
use super::reply::{problem, problem_of};
use super::rows::action_row;
use super::story::story;

#[utoipa::path(get, path = "/-/v1/actions", params(ActionQuery), responses(
    (status = 200, body = Page<ActionRow>, description = "Actions, newest first")))]
pub(super) async fn actions(
    State(shared): State<Shared>,
    query: Result<Query<ActionQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(e) => return problem(Kind::BadQuery, &e.body_text()),
    };
    let before = match query.before.as_deref().map(str::parse::<ActionId>).transpose() {
        Ok(before) => before,
        Err(e) => return problem(Kind::BadQuery, &format!("`before`: {e}")),
    };
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let filter = ActionFilter {
        task: query.task,
        run: query.run,
        outcome: query.outcome,
        open: query.open,
        ..ActionFilter::default()
    };
    let found = read(&shared, move |reader| reader.actions(&filter, limit as usize, before)).await;
    match found {
        Ok(page) => {
            let items = page.actions.into_iter().map(action_row).collect();
            Json(Page::<ActionRow> { items, next: page.next.map(|id| id.to_string()) }).into_response()
        }
        Err(response) => response,
    }
}

#[utoipa::path(get, path = "/-/v1/actions/{id}", params(("id" = String, Path, description = "The action")), responses(
    (status = 200, body = ActionStory, description = "Its whole story, oldest event first")))]
pub(super) async fn action(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    match find(&shared, &id).await {
        Ok(Some((found, _))) => Json(found).into_response(),
        Ok(None) => no_action(&id),
        Err(response) => response,
    }
}

#[utoipa::path(get, path = "/-/actions/{id}", params(("id" = String, Path, description = "The action")), responses(
    (status = 200, body = ActionStory, description = "The same, for whoever holds the credential that made the action")))]
pub(super) async fn own_action(State(shared): State<Shared>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    match find(&shared, &id).await {
        // Somebody else's action and none at all look the same.
        Ok(Some((found, owner)))
            if (shared.control.owner_of)(&found.action.provider, &headers).is_some_and(|who| who == owner) =>
        {
            Json(found).into_response()
        }
        Ok(_) => not_yours(&id),
        Err(response) => response,
    }
}

/// Whether any such action is on record; none where that cannot be read.
pub(super) async fn has(shared: &Shared, filter: ActionFilter) -> Option<bool> {
    let found = read(shared, move |reader| reader.actions(&filter, 1, None)).await;
    found.ok().map(|page| !page.actions.is_empty())
}

/// An action, and whose it is.
type Owned = (ActionStory, TenantId);

pub(super) async fn find(shared: &Shared, id: &str) -> Result<Option<Owned>, Response> {
    let Ok(id) = id.parse::<ActionId>() else { return Ok(None) };
    if let Some(found) = look(shared, id).await? {
        return Ok(Some(found));
    }
    // A read is written behind its answer.
    (shared.control.caught_up)().await;
    look(shared, id).await
}

async fn look(shared: &Shared, id: ActionId) -> Result<Option<Owned>, Response> {
    let live = (shared.control.live)(id);
    let found = read(shared, move |reader| reader.action(id)).await?;
    Ok(found.map(|found| {
        let owner = owner(&found);
        (story(found, live.as_ref()), owner)
    }))
}

fn owner(found: &forbear_store::ActionStory) -> TenantId {
    let named = found.events.iter().find_map(|event| match &event.fact {
        Fact::ActionRequested(requested) => Some(requested.owner()),
        Fact::ActionFinished(finished) => finished.straight.as_ref().map(Straight::owner),
        _ => None,
    });
    named.unwrap_or_else(|| TenantId::new(&found.action.scope))
}

pub(super) fn no_action(id: &str) -> Response {
    problem(Kind::NotFound, &format!("no action {} is on record", shown(id)))
}

fn not_yours(id: &str) -> Response {
    let shown = shown(id);
    let reason = format!(
        "no action {shown} is on record, or not for this credential: ask with the credential of the call itself, or look at it with `forbear action {shown}`. What it did is not said here"
    );
    // Whose it is may be wrong, and then the action may have been done.
    problem_of(Problem { effect: "unknown".to_owned(), ..Problem::unsent(Kind::NotFound, reason) })
}

fn shown(id: &str) -> String {
    id.chars().filter(|c| !c.is_control()).take(64).collect()
}

pub(super) async fn read<T: Send + 'static>(
    shared: &Shared,
    ask: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Response> {
    let _turn = shared.reads.acquire().await;
    let dir = shared.control.data_dir.clone();
    let done = tokio::task::spawn_blocking(move || Reader::open(&dir).and_then(|reader| ask(&reader))).await;
    match done {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(e)) => {
            tracing::error!(code = e.code(), error = %e, "the journal cannot be read");
            Err(problem(Kind::StoreUnreadable, &format!("{}: {e}", e.code())))
        }
        Err(_) => Err(problem(Kind::InternalError, "a read of the journal ended without an answer")),
    }
}
