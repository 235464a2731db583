//! Which fields travel on and which end here (RFC 9110 section 7.6.1, RFC 9112), for requests and for answers.
//!
//! It promises to keep every other field with its repetitions in order, and never to `remove` from a map: that would
//! reorder what stays, so a map with something to drop is rebuilt. It adds no `Via` and no `X-Forwarded-*`. Fields of one
//! name stay together at the place of the first, which is what a header map can hold; their spelling travels beside them
//! in the message's extensions.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Version};

use super::origin::Origin;

/// Prefix of the fields between agents and Forbear, which never reach a provider.
const OWN_PREFIX: &str = "forbear-";

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// The fields of a request as they go to a provider, `Host` first where the agent had none.
///
/// `TE` goes on only as `trailers`, and from HTTP/1.1 only if `Connection` named it, as RFC 9110 section 10.1.4 demands of
/// its sender. `Expect: 100-continue` ends here: it is answered on the agent's hop when the body is first asked for.
#[must_use]
pub fn for_provider(from: &HeaderMap, version: Version, origin: &Origin) -> HeaderMap {
    let named = Named::of(from);
    let wants_trailers = says_trailers(from) && (version >= Version::HTTP_2 || named.contains(&header::TE));
    let mut to = HeaderMap::with_capacity(from.len() + 2);
    if !from.contains_key(header::HOST) {
        to.append(header::HOST, origin.host_field().clone());
    }
    for (name, value) in from {
        if *name == header::HOST {
            to.entry(header::HOST).or_insert_with(|| origin.host_field().clone());
        } else if *name == header::CONTENT_LENGTH {
            // Over HTTP/2 it may be said twice, equally.
            to.entry(header::CONTENT_LENGTH).or_insert_with(|| value.clone());
        } else if *name == header::TE {
            if wants_trailers {
                to.entry(header::TE).or_insert(TRAILERS);
            }
        } else if is_hop_by_hop(name)
            || *name == header::PROXY_AUTHORIZATION
            || *name == HTTP2_SETTINGS
            || name.as_str().starts_with(OWN_PREFIX)
            || (*name == header::EXPECT && value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
            || named.contains(name)
        {
            continue;
        } else {
            to.append(name.clone(), value.clone());
        }
    }
    to
}

/// The fields of an answer as they go to an agent. A map with nothing to drop is handed on as it is.
#[must_use]
pub fn for_agent(from: HeaderMap) -> HeaderMap {
    let drops = |name: &HeaderName| {
        is_hop_by_hop(name)
            || *name == header::TE
            || *name == header::PROXY_AUTHENTICATE
            || *name == PROXY_AUTHENTICATION_INFO
            || name.as_str().starts_with(OWN_PREFIX)
    };
    if !from.keys().any(drops) {
        return from;
    }
    let mut to = HeaderMap::with_capacity(from.len());
    let named = Named::of(&from);
    for (name, value) in &from {
        if !drops(name) && !named.contains(name) {
            to.append(name.clone(), value.clone());
        }
    }
    to
}

/// Takes from trailers what frames or routes a message, or speaks for Forbear: no trailer may (RFC 9110 section 6.5.1), and an
/// HTTP/2 peer that gets one ends the stream.
pub(super) fn clean_trailers(trailers: &mut HeaderMap) {
    let is_out = |name: &HeaderName| {
        is_hop_by_hop(name)
            || [header::CONTENT_LENGTH, header::HOST, header::TE, header::TRAILER].contains(name)
            || name.as_str().starts_with(OWN_PREFIX)
    };
    if trailers.keys().any(is_out) {
        *trailers = without(trailers, is_out);
    }
}

/// The same fields in their order, but for some.
pub(super) fn without(fields: &HeaderMap, is_out: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let kept = fields.iter().filter(|(name, _)| !is_out(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether a request asks to leave HTTP (RFC 9110 section 7.8, and extended CONNECT in HTTP/2). An offer of `h2c` is not
/// meant: some clients make it with every cleartext request, and a server may ignore it.
#[must_use]
pub fn wants_upgrade(version: Version, headers: &HeaderMap, extensions: &Extensions) -> bool {
    match version {
        Version::HTTP_11 => {
            headers.get_all(header::UPGRADE).iter().flat_map(list).any(|p| !p.eq_ignore_ascii_case("h2c"))
        }
        Version::HTTP_2 => extensions.get::<hyper::ext::Protocol>().is_some(),
        _ => false,
    }
}

/// Whether `Connection` names a field that is there.
pub fn ends_here(fields: &HeaderMap, name: &HeaderName) -> bool {
    fields.contains_key(header::CONNECTION) && fields.contains_key(name) && Named::of(fields).contains(name)
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

fn says_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| {
        list(value).any(|item| item.split(';').next().is_some_and(|t| t.trim().eq_ignore_ascii_case("trailers")))
    })
}

fn list(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or("").split(',').map(str::trim)
}

/// The field names that `Connection` lists. Borrowed, because nearly every request has none or one.
struct Named<'a>(Vec<&'a str>);

impl<'a> Named<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        let names = headers.get_all(header::CONNECTION).iter().flat_map(list);
        Self(names.filter(|n| !n.is_empty() && !is_plain_option(n)).collect())
    }

    fn contains(&self, name: &HeaderName) -> bool {
        // A message's length is no hop's to take away: without it the framing would change.
        *name != header::CONTENT_LENGTH && self.0.iter().any(|n| n.eq_ignore_ascii_case(name.as_str()))
    }
}

/// Options that name no field of their own; skipped so that the usual `Connection: keep-alive` allocates nothing.
fn is_plain_option(option: &str) -> bool {
    option.eq_ignore_ascii_case("keep-alive") || option.eq_ignore_ascii_case("close")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn shown(map: &HeaderMap) -> Vec<String> {
        map.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect()
    }

    fn origin() -> Origin {
        Origin::parse("https://api.example.test").unwrap().0
    }

    #[test]
    fn what_connection_names_ends_here_and_the_rest_keeps_its_order() {
        // FB-164
        let from = map(&[
            ("host", "localhost:8429"),
            ("z-last", "1"),
            ("connection", "Upgrade, X-Foo"),
            ("connection", "x-bar"),
            ("x-foo", "1"),
            ("x-bar", "2"),
            ("te", "trailers"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("forbear-task", "t"),
            ("a-first", "1"),
            ("z-last", "2"),
            ("authorization", "Bearer x"),
        ]);
        assert_eq!(
            shown(&for_provider(&from, Version::HTTP_11, &origin())),
            ["host: api.example.test", "z-last: 1", "z-last: 2", "a-first: 1", "authorization: Bearer x"]
        );
    }

    #[test]
    fn te_goes_on_as_trailers_only() {
        let te = |fields: &[(&str, &str)], version| {
            for_provider(&map(fields), version, &origin()).get(header::TE).map(|v| v.to_str().unwrap().to_owned())
        };
        assert_eq!(
            te(&[("te", "gzip;q=0.5, Trailers"), ("connection", "te")], Version::HTTP_11),
            Some("trailers".into())
        );
        assert_eq!(te(&[("te", "trailers")], Version::HTTP_11), None);
        assert_eq!(te(&[("te", "trailers")], Version::HTTP_2), Some("trailers".into()));
        assert_eq!(te(&[("te", "gzip"), ("connection", "te")], Version::HTTP_11), None);
    }

    #[test]
    fn a_message_keeps_its_length_and_gets_a_host() {
        // Over HTTP/2 nobody has looked whether it is said twice.
        let from = map(&[
            ("connection", "content-length, host"),
            ("content-length", "3"),
            ("content-length", "3"),
            ("expect", "100-Continue"),
        ]);
        assert_eq!(
            shown(&for_provider(&from, Version::HTTP_11, &origin())),
            ["host: api.example.test", "content-length: 3"]
        );
    }

    #[test]
    fn answers_lose_their_hop_fields() {
        // FB-166
        let from = map(&[
            ("content-type", "text/plain"),
            ("connection", "Upgrade, x-hop"),
            ("upgrade", "h2,h2c"),
            ("keep-alive", "timeout=5"),
            ("x-hop", "1"),
            ("proxy-authenticate", "Basic"),
            ("forbear-outcome", "forged"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        assert_eq!(shown(&for_agent(from)), ["content-type: text/plain", "set-cookie: a", "set-cookie: b"]);
    }
}
