//! Where a provider is: scheme, host, port, and how to speak to it. Made once from a `base_url`, shared after that.

use std::sync::Arc;

use http::HeaderValue;
use http::uri::Authority;
use rustls_pki_types::ServerName;

/// A provider's origin. Cheap to clone; equal origins share their connections.
#[derive(Debug, Clone)]
pub struct Origin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// What the pool keys on: scheme, host and port in their plain form, and the protocol where it is not negotiated.
    key: String,
    host: String,
    port: u16,
    authority: Authority,
    host_field: HeaderValue,
    tls_name: Option<ServerName<'static>>,
    http2_prior_knowledge: bool,
}

/// Why a `base_url` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    #[error("not a URL: {0}")]
    NotAUrl(String),
    #[error("the scheme must be http or https")]
    Scheme,
    #[error("a base URL carries no user name or password")]
    UserInfo,
    #[error("a base URL carries no query")]
    Query,
    #[error("the host is neither a name nor an address")]
    Host,
}

impl Origin {
    /// Reads a base URL into the origin and its base path, which has no trailing slash and is empty for the root.
    ///
    /// # Errors
    /// When it is no http or https URL, or carries more than host, port and path.
    pub fn parse(base_url: &str) -> Result<(Self, String), OriginError> {
        let uri: http::Uri =
            base_url.parse().map_err(|e: http::uri::InvalidUri| OriginError::NotAUrl(e.to_string()))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(OriginError::Scheme),
        };
        let given = uri.authority().ok_or(OriginError::Host)?;
        if given.as_str().contains('@') {
            return Err(OriginError::UserInfo);
        }
        if uri.query().is_some() || base_url.contains('#') {
            return Err(OriginError::Query);
        }
        let default_port = if tls { 443 } else { 80 };
        let port = given.port_u16().unwrap_or(default_port);
        let host = given.host().to_ascii_lowercase();
        // RFC 9110 section 4.2.3: a default port is left out, so that the provider sees the name it knows itself by.
        let shown = if port == default_port { host.clone() } else { format!("{host}:{port}") };
        let authority: Authority = shown.parse().map_err(|_| OriginError::Host)?;
        let host_field = HeaderValue::from_str(&shown).map_err(|_| OriginError::Host)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(OriginError::Host);
        }
        let tls_name = match tls {
            true => Some(ServerName::try_from(host.clone()).map_err(|_| OriginError::Host)?),
            false => None,
        };
        let key = format!("{}://{host}:{port}", if tls { "https" } else { "http" });
        let inner = Inner { key, host, port, authority, host_field, tls_name, http2_prior_knowledge: false };
        Ok((Self(Arc::new(inner)), uri.path().trim_end_matches('/').to_owned()))
    }

    /// The same origin, spoken to in HTTP/2 without asking. With TLS the protocol is negotiated and this changes nothing.
    #[must_use]
    pub fn with_http2_prior_knowledge(self) -> Self {
        let inner = &*self.0;
        Self(Arc::new(Inner {
            key: format!("{}+h2", inner.key),
            host: inner.host.clone(),
            port: inner.port,
            authority: inner.authority.clone(),
            host_field: inner.host_field.clone(),
            tls_name: inner.tls_name.clone(),
            http2_prior_knowledge: true,
        }))
    }

    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.tls_name.is_some()
    }

    /// Host and, unless it is the scheme's default, port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    pub(super) fn host_field(&self) -> &HeaderValue {
        &self.0.host_field
    }

    pub(super) fn tls_name(&self) -> Option<&ServerName<'static>> {
        self.0.tls_name.as_ref()
    }

    pub(super) fn key(&self) -> &str {
        &self.0.key
    }

    pub(super) fn host(&self) -> &str {
        &self.0.host
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port
    }

    pub(super) fn http2_prior_knowledge(&self) -> bool {
        self.0.http2_prior_knowledge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_port_is_left_out_and_the_base_path_kept() {
        let (origin, path) = Origin::parse("https://API.example.test:443/v1/").unwrap();
        assert_eq!((origin.authority().as_str(), path.as_str()), ("api.example.test", "/v1"));
        let (origin, path) = Origin::parse("http://[::1]:8080").unwrap();
        assert_eq!((origin.authority().as_str(), origin.host(), path.as_str()), ("[::1]:8080", "::1", ""));
    }

    #[test]
    fn anything_else_is_refused() {
        for (url, why) in [
            ("ftp://x", OriginError::Scheme),
            ("/v1", OriginError::Scheme),
            ("https://me:pw@x", OriginError::UserInfo),
            ("https://x/?a", OriginError::Query),
            ("https://x/#a", OriginError::Query),
            ("https://x y", OriginError::NotAUrl("invalid uri character".into())),
        ] {
            assert_eq!(Origin::parse(url).map(|_| ()), Err(why), "{url}");
        }
    }
}
