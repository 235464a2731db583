//! Rules for routes that were called and have none, as they are said over the wire.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use forbear_api::control::{RouteSuggestion, RouteSuggestions, RoutesQuery};
use forbear_api::problem::Kind;
use forbear_core::ids::Route;
use forbear_core::policy::Compiled;
use forbear_core::route::suggest::{SeenRoute, suggest};
use forbear_store::RoutesSeen;

use super::Shared;
use super::reads::read;
use super::reply::problem;
use super::report::{HOW_SINCE, since};

#[utoipa::path(get, path = "/-/v1/routes/suggestions", params(RoutesQuery), responses(
    (status = 200, body = RouteSuggestions, description = "Rules for routes that were seen and have none, by provider")))]
pub(super) async fn routes(
    State(shared): State<Shared>,
    query: Result<Query<RoutesQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(e) => return problem(Kind::BadQuery, &e.body_text()),
    };
    let Some(since) = since(query.since.as_deref()) else { return problem(Kind::BadQuery, HOW_SINCE) };
    let policy = &*(shared.control.policy)();
    if let Some(name) = query.provider.as_deref().filter(|name| policy.provider(name).is_none()) {
        return problem(Kind::NotFound, &format!("no provider is named `{name}`; see `forbear providers`"));
    }
    match read(&shared, move |reader| reader.routes(since)).await {
        Ok(seen) => Json(said(policy, &seen, query.provider.as_deref())).into_response(),
        Err(response) => response,
    }
}

fn said(policy: &Compiled, seen: &RoutesSeen, wanted: Option<&str>) -> RouteSuggestions {
    let mut by_provider: BTreeMap<&str, Vec<(&Route, &SeenRoute)>> = BTreeMap::new();
    for ((provider, route), seen) in &seen.routes {
        if wanted.is_none_or(|wanted| wanted == provider) {
            by_provider.entry(provider).or_default().push((route, seen));
        }
    }
    let mut items = Vec::new();
    for (name, routes) in by_provider {
        // One that is not configured any more has no rules to be added to.
        let Some(provider) = policy.provider(name) else { continue };
        items.extend(suggest(&provider.routes, routes).into_iter().map(|s| RouteSuggestion {
            provider: name.to_owned(),
            pattern: s.pattern,
            class: s.class.to_owned(),
            calls: s.seen.calls,
            statuses: s.seen.statuses,
            reason: s.reason,
            instead: s.instead,
        }));
    }
    RouteSuggestions { items, calls_beyond: seen.beyond }
}
