//! Forbear's own surface under `/-/`: the control API's router, told what it may ask of the shard.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use forbear_api::control::Ready;
use http::{Request, Response};
use hyper::body::Incoming;
use tower_service::Service as _;

use crate::control::{Control, ControlToken, router, scopes_of};
use crate::gateway::{Gateway, owner_of};
use crate::http::relay::AgentBody;
use crate::reload::Reload;

/// Scopes shown at once.
const SCOPES_MAX: usize = 10_000;

/// Builds the router over a gateway.
pub(crate) fn build(
    token: ControlToken,
    data_dir: std::path::PathBuf,
    gateway: &Arc<Gateway>,
    reload: &Arc<Reload>,
    names: Vec<String>,
) -> Router {
    let shard = &gateway.shard;
    let (ready, scopes, live, cancel) = (Arc::clone(shard), Arc::clone(shard), Arc::clone(shard), Arc::clone(shard));
    let (reopen, all_live, circuits) = (Arc::clone(shard), Arc::clone(shard), Arc::clone(shard));
    let (gateway, policy) = (Arc::clone(gateway), Arc::clone(gateway));
    let reload = Arc::clone(reload);
    let journal = Arc::clone(shard);
    router(Control {
        token,
        data_dir,
        ready: Arc::new(move || {
            let why = ready.not_ready();
            Ready { ready: why.is_none(), why }
        }),
        scopes: Arc::new(move || scopes_of(&scopes.scopes(SCOPES_MAX + 1), SCOPES_MAX)),
        live: Arc::new(move |action| live.live_action(action)),
        all_live: Arc::new(move |query, max| {
            let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
            all_live.live(max, |r| is(&query.task, r.task.as_str()) && is(&query.scope, r.scope.as_str()))
        }),
        circuits: Arc::new(move |max| circuits.circuits(max)),
        caught_up: Arc::new(move || {
            let journal = Arc::clone(&journal);
            Box::pin(async move { journal.caught_up().await })
        }),
        cancel: Arc::new(move |whose, by| {
            let cancelled = cancel.cancel(whose, by.to_owned());
            Box::pin(async move {
                let actions = cancelled.actions;
                cancelled.kept().await.map(|()| actions)
            })
        }),
        reopen: Arc::new(move |whose, by| {
            let reopened = reopen.reopen(whose, by.to_owned());
            Box::pin(async move {
                let Some(reopened) = reopened else { return Ok(false) };
                reopened.kept().await.map(|()| true)
            })
        }),
        owner_of: Arc::new(move |provider, fields| owner_of(&gateway, provider, fields)),
        policy: Arc::new(move || Arc::clone(&policy.table().compiled)),
        reload: Arc::new(move || {
            let reload = Arc::clone(&reload);
            Box::pin(async move { reload.reload("control API").await })
        }),
        names,
    })
}

/// Answers one request.
pub(crate) async fn serve(mut router: Router, request: Request<Incoming>) -> Response<AgentBody> {
    // The router cannot fail; what it answers is bounded by what it reads.
    let Ok(response) = router.call(request.map(Body::new)).await;
    response.map(AgentBody::other)
}
