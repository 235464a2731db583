//! Answers that no provider gave: the refusal of a request that became no action, and what is left of any for a `HEAD`.

use http::Response;
use http::header::{self, HeaderName, HeaderValue};
use http_body::Body;

use super::{AgentBody, Inner};
use crate::http::guard::Refusal;

/// The answer to a request that was refused at the listener, before it was any action.
#[must_use]
pub fn refusal(refusal: Refusal) -> Response<AgentBody> {
    let problem = serde_json::json!({
        "type": format!("/-/problems/{}", refusal.slug),
        "title": refusal.title,
        "status": refusal.status.as_u16(),
        "detail": refusal.detail,
        "action": null,
        "sent": false,
        "answered": false,
        "effect": "not_applied",
        "attempts": 0,
        "waited_ms": 0,
        "safe_next": "correct the request and send it again",
    });
    let mut response = Response::new(AgentBody::whole(problem.to_string()));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    response
}

/// The same answer to a `HEAD` over HTTP/2, where nothing below drops a body: of one of Forbear's own its length is left.
#[must_use]
pub(in crate::http) fn head_only(response: Response<AgentBody>) -> Response<AgentBody> {
    let (mut head, body) = response.into_parts();
    if !matches!(body.inner, Inner::Whole(Some(_)) | Inner::Other(_)) {
        return Response::from_parts(head, body);
    }
    if let Some(bytes) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| bytes.into());
    }
    Response::from_parts(head, AgentBody::empty())
}
