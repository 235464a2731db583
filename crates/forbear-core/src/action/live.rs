//! What the process knows of an action while an agent waits for it, or while its write is followed to the end.

use crate::classify::Classification;
use crate::effect::Effect;
use crate::ids::{AttemptNo, Seq};
use crate::input::Request;
use crate::register::{Place, WaitReason};
use crate::time::Mono;

#[derive(Debug)]
pub struct Live {
    pub request: Box<Request>,
    pub came: Mono,
    pub deadline: Mono,
    pub stage: Stage,
    /// Attempts made, sent or not: the number of the last.
    pub tried: u32,
    /// Attempts that left. These are what `max_attempts` bounds.
    pub sends: u32,
    /// Resends spent on attempts proven unsent or unprocessed.
    pub unsent: u32,
    /// Resends spent on attempts whose fate nobody knows.
    pub unknown_resends: u32,
    pub first_refusal: Option<Mono>,
    /// `action_requested` is in the journal.
    pub recorded: bool,
    /// The action's last event.
    pub last_seq: Option<Seq>,
    /// What the attempts so far leave open together.
    pub effect: Effect,
    pub last: Option<LastAnswer>,
    /// What the provider said to this call alone, where it did not close the scope: not before this instant.
    pub told_until: Option<Mono>,
    /// A retry was charged and has not left.
    pub charged_wait_ms: Option<u64>,
    pub waited_ms: u64,
    pub agent_here: bool,
    /// Set while a write goes on though its agent or task is gone.
    pub follow_only: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// In the scope's line.
    Waiting { place: Place, since: Mono, expires: Mono, reason: WaitReason },
    /// On the wire, or about to be.
    InFlight(AttemptNo),
    /// The head was given to the agent, its body runs.
    Relaying(AttemptNo),
}

/// The provider's last word.
#[derive(Debug, Clone)]
pub struct LastAnswer {
    pub status: u16,
    pub classification: Classification,
}

impl Live {
    pub fn new(request: Box<Request>, came: Mono, deadline: Mono, stage: Stage) -> Self {
        Self {
            request,
            came,
            deadline,
            stage,
            tried: 0,
            sends: 0,
            unsent: 0,
            unknown_resends: 0,
            first_refusal: None,
            recorded: false,
            last_seq: None,
            effect: Effect::NotApplied,
            last: None,
            told_until: None,
            charged_wait_ms: None,
            waited_ms: 0,
            agent_here: true,
            follow_only: None,
        }
    }

    /// The attempt that holds a slot.
    #[must_use]
    pub const fn attempt(&self) -> Option<AttemptNo> {
        match self.stage {
            Stage::InFlight(n) | Stage::Relaying(n) => Some(n),
            Stage::Waiting { .. } => None,
        }
    }

    /// The provider honours this action's key, so that a resend cannot act twice.
    #[must_use]
    pub fn key_honoured(&self, now: Mono) -> bool {
        let retention = self.request.key.as_ref().and_then(|k| k.retention_seconds);
        // A tenth of the retention is kept as margin: the provider's clock started before ours.
        retention.is_some_and(|s| now.ms_since(self.came) < s.saturating_mul(900))
    }
}
