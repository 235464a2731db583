//! Closing: what an answer says of its scope holds for everybody who needs it.

use crate::action::live::Stage;
use crate::backoff;
use crate::classify::{BoundarySource, Classification, Closes, Kind};
use crate::command::Commands;
use crate::coordinator::Coordinator;
use crate::event::Fact;
use crate::ids::{ActionId, AttemptNo, ScopeId};
use crate::lane::Lane;
use crate::register::WaitReason;
use crate::time::{Mono, Now, Wall};

/// The longest that one answer closes a scope: a month, the longest window that a limit has. What is longer is a mistake of
/// the provider's, and nothing but a newer word could end it.
const BOUNDARY_MS_MAX: u64 = 31 * 24 * 3_600_000;

impl Coordinator {
    /// Closes a scope for an answer's boundary, or for a refusal without one as long as the refused call backs off.
    pub(crate) fn close_scope(
        &mut self,
        now: Now,
        home: &ScopeId,
        lane: &Lane,
        (action, attempt): (ActionId, AttemptNo),
        c: &Classification,
        out: &mut Commands,
    ) {
        // A spent account is spent for all that it pays for; a limit is the narrowest scope's, unless the contract says else.
        let scope = lane.narrowest().filter(|_| c.closes == Closes::Narrowest).unwrap_or(home);
        let refusal = matches!(c.kind, Kind::Throttled | Kind::Exhausted | Kind::Unavailable);
        let register = |b: &&crate::classify::Boundary| {
            matches!(b.source, BoundarySource::RateLimit | BoundarySource::LimitHeader)
        };
        let boundary = c.boundary.as_ref().filter(|b| refusal || (c.kind == Kind::Success && register(b)));
        let until = match boundary {
            // A success that speaks of a far instant is no refusal, and no limit is that long.
            Some(b) if c.kind == Kind::Success && (b.wait_ms == 0 || b.wait_ms > BOUNDARY_MS_MAX) => return,
            Some(b) => now.mono.plus_ms(b.wait_ms.min(BOUNDARY_MS_MAX).max(self.settings.backoff.floor_ms)),
            // A throttle that names no instant still speaks for everybody who shares the quota.
            None if c.kind == Kind::Throttled => {
                let retry = attempt.0.max(1);
                now.mono.plus_ms(backoff::wait_ms(&self.settings.backoff, self.seed, action, attempt, retry))
            }
            None => return,
        };
        let jitter_ms = self.jitter_ms(action, attempt.0);
        let Some(s) = self.scopes.get_mut(home).and_then(|h| h.scope_of_mut(home, scope)) else { return };
        if s.closed_until(now.mono).is_some_and(|c| c >= until) {
            return;
        }
        s.close(until, if boundary.is_some() { WaitReason::Boundary } else { WaitReason::Backoff }, jitter_ms);
        self.doubts += 1;
        let reason = match boundary {
            Some(b) => format!("{}: {}", c.rule, b.reading),
            None => format!("{}: uncertain_boundary", c.rule),
        };
        let update = crate::event::ScopeUpdated {
            scope: scope.clone(),
            retry_not_before: Some(now.wall_at(until)),
            boundary: boundary.cloned(),
            windows: c.windows.clone(),
            malformed: if boundary.is_none() { c.malformed.clone() } else { Vec::new() },
            reason,
        };
        let seq = self.emit(now, None, Fact::ScopeUpdated(Box::new(update)), crate::coordinator::Write::Ahead, out);
        if let Some(s) = self.scopes.get_mut(home).and_then(|h| h.scope_of_mut(home, scope)) {
            s.boundary_seq = seq;
        }
        self.end_hopeless(now, home, scope, until, out);
        self.tell_the_line(home, scope, now.wall_at(until));
        self.note_look(now, home);
    }

    /// Who stands in line before a first send waits for the boundary from now on.
    fn tell_the_line(&mut self, home: &ScopeId, scope: &ScopeId, until: Wall) {
        let Some(h) = self.scopes.get(home) else { return };
        for action in h.waiting_for(home, scope) {
            if let Some(live) = self.live.get_mut(&action).filter(|l| l.first_refusal.is_none()) {
                live.waited_for = Some((WaitReason::Boundary, Some(until)));
            }
        }
    }

    /// Those in line whose waiting ends before the scope opens again are told now, in the order in which they came.
    fn end_hopeless(&mut self, now: Now, home: &ScopeId, scope: &ScopeId, until: Mono, out: &mut Commands) {
        let Some(h) = self.scopes.get(home) else { return };
        let hopeless = h.waiting_for(home, scope).filter_map(|action| {
            let live = self.live.get(&action)?;
            let is_hopeless = matches!(live.stage, Stage::Waiting { expires, .. } if expires <= until);
            is_hopeless.then_some((live.order, action))
        });
        let mut hopeless: Vec<(u64, ActionId)> = hopeless.collect();
        hopeless.sort_unstable();
        for (_, action) in hopeless {
            self.expire(now, action, out);
        }
    }
}
