//! Redirects and links stay inside: a URL that points at the provider's own host comes back to Forbear, as do paths from
//! the root. Others pass as they are, and nothing here follows one.

use http::header::LINK;
use http::{HeaderName, HeaderValue};

use super::table::Provider;

/// The way back to Forbear, as the agent came.
#[derive(Debug, Clone, Copy)]
pub(super) struct WayBack<'a> {
    /// What stood before the provider's path in the agent's request: `/openai` or `/~task/openai`.
    pub prefix: &'a str,
    /// The host and port that the agent asked. Some clients set a path from the root behind their base URL, which holds the
    /// prefix too: what was a whole URL stays one.
    pub authority: Option<&'a str>,
}

/// The value to hand on, where it must change.
#[must_use]
pub(super) fn rewritten(
    provider: &Provider,
    back: WayBack<'_>,
    name: &HeaderName,
    value: &HeaderValue,
) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let ours = if *name == LINK { links(provider, back, text)? } else { url(provider, back, text)? };
    HeaderValue::from_str(&ours).ok()
}

fn url(provider: &Provider, back: WayBack<'_>, text: &str) -> Option<String> {
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let path = if is_path { text } else { own_path(provider, text)? };
    let front = back.authority.filter(|_| !is_path).map(|authority| format!("http://{authority}")).unwrap_or_default();
    match path.strip_prefix(provider.base_path.as_str()) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => Some(format!("{front}{}{rest}", back.prefix)),
        // Beside the base path: no address of Forbear's leads there.
        _ => None,
    }
}

/// `Link` holds URLs in angle brackets (RFC 8288 section 3), between parameters that may be quoted.
fn links(provider: &Provider, back: WayBack<'_>, text: &str) -> Option<String> {
    let (mut out, mut rest, mut changed) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find(['<', '"']) {
        let close = if rest[at..].starts_with('<') { '>' } else { '"' };
        let inner = at + 1;
        let Some(length) = rest[inner..].find(close) else { break };
        let ours = if close == '>' { url(provider, back, &rest[inner..inner + length]) } else { None };
        changed |= ours.is_some();
        out.push_str(&rest[..inner]);
        out.push_str(ours.as_deref().unwrap_or(&rest[inner..inner + length]));
        rest = &rest[inner + length..];
        // The closing character is taken along, so that it opens nothing.
        out.push(close);
        rest = &rest[1..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// Path and query of an absolute URL of the provider's own origin, or of another host that is this same API.
fn own_path<'v>(provider: &Provider, url: &'v str) -> Option<&'v str> {
    let scheme = if provider.origin.is_tls() { "https://" } else { "http://" };
    let head = url.get(..scheme.len())?;
    let rest = &url[scheme.len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let own = provider.origin.authority().as_str();
    let default_port = if provider.origin.is_tls() { ":443" } else { ":80" };
    let bare = |a: &str| a.strip_suffix(default_port).unwrap_or(a).to_ascii_lowercase();
    let said = bare(authority);
    let is_own = said == bare(own) || provider.compiled.contract.hosts.contains(&said);
    (head.eq_ignore_ascii_case(scheme) && is_own).then_some(path)
}
