//! The model provider: it counts effects, closes windows and honours keys for as long as it said, and its moods are
//! those of real ones: silence, dropped connections, errors before and after the effect, late commits.

use std::collections::BTreeMap;

use forbear_core::classify::{Below, Boundary, BoundarySource, Classification, Closes, Kind, RETRIES_BELOW_MAX};
use forbear_core::effect::Evidence;
use forbear_core::ids::Digest;
use forbear_core::input::HeadSeen;
use forbear_core::time::{Mono, Now, Wall};

use super::chance::Rng;
use super::coverage::{Coverage, Seen};
use super::intents::DEPTH_MAX;
use super::plan::Storm;

/// What a call meets, in the order of [`Storm::weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Throttle,
    ThrottleSilent,
    DropBefore,
    DropAfter,
    ErrorBefore,
    ErrorAfter,
    Overloaded,
    OverloadedBeforeWork,
    Rejected,
    Unauthorised,
    Conflict,
    Silent,
    SilentAfter,
    Refused,
    Late,
}

const FATES: [Fate; 16] = [
    Fate::Done,
    Fate::Throttle,
    Fate::ThrottleSilent,
    Fate::DropBefore,
    Fate::DropAfter,
    Fate::ErrorBefore,
    Fate::ErrorAfter,
    Fate::Overloaded,
    Fate::OverloadedBeforeWork,
    Fate::Rejected,
    Fate::Unauthorised,
    Fate::Conflict,
    Fate::Silent,
    Fate::SilentAfter,
    Fate::Refused,
    Fate::Late,
];

/// What comes back of one arrival.
pub(super) struct Reply {
    pub(super) evidence: Evidence,
    pub(super) answer: Option<HeadSeen>,
    /// Nothing ever comes back: the driver gives up by itself.
    pub(super) silent: bool,
    /// The effect happens so much later, if it happens.
    pub(super) effect_in_ms: Option<u64>,
    pub(super) after_ms: u64,
}

#[derive(Default)]
pub(super) struct Provider {
    closed_until: BTreeMap<usize, Mono>,
    keys: BTreeMap<u128, KeyRecord>,
    pub(super) saw: Coverage,
}

struct KeyRecord {
    since: Mono,
    content: Option<Digest>,
    done: bool,
}

/// Who arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Whose quota it uses, broad to narrow.
    pub(super) scopes: [Option<usize>; DEPTH_MAX],
    pub(super) key: Option<u128>,
    /// How long the key is honoured; none where it is not.
    pub(super) retention_ms: Option<u64>,
    pub(super) content: Option<Digest>,
}

impl Provider {
    pub(super) fn arrive(&mut self, rng: &mut Rng, now: Now, storm: &Storm, who: Arrival) -> Reply {
        let after_ms = if rng.permille(storm.slow_permille) { rng.range(1_000, 40_000) } else { rng.range(1, 80) };
        let mut reply = self.answer(rng, now, storm, who);
        reply.after_ms = after_ms;
        if reply.silent {
            self.saw.add(Seen::Silent);
        }
        reply
    }

    /// Some answers say that a layer in front of the provider sent the call more than once; nothing came of the others.
    pub(super) fn reveal(&mut self, rng: &mut Rng, reply: &mut Reply) {
        if rng.permille(20)
            && let Some(answer) = &mut reply.answer
        {
            self.saw.add(Seen::SentBelow);
            let retries = rng.pick(&[1, 2, RETRIES_BELOW_MAX]);
            answer.classification.below = Some(Below { retries, claimed: retries.into(), said: "model".into() });
        }
    }

    fn answer(&mut self, rng: &mut Rng, now: Now, storm: &Storm, who: Arrival) -> Reply {
        // The broadest says it first.
        let closed = |scope: &usize| self.closed_until.get(scope).copied().filter(|until| *until > now.mono);
        if let Some((at, until)) = who.scopes.iter().flatten().enumerate().find_map(|(i, s)| Some((i, closed(s)?))) {
            let wait_ms = until.ms_since(now.mono);
            return closing(
                refusal(Some(wait_ms.div_ceil(1_000) * 1_000)),
                if at == 0 { Closes::Home } else { Closes::Narrowest },
            );
        }
        let fate = FATES[rng.weighted(&storm.weights)];
        match fate {
            Fate::Throttle | Fate::ThrottleSilent => {
                let wait_ms = rng.range(0, storm.retry_after_s_max) * 1_000;
                let home = who.scopes[1].is_some() && rng.permille(300);
                let closes = if home { Closes::Home } else { Closes::Narrowest };
                if fate == Fate::ThrottleSilent {
                    self.saw.add(Seen::ThrottledSilently);
                    return closing(refusal(None), closes);
                }
                self.saw.add(Seen::Throttled);
                self.close(who, closes, now.mono.plus_ms(wait_ms));
                closing(refusal(Some(wait_ms)), closes)
            }
            Fate::DropBefore => {
                self.saw.add(Seen::Dropped);
                lost(None)
            }
            Fate::Refused => {
                self.saw.add(Seen::Refused);
                Reply { evidence: Evidence::Refused, ..lost(None) }
            }
            Fate::Silent => Reply { silent: true, ..lost(None) },
            Fate::Overloaded => head(503, Kind::Unavailable, false, None),
            Fate::OverloadedBeforeWork => head(503, Kind::Unavailable, true, Some(rng.range(0, 5) * 1_000)),
            Fate::Rejected if self.known(now, who).is_none() => head(400, Kind::Rejected, false, None),
            // Looked at before the key is.
            Fate::Unauthorised => head(401, Kind::Rejected, false, None),
            Fate::ErrorBefore => head(rng.pick(&[500, 502, 408]), Kind::Transient, false, None),
            Fate::Conflict if self.known(now, who).is_none() => head(409, Kind::Conflict, false, None),
            _ => self.worked(rng, now, who, fate),
        }
    }

    fn worked(&mut self, rng: &mut Rng, now: Now, who: Arrival, fate: Fate) -> Reply {
        let effect_in_ms = match self.known(now, who) {
            Some(_) if self.means_something_else(who) => return head(400, Kind::Rejected, false, None),
            Some(true) => {
                self.saw.add(Seen::KeyAnswered);
                None
            }
            Some(false) => {
                self.saw.add(Seen::KeyInProgress);
                return head(409, Kind::InProgress, false, None);
            }
            None if fate == Fate::Late => Some(rng.range(1, 20_000)),
            None => Some(0),
        };
        if effect_in_ms.is_some()
            && let Some(key) = who.key.filter(|_| who.retention_ms.is_some())
        {
            let record = KeyRecord { since: now.mono, content: who.content, done: effect_in_ms == Some(0) };
            if self.keys.insert(key, record).is_some() {
                self.saw.add(Seen::KeyForgotten);
            }
        }
        if effect_in_ms.is_some() && matches!(fate, Fate::DropAfter | Fate::SilentAfter | Fate::ErrorAfter) {
            self.saw.add(Seen::EffectUnanswered);
        }
        let reply = match fate {
            Fate::DropAfter | Fate::Late => lost(None),
            Fate::SilentAfter => Reply { silent: true, ..lost(None) },
            Fate::ErrorAfter => head(rng.pick(&[500, 504]), Kind::Transient, false, None),
            _ => {
                let mut reply = head(200, Kind::Success, false, None);
                if rng.permille(50)
                    && let Some(answer) = &mut reply.answer
                {
                    // The last one of its window: the scope closes with a success.
                    self.saw.add(Seen::ClosedBySuccess);
                    let wait_ms = rng.range(1, 20) * 1_000;
                    self.close(who, Closes::Narrowest, now.mono.plus_ms(wait_ms));
                    answer.classification.boundary = Some(boundary(wait_ms, BoundarySource::RateLimit));
                }
                reply
            }
        };
        Reply { effect_in_ms, ..reply }
    }

    fn close(&mut self, who: Arrival, closes: Closes, until: Mono) {
        let narrowest = who.scopes.iter().flatten().next_back();
        let scope = if closes == Closes::Home { who.scopes[0].as_ref() } else { narrowest };
        if who.scopes[1].is_some() {
            self.saw.add(if closes == Closes::Home { Seen::HomeClosed } else { Seen::NarrowClosed });
        }
        if let Some(scope) = scope {
            self.closed_until.insert(*scope, until);
        }
    }

    /// Whether the key was seen within its retention, and whether what it asked for is done.
    fn known(&self, now: Now, who: Arrival) -> Option<bool> {
        let retention = who.retention_ms?;
        let record = self.keys.get(&who.key?)?;
        (now.mono.ms_since(record.since) < retention).then_some(record.done)
    }

    fn means_something_else(&self, who: Arrival) -> bool {
        let record = who.key.and_then(|k| self.keys.get(&k));
        record.is_some_and(|r| r.content.is_some() && who.content.is_some() && r.content != who.content)
    }

    pub(super) fn commit(&mut self, key: Option<u128>) {
        if let Some(record) = key.and_then(|k| self.keys.get_mut(&k)) {
            record.done = true;
        }
    }
}

fn lost(effect_in_ms: Option<u64>) -> Reply {
    Reply { evidence: Evidence::Unknown, answer: None, silent: false, effect_in_ms, after_ms: 0 }
}

fn refusal(wait_ms: Option<u64>) -> Reply {
    head(429, Kind::Throttled, true, wait_ms)
}

fn closing(mut reply: Reply, closes: Closes) -> Reply {
    if let Some(answer) = &mut reply.answer {
        answer.classification.closes = closes;
    }
    reply
}

fn head(status: u16, kind: Kind, before_work: bool, wait_ms: Option<u64>) -> Reply {
    let classification = Classification {
        kind,
        rule: "model".into(),
        before_work,
        closes: Closes::Narrowest,
        boundary: wait_ms.map(|ms| boundary(ms, BoundarySource::RetryAfter)),
        windows: Vec::new(),
        should_retry: None,
        malformed: Vec::new(),
        contradictions: Vec::new(),
        below: None,
        code: None,
    };
    let answer = Some(HeadSeen { status, classification });
    Reply { evidence: Evidence::Answered, answer, silent: false, effect_in_ms: None, after_ms: 0 }
}

/// `until` is filled in when the head is read.
fn boundary(wait_ms: u64, source: BoundarySource) -> Boundary {
    Boundary { wait_ms, until: Wall(0), source, reading: String::new(), raw: String::new() }
}
