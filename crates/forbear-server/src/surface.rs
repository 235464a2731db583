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

/// Scopes shown at once.
const SCOPES_MAX: usize = 10_000;

/// Builds the router over a gateway.
pub(crate) fn build(
    token: ControlToken,
    data_dir: std::path::PathBuf,
    gateway: &Arc<Gateway>,
    names: Vec<String>,
) -> Router {
    let shard = &gateway.shard;
    let (ready, scopes, live, cancel) = (Arc::clone(shard), Arc::clone(shard), Arc::clone(shard), Arc::clone(shard));
    let reopen = Arc::clone(shard);
    let (gateway, policy) = (Arc::clone(gateway), Arc::clone(&gateway.table.compiled));
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
        policy,
        names,
    })
}

/// Answers one request.
pub(crate) async fn serve(mut router: Router, request: Request<Incoming>) -> Response<AgentBody> {
    // The router cannot fail; what it answers is bounded by what it reads.
    let Ok(response) = router.call(request.map(Body::new)).await;
    response.map(AgentBody::other)
}
