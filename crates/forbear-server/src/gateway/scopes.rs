//! Which scopes a call needs below its account, as its contract cuts them.
//!
//! A model is named as it is; what stands in a header or a path may identify somebody, and is named by a keyed digest. A call
//! whose body does not come whole before its turn, or has no such member, is under its broader scopes alone.

use std::borrow::Cow;

use forbear_core::ids::ScopeId;
use forbear_core::input::Quota;
use forbear_core::json_member;
use forbear_core::lane::{Lane, Narrow};
use forbear_core::pacer::Ask;
use forbear_core::policy::{By, CompiledScope};
use http::header::CONTENT_ENCODING;

use super::call::Call;
use crate::http::body::RequestBody;

/// A longer body is not looked into: the reading costs a millisecond or two for so much.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// A value that is longer is named by its digest.
const SHOWN_BYTES_MAX: usize = 64;

impl Call {
    pub(super) fn quota(&self) -> Quota {
        let provider = &self.understood.provider.compiled;
        Quota {
            rates: provider.rates.clone(),
            lane: if provider.scopes.is_empty() { Lane::default() } else { self.lane(&provider.scopes) },
            priority: self.understood.priority,
            ask: Ask::default(),
        }
    }

    fn lane(&self, rules: &[CompiledScope]) -> Lane {
        let (home, method) = (self.understood.scope.as_str(), self.head.method.as_str());
        let path = self.understood.own_path();
        let narrow = rules.iter().filter_map(|rule| {
            let pattern = rule.holds(method, path)?;
            let scope = match &rule.by {
                By::One => format!("{home}/{}", rule.name),
                By::Route => format!("{home}/{}={}", rule.name, self.understood.route),
                By::Method => format!("{home}/{}={method}", rule.name),
                By::Body(member) => format!("{home}/{}={}", rule.name, self.shown(rule, self.body_member(member)?)),
                By::Header(name) => {
                    let value = self.head.headers.get(name)?;
                    format!("{home}/{}={}", rule.name, self.digested(rule, value.as_bytes()))
                }
                By::Path(places) => {
                    let segment = path.strip_prefix('/')?.split('/').nth(*places.get(pattern)?)?;
                    // `{model}:verb`: the verb is no part of what it names.
                    let named = segment.rsplit_once(':').map_or(segment, |(named, _)| named);
                    format!("{home}/{}={}", rule.name, self.digested(rule, named.as_bytes()))
                }
            };
            Some(Narrow {
                scope: ScopeId::new(&scope),
                max_concurrent_requests: rule.max_concurrent_requests,
                rates: rule.rates.clone(),
            })
        });
        Lane::new(narrow.collect())
    }

    fn body_member(&self, member: &str) -> Option<String> {
        let Some(RequestBody::Replayable(body)) = &self.body else { return None };
        if body.bytes() > BODY_BYTES_MAX || self.head.headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let whole = match body.chunks() {
            [only] => Cow::Borrowed(&only[..]),
            chunks => Cow::Owned(chunks.concat()),
        };
        json_member::text(&whole, member)
    }

    fn shown(&self, rule: &CompiledScope, value: String) -> String {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-' | b'/' | b'@');
        if (1..=SHOWN_BYTES_MAX).contains(&value.len()) && value.bytes().all(is_plain) {
            return value;
        }
        self.digested(rule, value.as_bytes())
    }

    fn digested(&self, rule: &CompiledScope, value: &[u8]) -> String {
        let kind = format!("{}/{}", self.understood.provider.compiled.name, rule.name);
        self.gateway.keys.account(&kind, value)
    }
}
