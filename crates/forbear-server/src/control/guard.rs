//! Who may ask: a caller whose `Host` no name server could have pointed here, whose `Origin`, if it has one, is this
//! server, and who, for all of `/-/v1/`, has the token.
//!
//! A page that a browser shows can make it send requests to loopback. Rebinding a name needs a name: an IP address or
//! `localhost` as `Host` cannot be one. There are no CORS headers, so that no page can read an answer either.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use forbear_api::client::TOKEN_FILE;
use forbear_api::problem::Kind;

use super::Shared;
use super::reply::problem;

pub(super) async fn origin(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    match foreign(request.uri(), request.headers(), &shared.control.names) {
        Some(why) => problem(Kind::ForeignOrigin, &why),
        None => next.run(request).await,
    }
}

pub(super) async fn token(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|v| v.as_bytes().split_at_checked(7));
    let right = given.is_some_and(|(scheme, token)| {
        scheme.eq_ignore_ascii_case(b"bearer ") && shared.control.token.is(token.trim_ascii())
    });
    if right {
        return next.run(request).await;
    }
    let file = shared.control.data_dir.join(TOKEN_FILE);
    let what = if given.is_some() { "this is not the token" } else { "there is no bearer token" };
    problem(Kind::Unauthorized, &format!("{what}; it is in {}", file.display()))
}

/// Why a request comes from elsewhere, if it does.
fn foreign(uri: &Uri, headers: &HeaderMap, names: &[String]) -> Option<String> {
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).and_then(|h| h.parse::<Authority>().ok());
    let Some(host) = host.or_else(|| uri.authority().cloned()) else {
        return Some("the request names no Host".to_owned());
    };
    if !is_ours(host.host(), names) {
        return Some(format!("the Host `{}` is not a name of this server", host.host()));
    }
    let origin = headers.get(header::ORIGIN)?;
    let same = origin.to_str().ok().and_then(|o| o.parse::<Uri>().ok()).and_then(|o| o.authority().cloned());
    if same.is_some_and(|o| o == host) { None } else { Some("the Origin is another site".to_owned()) }
}

fn is_ours(host: &str, names: &[String]) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || names.iter().any(|n| n.eq_ignore_ascii_case(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        foreign(&Uri::from_static("/-/ready"), &headers, &["forbear.internal".to_owned()]).is_none()
    }

    #[test]
    fn a_rebound_name_and_a_foreign_page_are_refused() {
        for host in ["127.0.0.1:8429", "localhost:8429", "LOCALHOST", "[::1]:8429", "10.0.0.7", "Forbear.internal:1"] {
            assert!(asked(Some(host), None), "{host}");
        }
        for host in ["evil.example:8429", "localhost.evil.example", "127.0.0.1.nip.io", ""] {
            assert!(!asked(Some(host), None), "{host}");
        }
        assert!(!asked(None, None));
        assert!(asked(Some("127.0.0.1:8429"), Some("http://127.0.0.1:8429")));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:3000", "http://10.0.0.7:8429", "file://"] {
            assert!(!asked(Some("127.0.0.1:8429"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn http_2_names_its_host_in_the_target() {
        let here = Uri::from_static("http://127.0.0.1:8429/-/ready");
        assert_eq!(foreign(&here, &HeaderMap::new(), &[]), None);
        let there = Uri::from_static("http://evil.example/-/ready");
        assert!(foreign(&there, &HeaderMap::new(), &[]).is_some());
    }
}
