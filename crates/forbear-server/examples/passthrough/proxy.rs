//! A pass-through proxy without any logic, made of the gateway's parts: one provider named `p`, one send a request.

use std::sync::Arc;
use std::time::Duration;

use forbear_server::http::body::{self, BodyLimits, RequestBody, UpstreamBody};
use forbear_server::http::guard::Refusal;
use forbear_server::http::headers;
use forbear_server::http::origin::Origin;
use forbear_server::http::pool::Pool;
use forbear_server::http::relay::{self, AgentBody};
use forbear_server::http::target::{self, Target};
use forbear_server::http::upstream::{self, Answer, SendError, SendOptions};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

/// Everything a request is passed on with.
pub(crate) struct Proxy {
    pub(crate) pool: Pool,
    pub(crate) origin: Origin,
    pub(crate) base_path: String,
    pub(crate) limits: BodyLimits,
    /// Refuse before the body is asked for, as a closed scope would.
    pub(crate) is_closed: bool,
    /// How the last body fares that was too large to keep.
    pub(crate) once: std::sync::Mutex<Option<Arc<body::Progress>>>,
    /// What became of each send.
    pub(crate) sends: std::sync::Mutex<Vec<Result<(bool, http::Version), SendError>>>,
}

impl Proxy {
    pub(crate) fn new(pool: Pool, origin: Origin, base_path: String) -> Self {
        let limits =
            BodyLimits { replay_bytes_max: 1 << 20, body_bytes_max: 1 << 30, silence_max: Duration::from_secs(30) };
        Self { pool, origin, base_path, limits, is_closed: false, once: Default::default(), sends: Default::default() }
    }
}

pub(crate) async fn handle(proxy: Arc<Proxy>, request: Request<Incoming>) -> Response<AgentBody> {
    let (head, incoming) = request.into_parts();
    if headers::wants_upgrade(head.version, &head.headers, &head.extensions) {
        return problem(StatusCode::NOT_IMPLEMENTED, "upgrade", "Upgrades are not passed on.");
    }
    let rest = match target::parse(&head.method, head.version, &head.uri) {
        Ok(Target::Provider { provider: "p", rest, .. }) => rest,
        Ok(_) => return problem(StatusCode::NOT_FOUND, "unknown-provider", "The one provider is named p."),
        Err(e) => return problem(StatusCode::BAD_REQUEST, "bad-target", e.advice()),
    };
    if proxy.is_closed {
        return problem(StatusCode::TOO_MANY_REQUESTS, "closed", "The scope is closed.");
    }
    let body = match body::receive(&head, incoming, proxy.limits, |_| true).await {
        Ok(RequestBody::Replayable(body)) => UpstreamBody::replay(&body),
        Ok(RequestBody::Once(body)) => {
            *proxy.once.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(body.progress());
            UpstreamBody::once(body)
        }
        Err(body::BodyError::TooLarge { .. }) => {
            return problem(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large.");
        }
        Err(body::BodyError::Broken(_) | body::BodyError::Malformed(_) | body::BodyError::Silent { .. }) => {
            return problem(StatusCode::BAD_REQUEST, "broken", "The body is broken.");
        }
    };
    let Ok(uri) = target::upstream_uri(&proxy.base_path, rest) else {
        return problem(StatusCode::BAD_REQUEST, "bad-target", "No such target.");
    };
    let mut upstream = Request::new(body);
    *upstream.headers_mut() = headers::for_provider(&head.headers, head.version, &proxy.origin);
    *upstream.method_mut() = head.method;
    *upstream.uri_mut() = uri;
    *upstream.extensions_mut() = head.extensions;
    let options = SendOptions {
        not_after: Instant::now() + Duration::from_secs(5),
        fresh: false,
        connect_timeout: Duration::from_secs(5),
        head_timeout: Duration::from_secs(30),
    };
    match upstream::send(&proxy.pool, &proxy.origin, upstream, options, || true).await {
        Ok(Answer { head, body, reused, protocol }) => {
            note(&proxy, Ok((reused, protocol)));
            relay::answer(head, AgentBody::answer(body), [])
        }
        Err(e) => {
            let is_too_large = matches!(e.body_error, Some(body::BodyError::TooLarge { .. }));
            note(&proxy, Err(e));
            if is_too_large {
                return problem(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large.");
            }
            problem(StatusCode::BAD_GATEWAY, "no-answer", "The provider gave no answer.")
        }
    }
}

/// How many sends are remembered; a benchmark makes more than anybody looks at.
const SENDS_KEPT: usize = 1024;

fn note(proxy: &Proxy, send: Result<(bool, http::Version), SendError>) {
    let mut sends = proxy.sends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if sends.len() < SENDS_KEPT {
        sends.push(send);
    }
}

fn problem(status: StatusCode, slug: &'static str, detail: &'static str) -> Response<AgentBody> {
    let mut response = relay::refusal(Refusal { status, slug, title: "Not passed on", detail });
    response.headers_mut().remove(http::header::CONNECTION);
    response
}
