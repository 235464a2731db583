//! Which of an answer's signals decides when the provider wants the next call: `Retry-After`, then the RateLimit fields,
//! then other limit headers, then the body. Of several windows those that are spent decide, the latest of them.
//!
//! A reset of a window with quota left is not the one that refused (FB-020): it gives no boundary, and on a 429 the
//! contradiction is named.

use super::raw;
use super::retry_after::Asked;
use super::seen::{SeenWindow, SeenWindows};
use super::{Boundary, BoundarySource, Kind};
use crate::time::Now;

/// All of an answer that can set a boundary.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    pub(super) status: u16,
    pub(super) kind: Kind,
    pub(super) asked: Option<Asked>,
    pub(super) rate_limit: &'a SeenWindows,
    pub(super) limit_headers: &'a SeenWindows,
    pub(super) body: Option<Asked>,
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
            (None, body) => body?,
        };
        Some(Boundary {
            wait_ms: chosen.wait_ms,
            until: received.wall.plus_ms(chosen.wait_ms),
            source: chosen.source,
            reading: chosen.reading,
            raw: chosen.raw,
        })
    }

    fn latest(&self, seen: &SeenWindows, source: BoundarySource) -> Option<Asked> {
        let latest_of = |decides: &dyn Fn(&SeenWindow) -> bool| {
            let windows = seen.0.iter().filter(|one| decides(one));
            windows.filter_map(|one| Some((one.window.reset_ms?, one))).max_by_key(|(reset_ms, _)| *reset_ms)
        };
        let limited = matches!(self.kind, Kind::Throttled | Kind::Exhausted);
        let chosen = latest_of(&|one| self.refused(one));
        let chosen = chosen.or_else(|| if limited { latest_of(&|one| one.window.remaining.is_none()) } else { None });
        chosen.map(|(wait_ms, one)| Asked {
            wait_ms,
            source,
            reading: format!("reset of {}, {}", raw::shown(one.window.name.as_bytes()), one.reading),
            raw: one.raw.clone(),
        })
    }

    fn refused(&self, one: &SeenWindow) -> bool {
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
