//! Redirects stay inside: a `Location` that points at the provider's own host comes back to Forbear. Others pass as they
//! are, and nothing here follows one.

use http::HeaderValue;

use super::table::Provider;

/// The value to hand on, where it must change. `prefix` is what stood before the provider's path in the agent's request:
/// `/openai` or `/~task/openai`.
#[must_use]
pub(super) fn rewritten(provider: &Provider, prefix: &str, value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let path = if text.starts_with('/') && !text.starts_with("//") { text } else { own_path(provider, text)? };
    let below = match path.strip_prefix(provider.base_path.as_str()) {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '?']) => rest,
        // Beside the base path: no address of Forbear's leads there.
        _ => return None,
    };
    HeaderValue::from_str(&format!("{prefix}{below}")).ok()
}

/// Path and query of an absolute URL of the provider's own origin.
fn own_path<'v>(provider: &Provider, url: &'v str) -> Option<&'v str> {
    let scheme = if provider.origin.is_tls() { "https://" } else { "http://" };
    let head = url.get(..scheme.len())?;
    let rest = &url[scheme.len()..];
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let own = provider.origin.authority().as_str();
    let default_port = if provider.origin.is_tls() { ":443" } else { ":80" };
    let bare = |a: &str| a.strip_suffix(default_port).unwrap_or(a).to_ascii_lowercase();
    (head.eq_ignore_ascii_case(scheme) && bare(authority) == bare(own)).then_some(path)
}
