//! Which of an answer's signals decides when the provider wants the next call: `Retry-After`, then the RateLimit fields,
//! then other limit headers, then the body, then what the contract says of this refusal. Of several windows those that are spent decide, the latest of them.
//!
//! A reset of a window with quota left is not the one that refused (FB-020): it gives no boundary, and on a 429 the
//! contradiction is named.

use http::HeaderMap;

use super::raw;
use super::retry_after::Asked;
use super::seen::{SeenWindow, SeenWindows};
use super::server_time::ServerTime;
use super::{Boundary, BoundarySource, Kind};
use crate::time::Now;

/// All of an answer that can set a boundary.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    pub(super) headers: &'a HeaderMap,
    /// There wherever a window or a wait is.
    pub(super) time: Option<&'a ServerTime>,
    pub(super) status: u16,
    pub(super) kind: Kind,
    pub(super) asked: Option<Asked>,
    pub(super) rate_limit: &'a SeenWindows<'a>,
    pub(super) limit_headers: &'a SeenWindows<'a>,
    pub(super) body: Option<Asked>,
    /// The contract's wait after this refusal.
    pub(super) contract_wait_s: Option<u64>,
    /// Names of windows that the body says refused.
    pub(super) violated: &'a [&'a str],
}

impl Candidates<'_> {
    pub(super) fn choose(self, received: Now, contradictions: &mut Vec<String>) -> Option<Boundary> {
        self.note_quota_left(contradictions);
        let windows = self
            .latest(self.rate_limit, BoundarySource::RateLimit)
            .or_else(|| self.latest(self.limit_headers, BoundarySource::LimitHeader));
        // On a success it is about the thing that was asked for (a redirect, a job to poll), not about the scope.
        let asked = if self.kind == Kind::Success { None } else { self.asked };
        let by_header = asked.or(windows);
        let chosen = match (by_header, self.body) {
            // The burst limit's reset says nothing about a spent quota: the later one holds.
            (Some(header), Some(body)) if self.kind == Kind::Exhausted && body.wait_ms > header.wait_ms => body,
            (Some(header), _) => header,
            (None, Some(body)) => body,
            (None, None) => by_contract(self.contract_wait_s?),
        };
        Some(Boundary {
            wait_ms: chosen.wait_ms,
            until: received.wall.plus_ms(chosen.wait_ms),
            source: chosen.source,
            reading: chosen.reading,
            raw: chosen.raw,
        })
    }

    fn latest(&self, seen: &SeenWindows<'_>, source: BoundarySource) -> Option<Asked> {
        let latest_of = |decides: &dyn Fn(&SeenWindow<'_>) -> bool| {
            let windows = seen.0.iter().filter(|one| decides(one));
            windows.filter_map(|one| Some((one.window.reset_ms?, one.reset?, one))).max_by_key(|(ms, ..)| *ms)
        };
        let limited = matches!(self.kind, Kind::Throttled | Kind::Exhausted);
        let chosen = latest_of(&|one| self.refused(one));
        let chosen = chosen.or_else(|| if limited { latest_of(&|one| one.window.remaining.is_none()) } else { None });
        let (wait_ms, reset, one) = chosen?;
        let words = self.time?.words(reset.reading);
        Some(Asked {
            wait_ms,
            source,
            reading: format!("reset of {}, {words}", raw::shown(one.window.name.as_bytes())),
            raw: raw::shown_lines(self.headers, reset.field),
        })
    }

    fn refused(&self, one: &SeenWindow<'_>) -> bool {
        one.window.remaining == Some(0) || self.violated.contains(&one.window.name.as_str())
    }

    fn note_quota_left(&self, contradictions: &mut Vec<String>) {
        if self.status != 429 || self.kind != Kind::Throttled {
            return;
        }
        let told = || self.rate_limit.0.iter().chain(&self.limit_headers.0);
        let explained =
            told().any(|one| self.refused(one) || (one.window.remaining.is_none() && one.window.reset_ms.is_some()));
        let left = told().find_map(|one| Some((one, one.window.remaining?)));
        if let (false, Some((one, remaining))) = (explained, left) {
            let name = raw::shown(one.window.name.as_bytes());
            contradictions.push(format!("429 with quota left: {name} has {remaining}"));
        }
    }
}

fn by_contract(wait_s: u64) -> Asked {
    Asked {
        wait_ms: wait_s.saturating_mul(1_000),
        source: BoundarySource::Contract,
        reading: "wait_seconds of the contract's rule".to_owned(),
        raw: wait_s.to_string(),
    }
}
