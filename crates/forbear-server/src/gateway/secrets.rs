//! What in a request is a secret, so that none of it is recorded when a provider says it back.
//!
//! It promises to know the declared credentials, any field or query member whose name says that it holds one, cookies, the user
//! and password that `Basic` spells in base64, and what a signature says of its signer; and to recognise each by its
//! beginning or a long piece, in any case. At most [`VALUES_MAX`] are compared: where a request carries more, every word
//! counts as one. A value of less than [`WHOLE_BYTES_MIN`] bytes is no secret: whatever text has such a piece in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, Uri};
use zeroize::Zeroizing;

/// Values that are compared.
const VALUES_MAX: usize = 64;
/// What is shorter gives nothing away, and would be met in ordinary words.
const WHOLE_BYTES_MIN: usize = 6;
/// So many bytes at its beginning tell a secret from other words: what is quoted may be cut.
const BEGINS_BYTES: usize = 8;
/// So many bytes from anywhere in it.
const PIECE_BYTES: usize = 16;

/// Parts of the name of a field or a query member that holds a secret.
const NAME_PARTS: [&str; 9] =
    ["key", "token", "secret", "passw", "auth", "credential", "signature", "cookie", "session"];
const NAMES: [&str; 4] = ["sig", "pass", "pwd", "jwt"];

/// Whether what stands under this name is a secret, whichever provider it is.
pub(super) fn is_named(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let holds = NAMES.contains(&name.as_str()) || NAME_PARTS.iter().any(|part| name.contains(part));
    // A key that names an action is to be known.
    holds && !name.contains("idempotency")
}

/// The secrets of one request.
pub(super) struct Secrets {
    values: Vec<Zeroizing<Vec<u8>>>,
    is_full: bool,
}

impl Secrets {
    pub(super) fn of(fields: &HeaderMap, uri: &Uri, credentials: &[HeaderName]) -> Self {
        let mut secrets = Self { values: Vec::new(), is_full: false };
        for (name, value) in fields {
            if credentials.contains(name) || is_named(name.as_str()) {
                secrets.add_field(name, value.as_bytes());
            }
        }
        for member in uri.query().unwrap_or_default().split('&') {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            if is_named(&String::from_utf8_lossy(&decoded(name))) {
                secrets.add(value.as_bytes());
                if value.contains(['%', '+']) {
                    secrets.add(&decoded(value));
                }
            }
        }
        secrets
    }

    /// Whether a text has something of them in it.
    pub(super) fn are_in(&self, text: &str) -> bool {
        if self.is_full {
            return true;
        }
        if text.len() < WHOLE_BYTES_MIN {
            return false;
        }
        let text = text.to_ascii_lowercase().into_bytes();
        self.values.iter().any(|secret| {
            let begins = &secret[..secret.len().min(BEGINS_BYTES)];
            holds(&text, begins) || text.windows(PIECE_BYTES).any(|piece| holds(secret, piece))
        })
    }

    fn add_field(&mut self, name: &HeaderName, value: &[u8]) {
        if *name == COOKIE {
            for crumb in value.split(|b| *b == b';') {
                self.add(crumb.splitn(2, |b| *b == b'=').last().unwrap_or_default());
            }
            return;
        }
        let mut words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).peekable();
        let first = words.peek().copied().unwrap_or_default();
        let is_scheme = value.trim_ascii().len() > first.len();
        if is_scheme {
            words.next();
        }
        if is_scheme && first.eq_ignore_ascii_case(b"basic") {
            for word in words.clone() {
                self.add_pair(word);
            }
        }
        for word in words {
            // `Credential=…`, `Signature=…`: the value is the secret, and the name a word that errors have too.
            let has_params = is_scheme || *name == AUTHORIZATION;
            for part in word.split(|b| has_params && *b == b',') {
                match part.iter().position(|b| *b == b'=').filter(|_| has_params).map(|at| part.split_at(at)) {
                    Some((_, rest)) if rest.iter().all(|b| *b == b'=') => self.add(part),
                    Some((b"SignedHeaders", _)) => {}
                    Some((_, rest)) => self.add(&rest[1..]),
                    None => self.add(part),
                }
            }
        }
    }

    /// User and password of `Basic`, each a credential in its own right.
    fn add_pair(&mut self, base64: &[u8]) {
        let Ok(pair) = STANDARD.decode(base64) else { return };
        let pair = Zeroizing::new(pair);
        let mut parts = pair.splitn(2, |b| *b == b':');
        parts.by_ref().for_each(|part| self.add(part));
        self.add(&pair);
    }

    fn add(&mut self, value: &[u8]) {
        let value = value.trim_ascii();
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let value = value.strip_suffix(b"\"").unwrap_or(value);
        if value.len() < WHOLE_BYTES_MIN || self.is_full {
            return;
        }
        self.is_full = self.values.len() == VALUES_MAX;
        self.values.push(Zeroizing::new(value.to_ascii_lowercase()));
    }
}

/// The text that a part of a query stands for; what is no escape stays as it is.
fn decoded(text: &str) -> Zeroizing<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(first) = rest.bytes().next() {
        let escaped = rest.get(1..3).filter(|_| first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(if first == b'+' { b' ' } else { first }));
        // A query is ASCII, as `Uri` has it.
        rest = rest.get(if escaped.is_some() { 3 } else { 1 }..).unwrap_or_default();
    }
    Zeroizing::new(out)
}

fn holds(text: &[u8], piece: &[u8]) -> bool {
    text.windows(piece.len()).any(|window| window == piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, &str)], target: &str) -> Secrets {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let credentials = [AUTHORIZATION, HeaderName::from_static("x-plain")];
        Secrets::of(&map, &target.parse().unwrap(), &credentials)
    }

    #[test]
    fn a_secret_is_known_by_its_beginning_in_any_case_and_by_a_long_piece() {
        let secrets = of(&[("authorization", "Bearer sk-Live-0123456789abcdefXYZ")], "/");
        for text in ["bad key SK-LIVE-012", "sk-live-0123456789abcdefxyz", "...3456789abcdefXYZ", "key=sk-live-0"] {
            assert!(secrets.are_in(text), "{text}");
        }
        for text in ["bearer", "sk-live", "rate_limit_exceeded", "9abcdefXYZ", ""] {
            assert!(!secrets.are_in(text), "{text}");
        }
    }

    #[test]
    fn every_place_of_a_credential_is_looked_into() {
        let basic = STANDARD.encode("somebody@mail.example:hunter2!");
        let aws = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE1/20260101/us-east-1/s3/aws4_request, \
                   SignedHeaders=content-type;host, Signature=0123456789abcdef0123";
        for (field, value, target, said) in [
            ("authorization", format!("Basic {basic}").as_str(), "/", "user somebody@mail.example"),
            ("authorization", &format!("basic {basic}"), "/", "password hunter2! is wrong"),
            ("authorization", &format!("Basic {basic}"), "/", &basic),
            ("authorization", aws, "/", "akidexample1 is unknown"),
            ("authorization", aws, "/", "0123456789abcdef0123"),
            ("authorization", "Digest username=\"somebody\", response=\"0011223344\"", "/", "0011223344"),
            ("authorization", "bare-secret-value", "/", "bare-secret-value"),
            ("x-plain", "declared-by-contract", "/", "declared-by"),
            ("x-api-key", "other-account-key", "/", "other-account-key"),
            ("api-key", "other-account-key", "/", "other-account-key"),
            ("x-amz-security-token", "session-of-aws", "/", "session-of-aws"),
            ("cookie", "a=1; sid=abcdefghij", "/", "sid abcdefghij"),
            ("accept", "*/*", "/x?a=1&api_key=in-the-query", "in-the-query"),
            ("accept", "*/*", "/x?key=in-the-query", "in-the-query"),
            ("accept", "*/*", "/x?access_token=in%2Dthe%2dquery", "in-the-query"),
            ("accept", "*/*", "/x?access_token=in%2Dthe%2dquery", "in%2dthe%2Dquery"),
            ("accept", "*/*", "/x?X-Amz-Signature=0123456789", "0123456789"),
            ("accept", "*/*", "/x?to%6ben=in-the-query", "in-the-query"),
        ] {
            assert!(of(&[(field, value)], target).are_in(said), "{field}: {value}, {target}: {said}");
        }
        let ordinary =
            ["credentials_expired", "content-type", "signature_invalid", "us-east-1", "aws4-hmac-sha256", "a1"];
        let secrets = of(&[("authorization", aws), ("idempotency-key", "ordinary-name")], "/?page=ordinary-name");
        for text in ordinary.into_iter().chain(["ordinary-name"]) {
            assert!(!secrets.are_in(text), "{text}");
        }
    }

    #[test]
    fn where_there_are_too_many_nothing_is_said() {
        let crumbs = (0..=VALUES_MAX).map(|n| format!("c{n}=value-{n}")).collect::<Vec<_>>().join("; ");
        assert!(of(&[("cookie", &crumbs)], "/").are_in("anything"));
    }
}
