//! All of an answer that says when the next call is wanted, gathered once, before anybody asks what it means.
//!
//! It promises that an answer without signals costs one look at its field names, and that a cached answer says nothing of
//! the quota, which it tells as it was.

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::body_reset;
use super::raw::Malformed;
use super::retry_after::{self, Asked};
use super::seen::{SeenWindow, SeenWindows};
use super::server_time::ServerTime;
use super::{ResponseFacts, Window, rate_limit, x_rate_limit};
use crate::contract::Contract;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Signals<'a> {
    /// There wherever anything else is.
    pub(super) time: Option<ServerTime>,
    /// A header that asks to wait is there, readable or not.
    pub(super) retry_after_sent: bool,
    /// The valid wait of those headers.
    pub(super) asked: Option<Asked>,
    pub(super) rate_limit: SeenWindows<'a>,
    pub(super) limit_headers: SeenWindows<'a>,
    /// A wait that the body names, once it was looked for.
    pub(super) body: Option<Asked>,
}

impl<'a> Signals<'a> {
    pub(super) fn read(contract: &Contract, facts: &ResponseFacts<'a>, malformed: &mut Malformed) -> Self {
        let headers = facts.headers;
        let present = Present::scan(contract, headers);
        let mut signals = Self::default();
        if !present.any() {
            return signals;
        }
        let time = ServerTime::read(headers, facts.received);
        signals.time = Some(time);
        signals.retry_after_sent = present.retry_after;
        if present.retry_after {
            signals.asked = retry_after::read(headers, contract.retry_after_unit, &time, malformed);
        }
        if present.rate_limit && !time.cached {
            signals.rate_limit = rate_limit::read(headers, &time, malformed);
        }
        if present.limit_headers && !time.cached {
            signals.limit_headers = x_rate_limit::read(headers, &contract.limit_headers, &time, malformed);
        }
        signals
    }

    /// For refusals only: what a success says in its body is content.
    pub(super) fn read_body(
        &mut self,
        contract: &Contract,
        facts: &ResponseFacts<'_>,
        json: &Value,
        malformed: &mut Malformed,
    ) {
        let time = self.time.get_or_insert_with(|| ServerTime::read(facts.headers, facts.received));
        self.body = body_reset::read(json, contract, time, malformed);
    }

    /// RateLimit fields first.
    pub(super) fn windows(&self) -> impl Iterator<Item = &SeenWindow<'a>> {
        self.rate_limit.0.iter().chain(&self.limit_headers.0)
    }

    pub(super) fn into_windows(self) -> Vec<Window> {
        self.rate_limit.0.into_iter().chain(self.limit_headers.0).map(|seen| seen.window).collect()
    }
}

/// Which signals an answer carries.
#[derive(Debug, Clone, Copy, Default)]
struct Present {
    retry_after: bool,
    rate_limit: bool,
    limit_headers: bool,
}

impl Present {
    fn scan(contract: &Contract, headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys().map(HeaderName::as_str) {
            present.limit_headers = present.limit_headers || x_rate_limit::is_explained(name, &contract.limit_headers);
            match name.as_bytes() {
                [b'r', b'e', ..] | [b'x', b'-', b'm' | b'a', ..] => {
                    present.retry_after |= name == "retry-after" || retry_after::IN_MS.contains(&name);
                }
                [b'r', b'a', ..] => present.rate_limit |= name.starts_with("ratelimit"),
                [b'x', b'-', b'r', ..] => present.limit_headers |= x_rate_limit::is_generic(name),
                _ => {}
            }
        }
        present
    }

    const fn any(self) -> bool {
        self.retry_after || self.rate_limit || self.limit_headers
    }
}
