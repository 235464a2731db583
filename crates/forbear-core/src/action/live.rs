//! What the process knows of an action while an agent waits for it, or while its write is followed to the end.

use crate::action::verdict::TOO_EARLY;
use crate::classify::Classification;
use crate::effect::Effect;
use crate::event::Refused;
use crate::ids::{ActionId, AttemptNo, Seq};
use crate::input::{BodyEnd, Request};
use crate::line::{Place, Waiter};
use crate::register::WaitReason;
use crate::time::{Mono, Wall};

#[derive(Debug)]
pub struct Live {
    pub request: Box<Request>,
    pub came: Mono,
    pub deadline: Mono,
    /// Its place among those who are due at the same instant: in the order in which they came.
    pub order: u64,
    pub stage: Stage,
    /// Attempts made, sent or not: the number of the last.
    pub tried: u32,
    /// Attempts that left. These are what `max_attempts` bounds.
    pub sends: u32,
    /// Sends of its attempts that a layer below made beyond each one.
    pub sends_below: u32,
    /// Answers of 425.
    pub too_early: u32,
    /// A repeated DELETE found nothing: that is its success.
    pub is_gone: bool,
    /// Resends spent on attempts proven unsent or unprocessed.
    pub unsent: u32,
    /// Resends spent on attempts whose fate nobody knows.
    pub unknown_resends: u32,
    /// What could change whether it repeats another had happened so often when that was asked last.
    pub asked_at: u64,
    /// The same key was used by an action that was or may have been done, so long before this one came.
    pub repeats_key: bool,
    pub key_age_ms: u64,
    pub first_refusal: Option<Mono>,
    /// Why it did not leave at once, and until when.
    pub waited_for: Option<(WaitReason, Option<Wall>)>,
    /// `action_requested` is in the journal.
    pub recorded: bool,
    /// The action's last event.
    pub last_seq: Option<Seq>,
    /// What the attempts so far leave open together.
    pub effect: Effect,
    pub last: Option<LastAnswer>,
    /// When its answer's head was given to its agent.
    pub answered_at: Option<Mono>,
    /// How its answer ended, where all of it was read and its agent takes it yet.
    pub read: Option<BodyEnd>,
    /// What the provider said to this call alone, where it did not close the scope: not before this instant.
    pub told_until: Option<Mono>,
    /// A retry was charged and has not left: for which attempt, and for how many milliseconds of waiting.
    pub charged: Option<(AttemptNo, u64)>,
    pub waited_ms: u64,
    pub agent_here: bool,
    /// Why it is not sent, where another action is the reason.
    pub refused: Option<Refused>,
    /// Calls that repeat it and wait for its result.
    pub joined: Vec<ActionId>,
    /// It is only watched, and would not have been sent: what follows its answer would not have come about.
    pub would_not_leave: bool,
    /// Set while a write goes on though its agent or task is gone.
    pub follow_only: Option<&'static str>,
    /// A layer above tries again what failed: its first send is charged as a retry.
    pub retries_from_above: bool,
    /// Until when its client is expected back, which hung up and marks its repeats.
    pub comes_back_by: Option<Mono>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// In the scope's line.
    Waiting { place: Place, since: Mono, expires: Mono, reason: WaitReason },
    /// On the wire, or about to be.
    InFlight(AttemptNo),
    /// The head was given to the agent, its body runs.
    Relaying(AttemptNo),
    /// The provider is done with it, and its slot is free; its agent has not taken all of the answer.
    Telling(AttemptNo),
}

/// The provider's last word.
#[derive(Debug, Clone)]
pub struct LastAnswer {
    pub status: u16,
    pub classification: Classification,
}

impl Live {
    pub fn new(request: Box<Request>, came: Mono, deadline: Mono, stage: Stage) -> Box<Self> {
        Box::new(Self {
            request,
            came,
            deadline,
            order: 0,
            stage,
            tried: 0,
            sends: 0,
            sends_below: 0,
            too_early: 0,
            is_gone: false,
            unsent: 0,
            unknown_resends: 0,
            asked_at: 0,
            repeats_key: false,
            key_age_ms: 0,
            first_refusal: None,
            waited_for: None,
            recorded: false,
            last_seq: None,
            effect: Effect::NotApplied,
            last: None,
            answered_at: None,
            read: None,
            told_until: None,
            charged: None,
            waited_ms: 0,
            agent_here: true,
            refused: None,
            joined: Vec::new(),
            would_not_leave: false,
            follow_only: None,
            retries_from_above: false,
            comes_back_by: None,
        })
    }

    /// What its turn depends on.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        let r = &self.request;
        Waiter {
            lane: r.quota.lane.clone(),
            priority: r.quota.priority,
            tenant: r.owner(),
            task: r.task.clone(),
            order: self.order,
            action: r.action,
            is_new: self.tried == 0,
        }
    }

    /// Somebody waits for its result: its own agent, or one that repeats it.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.agent_here || !self.joined.is_empty()
    }

    /// The attempt that holds a slot.
    #[must_use]
    pub const fn attempt(&self) -> Option<AttemptNo> {
        match self.stage {
            Stage::InFlight(n) | Stage::Relaying(n) => Some(n),
            Stage::Waiting { .. } | Stage::Telling(_) => None,
        }
    }

    /// It left or was answered. What never left was refused by nobody: it still waits for its first send; so does what
    /// came too early.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.sends > self.too_early || self.last.as_ref().is_some_and(|l| l.status != TOO_EARLY)
    }

    /// The provider honours this action's key, so that a resend cannot act twice.
    #[must_use]
    pub fn key_honoured(&self, now: Mono) -> bool {
        self.honoured_until().is_some_and(|until| now < until)
    }

    fn honoured_until(&self) -> Option<Mono> {
        let retention = self.request.key.as_ref()?.retention_seconds?;
        Some(self.came.plus_ms(honoured_ms(retention).saturating_sub(self.key_age_ms)))
    }

    /// The last instant at which a send is still safe and wanted: `by_budget`, the deadline, and, where only the key
    /// keeps it from acting twice, the end of the key.
    #[must_use]
    pub fn last_instant(&self, by_budget: Mono) -> Mono {
        let end = by_budget.min(self.deadline);
        self.key_end().map_or(end, |until| end.min(until))
    }

    /// Until when a send cannot act twice, where only the key says so.
    #[must_use]
    pub fn key_end(&self) -> Option<Mono> {
        let open = self.repeats_key || self.effect == Effect::Unknown;
        if !open || !self.request.rank.writes() || self.request.repeatable {
            return None;
        }
        Some(self.honoured_until().unwrap_or(self.came))
    }
}

/// How long a key is counted on: a tenth of its retention is kept as margin, for a provider's clock that started before
/// ours.
#[must_use]
pub const fn honoured_ms(retention_seconds: u64) -> u64 {
    retention_seconds.saturating_mul(900)
}
