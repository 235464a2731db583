//! What the core is to know of a call so that it can tell a run of a better way: which target it asks for, whether that
//! is one page of many, and by what its answer is the same as the last.

use std::sync::Arc;

use forbear_core::advice::Advisable;
use forbear_core::ids::Route;
use http::header::{CONTENT_LENGTH, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::call::Call;
use super::table::Provider;

pub(super) const FORBEAR_ADVICE: HeaderName = HeaderName::from_static("forbear-advice");

/// Parameters that name a page.
const PAGE_PARAMETERS: [&str; 14] = [
    "page",
    "page[after]",
    "page_token",
    "pagetoken",
    "cursor",
    "next_cursor",
    "start_cursor",
    "after",
    "before",
    "starting_after",
    "ending_before",
    "offset",
    "$skip",
    "$skiptoken",
];

/// Of a call on a route that the contract has advice for. `target` is what is asked of the provider.
pub(super) fn advisable(provider: &Provider, route: &Route, target: &str) -> Option<Advisable> {
    let ways = provider.advice.get(route.as_str())?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(Advisable {
        ways: Arc::clone(ways),
        path: digest(path.as_bytes()),
        target: digest(target.as_bytes()),
        is_page: query.split('&').any(is_page),
    })
}

fn is_page(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    PAGE_PARAMETERS.iter().any(|page| name.eq_ignore_ascii_case(page))
}

/// What is told with the answer that is about to be relayed.
pub(super) fn of(call: &Call, answer: &HeaderMap) -> Option<HeaderValue> {
    let asked = call.understood.advisable.as_ref()?;
    // The length alone says little, but a provider that names no version says no more.
    let version = [ETAG, LAST_MODIFIED, CONTENT_LENGTH].iter().find_map(|name| answer.get(name));
    let unchanged = version.map(|value| digest(value.as_bytes()));
    let text = call.gateway.shard.advise(call.action(), asked, unchanged)?;
    HeaderValue::from_str(&text).ok()
}

/// Enough to tell the targets of one run apart.
fn digest(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_parameter() {
        for (parameter, page) in [
            ("page=2", true),
            ("pageToken=x", true),
            ("starting_after=ch_1", true),
            ("per_page=100", false),
            ("limit=3", false),
            ("", false),
        ] {
            assert_eq!(is_page(parameter), page, "{parameter}");
        }
    }
}
