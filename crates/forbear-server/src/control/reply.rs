//! Answers that are problems.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use forbear_api::problem::{ErrorShape, Kind, MEDIA_TYPE, Problem, problem_body};

use super::ADDRESSES;

pub(super) fn problem(kind: Kind, reason: &str) -> Response {
    problem_of(Problem::unsent(kind, reason))
}

pub(super) fn problem_of(problem: Problem) -> Response {
    let kind = problem.kind;
    let body = problem_body(&problem, ErrorShape::Problem);
    let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body.to_string()).into_response();
    if kind == Kind::Unauthorized {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"forbear\""));
    }
    response
}

pub(super) async fn not_found() -> Response {
    let known: Vec<String> = ADDRESSES.iter().map(|(method, path)| format!("{method} {path}")).collect();
    problem(Kind::NotFound, &format!("nothing has this address; there are: {}", known.join(", ")))
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let matches = |pattern: &str| {
        let (mut a, mut b) = (pattern.split('/'), uri.path().split('/'));
        a.by_ref().zip(b.by_ref()).all(|(p, s)| p == s || p.starts_with('{'))
            && a.next().is_none()
            && b.next().is_none()
    };
    let allowed = ADDRESSES.iter().find(|(_, path)| matches(path)).map_or("GET", |(method, _)| method);
    let mut response = problem(Kind::MethodNotAllowed, &format!("this address knows {allowed}, not {method}"));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}
