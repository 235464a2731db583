//! What a request target asks for: `/<provider>/<path…>`, `/~<task>/<provider>/<path…>` or something of our own (`/-/…`).
//!
//! It promises that the path and query bytes which go upstream are the ones that came in (`%2F`, `//`, `.`, `|`, `{}`, `+`,
//! empty parameters, a double-encoded `%252e`), and refuses targets that name no provider or that climb out of where they
//! point: a `..` segment however it is written, because the provider may read it differently from the rule that allowed it.

use http::uri::PathAndQuery;
use http::{Method, Uri, Version};

/// Bytes of a task name in a path.
pub const TASK_NAME_BYTES_MAX: usize = 128;
/// Bytes of a provider name in a path.
pub const PROVIDER_NAME_BYTES_MAX: usize = 64;

/// Where a request wants to go. The parts are slices of the request's own target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// Forbear's own surface, `/-` and everything under it.
    Own { path_and_query: &'a str },
    /// A provider: `rest` is empty or begins with `/` or `?`, exactly as it came.
    Provider { task: Option<&'a str>, provider: &'a str, rest: &'a str },
}

/// Why a target is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("CONNECT asks for a tunnel, and Forbear is not a forward proxy")]
    Connect,
    #[error("the target is a whole URL, as sent to a forward proxy; Forbear is addressed as a base URL")]
    AbsoluteForm,
    #[error("`*` names no provider")]
    Asterisk,
    #[error("the path names no provider")]
    NoProvider,
    #[error("the provider name in the path is longer than {PROVIDER_NAME_BYTES_MAX} bytes or not plain")]
    ProviderName,
    #[error("the task name in the path is empty, longer than {TASK_NAME_BYTES_MAX} bytes or not plain")]
    TaskName,
    #[error("the path has a `..` segment, plain or encoded")]
    DotSegment,
}

impl TargetError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Connect | Self::AbsoluteForm => {
                "set the client's base URL to Forbear's address followed by the provider's name, not its proxy setting"
            }
            Self::Asterisk | Self::NoProvider | Self::ProviderName => {
                "address a provider by name: /<provider>/<path>, or /~<task>/<provider>/<path>"
            }
            Self::TaskName => "name the task with letters, digits and `-._:@`, or use the Forbear-Task header",
            Self::DotSegment => "send the path with its dot segments already resolved",
        }
    }
}

/// Reads the target of a request.
///
/// # Errors
/// When it names no place that a request may go to.
pub fn parse<'a>(method: &Method, version: Version, uri: &'a Uri) -> Result<Target<'a>, TargetError> {
    if method == Method::CONNECT {
        return Err(TargetError::Connect);
    }
    // In HTTP/2 scheme and authority are fields of every request and say nothing about a proxy.
    if version < Version::HTTP_2 && uri.scheme().is_some() {
        return Err(TargetError::AbsoluteForm);
    }
    let whole = uri.path_and_query().map_or("", PathAndQuery::as_str);
    if whole == "*" {
        return Err(TargetError::Asterisk);
    }
    let Some(inner) = whole.strip_prefix('/') else { return Err(TargetError::NoProvider) };
    let (first, rest) = segment(inner);
    if first == "-" {
        return Ok(Target::Own { path_and_query: whole });
    }
    let (task, provider, rest) = match first.strip_prefix('~') {
        None => (None, first, rest),
        Some(task) => {
            if !plain(task, TASK_NAME_BYTES_MAX) {
                return Err(TargetError::TaskName);
            }
            let Some(inner) = rest.strip_prefix('/') else { return Err(TargetError::NoProvider) };
            let (provider, rest) = segment(inner);
            (Some(task), provider, rest)
        }
    };
    if provider.is_empty() {
        return Err(TargetError::NoProvider);
    }
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if climbs(provider) || climbs(path) {
        return Err(TargetError::DotSegment);
    }
    if !plain(provider, PROVIDER_NAME_BYTES_MAX) {
        return Err(TargetError::ProviderName);
    }
    Ok(Target::Provider { task, provider, rest })
}

/// The URI to send to a provider: its base path followed by `rest`, byte for byte. Scheme and authority are the sender's
/// to add where a protocol wants them.
///
/// # Errors
/// Only when base path and rest together are no valid path, which [`parse`] and `Origin::parse` rule out but for length.
pub fn upstream_uri(base_path: &str, rest: &str) -> Result<Uri, http::uri::InvalidUri> {
    let mut path = String::with_capacity(base_path.len() + rest.len() + 1);
    path.push_str(base_path);
    if path.is_empty() && !rest.starts_with('/') {
        path.push('/');
    }
    path.push_str(rest);
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(path)).map(Uri::from)
}

fn segment(inner: &str) -> (&str, &str) {
    inner.split_at(inner.find(['/', '?']).unwrap_or(inner.len()))
}

fn plain(name: &str, bytes_max: usize) -> bool {
    !name.is_empty()
        && name.len() <= bytes_max
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'@'))
}

/// Whether any segment of the path is `..`, where a separator may be `/`, `\` or either of them encoded, and a dot may be
/// `%2e`. What follows a `;` is no part of the name: some servers cut it off before they resolve dots.
fn climbs(path: &str) -> bool {
    let mut rest = path.as_bytes();
    let (mut dots, mut other) = (0u8, false);
    loop {
        let (byte, after) = match rest {
            [] => return dots == 2 && !other,
            [b'%', high, low, after @ ..] => match (high, low.to_ascii_lowercase()) {
                (b'2', b'e') => (b'.', after),
                (b'2', b'f') => (b'/', after),
                (b'5', b'c') => (b'\\', after),
                _ => (b'%', after),
            },
            [byte, after @ ..] => (*byte, after),
        };
        match byte {
            b'/' | b'\\' | b';' => {
                if dots == 2 && !other {
                    return true;
                }
                // A parameter is not a segment: nothing counts until the next separator.
                (dots, other) = (0, byte == b';');
            }
            b'.' if dots < 2 => dots += 1,
            _ => other = true,
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str) -> Result<(Option<String>, String, String), TargetError> {
        let uri: Uri = target.parse().expect(target);
        match parse(&Method::GET, Version::HTTP_11, &uri)? {
            Target::Own { path_and_query } => Ok((None, "-".into(), path_and_query.into())),
            Target::Provider { task, provider, rest } => Ok((task.map(Into::into), provider.into(), rest.into())),
        }
    }

    #[test]
    fn every_byte_after_the_provider_is_kept() {
        for rest in [
            "",
            "/",
            "?",
            "?a=1",
            "/v1/x",
            "//v1//x//",
            "/api/permissions/%2F/guest",
            "/a/./b",
            "/a|b/{c}/d\"e",
            "/files/%252e%252e/secret",
            "/q?a=2&a=1&b&c=&=x",
            "/q?lang=C%2B%2B&s=a+b&t=a%20b",
            "/q?next=../../x",
            "/...",
            "/a..b/..c/d..",
            "/~x/-/y",
            "/%zz",
        ] {
            let (task, provider, got) = read(&format!("/openai{rest}")).unwrap();
            assert_eq!((task, provider.as_str(), got.as_str()), (None, "openai", rest));
            let (task, _, got) = read(&format!("/~t-1/openai{rest}")).unwrap();
            assert_eq!((task.as_deref(), got.as_str()), (Some("t-1"), rest));
            let slash = if rest.starts_with('/') { "" } else { "/" };
            let sent = upstream_uri("", rest).unwrap();
            assert_eq!(sent.path_and_query().unwrap().as_str(), format!("{slash}{rest}"));
            let sent = upstream_uri("/base/v1", rest).unwrap();
            assert_eq!(sent.path_and_query().unwrap().as_str(), format!("/base/v1{rest}"));
        }
    }

    #[test]
    fn climbing_is_refused_however_it_is_written() {
        for path in [
            "/datasets/../api/tokens",
            "/datasets/%2e%2e/api/tokens",
            "/datasets/.%2E/api",
            "/datasets/..%2fapi/tokens",
            "/datasets%2f..%2Fapi",
            "/datasets/..%5capi",
            "/datasets\\..\\api",
            "/datasets/..;x=1/api",
            "/..",
            "/a/%2e%2e?x",
        ] {
            assert_eq!(read(&format!("/p{path}")), Err(TargetError::DotSegment), "{path}");
        }
        assert_eq!(read("/../x"), Err(TargetError::DotSegment));
        assert_eq!(read("/p/a;b=../c"), Ok((None, "p".into(), "/a;b=../c".into())));
    }

    #[test]
    fn what_names_no_provider_has_its_own_answer() {
        assert_eq!(read("/"), Err(TargetError::NoProvider));
        assert_eq!(read("//x"), Err(TargetError::NoProvider));
        assert_eq!(read("/~t"), Err(TargetError::NoProvider));
        assert_eq!(read("/~t/"), Err(TargetError::NoProvider));
        assert_eq!(read("/~/openai/x"), Err(TargetError::TaskName));
        assert_eq!(read("/a%20b/x"), Err(TargetError::ProviderName));
        assert_eq!(read("*"), Err(TargetError::Asterisk));
        assert_eq!(read("http://api.example/v1"), Err(TargetError::AbsoluteForm));
        assert_eq!(read("/-/ready?x"), Ok((None, "-".into(), "/-/ready?x".into())));
        let uri: Uri = "api.example:443".parse().unwrap();
        assert_eq!(parse(&Method::CONNECT, Version::HTTP_11, &uri), Err(TargetError::Connect));
    }
}
