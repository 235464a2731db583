//! What arrived: a request head with everything a scenario may ask of it, still exactly as it was on the wire.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// Header fields whose values are credentials: logged and told apart by digest only.
const CREDENTIAL_FIELDS: [&str; 6] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "cookie"];
const DIGEST_HEX_CHARS: usize = 12;

/// Header fields or trailers, in order.
pub(crate) type Pairs = Vec<(String, String)>;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When the first byte of the head was read.
    pub(crate) at_ns: u64,
    pub(crate) version: &'static str,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Pairs,
    pub(crate) path_values: BTreeMap<String, String>,
    /// Digest of the first credential field, or `anonymous`.
    pub(crate) credential: String,
    pub(crate) connection: u64,
    pub(crate) client_port: u16,
    pub(crate) stream: Option<u32>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_token(&self, name: &str, token: &str) -> bool {
        self.headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .flat_map(|(_, value)| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    }

    /// The path without the query, of an origin-form or absolute-form target.
    pub(crate) fn path(&self) -> &str {
        let target = self.target.as_str();
        let origin = match target.find("://") {
            Some(at) if !target.starts_with('/') => {
                let authority = &target[at + 3..];
                authority.find(['/', '?']).map_or("/", |slash| &authority[slash..])
            }
            _ => target,
        };
        origin.split('?').next().unwrap_or_default()
    }

    /// The first value of a query parameter, undecoded.
    pub(crate) fn query_value(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        })
    }

    pub(crate) fn path_value(&self, name: &str) -> Option<&str> {
        self.path_values.get(name).map(String::as_str)
    }

    pub(crate) fn set_credential(&mut self, extra_fields: &[String]) {
        let named = self.headers.iter().find(|(name, _)| is_credential(name, extra_fields));
        self.credential = named.map_or_else(|| "anonymous".to_owned(), |(_, value)| credential_digest(value));
    }

    /// The headers as they may be logged.
    pub(crate) fn loggable_headers(&self, extra_fields: &[String]) -> Pairs {
        let shown = |(name, value): &(String, String)| match is_credential(name, extra_fields) {
            true => (name.clone(), credential_digest(value)),
            false => (name.clone(), value.clone()),
        };
        self.headers.iter().map(shown).collect()
    }

    #[cfg(test)]
    pub(crate) fn for_tests(method: &str, target: &str) -> Self {
        Self {
            at_ns: 0,
            version: "HTTP/1.1",
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            path_values: BTreeMap::new(),
            credential: "anonymous".to_owned(),
            connection: 1,
            client_port: 1,
            stream: None,
        }
    }
}

fn is_credential(name: &str, extra_fields: &[String]) -> bool {
    CREDENTIAL_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name))
        || extra_fields.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// How a credential's value is shown in the log: `sha256:` and the first twelve hexadecimal digits.
#[must_use]
pub fn credential_digest(value: &str) -> String {
    let mut digest = sha256_hex(value.as_bytes());
    digest.truncate(DIGEST_HEX_CHARS);
    format!("sha256:{digest}")
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_stay_as_they_were_written() {
        let request = Request::for_tests("GET", "/a/%2F//b?x=a+b&x=2&y");
        assert_eq!(request.path(), "/a/%2F//b");
        assert_eq!(request.query_value("x"), Some("a+b"));
        assert_eq!(request.query_value("y"), Some(""));
        assert_eq!(request.query_value("z"), None);
        assert_eq!(Request::for_tests("GET", "http://h:1/p?q=1").path(), "/p");
        assert_eq!(Request::for_tests("GET", "/p?u=http://x/y").path(), "/p");
    }

    #[test]
    fn credentials_are_told_apart_but_not_shown() {
        let mut request = Request::for_tests("GET", "/");
        request.headers.push(("Authorization".into(), "Bearer sk-TEST-123".into()));
        request.headers.push(("X-Mine".into(), "sk-TEST-124".into()));
        request.set_credential(&[]);
        assert_eq!(request.credential, credential_digest("Bearer sk-TEST-123"));
        let shown = format!("{:?}", request.loggable_headers(&["x-mine".to_owned()]));
        assert!(!shown.contains("sk-TEST"), "{shown}");
    }
}
