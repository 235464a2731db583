//! What a schedule came to see. A simulator that never meets a fault proves nothing about it, so how many schedules met
//! each is counted and shown, and a test holds it to a least number.

use std::collections::BTreeMap;

use forbear_core::event::Outcome;

macro_rules! kinds {
    ($($name:ident $text:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Seen {
            $($name,)*
        }

        /// In words, by their number.
        const TEXTS: &[&str] = &[$($text,)*];
    };
}

kinds! {
    Crash "crash",
    CrashAfterEffect "crash between an effect and its result",
    EventsLost "events lost in a crash",
    AppendFailed "append failed",
    AcknowledgementLost "append done, its acknowledgement lost",
    Thaw "journal written again",
    StoreFull "store full",
    LateAcknowledgement "late acknowledgement",
    SlowFlush "flush over a second",
    LateCommand "command run a second late",
    LateTimer "timer a second late",
    ResultTwice "result told twice",
    ResultOfEarlier "result of an earlier attempt",
    ResultAfterCancel "result after a cancel",
    EndTwice "end of a body told twice",
    Untaken "answer read that its agent does not take yet",
    WallBack "wall clock set back",
    WallForward "wall clock set forward",
    Suspend "suspend",
    IdleDay "a day without anything",
    Reload "policy loaded",
    FewerSlots "limit loaded below what is in flight",
    SmallerBudget "budget loaded below what is spent",
    Takeover "second process over one journal",
    FencedSend "first byte of the fenced process",
    FencedWrite "write of the fenced process",
    FencedAppend "append of the fenced process refused",
    FencedAsked "call to the fenced process",
    AgentLeft "agent left",
    AskedWhileOpen "same call while the first is open",
    AskedOnceMore "same call after the first ended, unprompted",
    AskedAfterLeaving "same call after leaving",
    AskedAfterAnswer "same call after an answer of ours",
    AskedAfterLosing "same call after a lost connection",
    AskedByAnotherTask "work of a cancelled task asked by another",
    OtherContent "same name with other content",
    Joined "call joined to an equal one",
    Shared "answer given to an equal call too",
    Cancel "task cancelled",
    CancelOne "one action cancelled",
    CancelRun "run cancelled",
    Reopen "a cancel taken back",
    Drain "drain",
    DrainOver "end of a drain",
    DrainCut "call given up at the end of a drain",
    Throttled "throttled with an instant",
    ThrottledSilently "throttled without an instant",
    ClosedBySuccess "scope closed by a success",
    NarrowClosed "scope below its home closed",
    HomeClosed "home closed over what is below",
    SentBelow "sent more than once by a layer below",
    Dropped "connection dropped",
    Silent "provider silent",
    Refused "refused unprocessed",
    RefusalAhead "refusal whose body is slow",
    Unsent "nothing left",
    HeldBack "held back at the first byte",
    EffectUnanswered "effect without its answer",
    LateEffect "effect after its call was given up",
    KeyAnswered "key answered from memory",
    KeyInProgress "key in progress",
    KeyForgotten "key used after its retention",
    BodyPending "body held back",
    BodyCut "body cut",
    Resend "a second attempt",
    Straight "succeeded",
    Unknown "effect left unknown",
    Denied "repeat refused",
    Deferred "deferred",
    Shed "shed",
    Deadline "deadline exhausted",
    Budget "budget exhausted",
    NotApplied "not applied",
    Cancelled "cancelled",
    CircuitOpen "refused by an open circuit",
}

/// A set of [`Seen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Coverage(u128);

const _: () = assert!(TEXTS.len() <= 128, "one bit each");

impl Coverage {
    pub(super) const fn add(&mut self, seen: Seen) {
        self.0 |= 1 << seen as u32;
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[cfg(test)]
    pub(super) const fn has(self, seen: Seen) -> bool {
        self.0 & (1 << seen as u32) != 0
    }

    /// Counts this schedule into the sums of many.
    pub(super) fn count_into(self, sums: &mut BTreeMap<&'static str, u64>) {
        for (n, text) in TEXTS.iter().enumerate() {
            *sums.entry(text).or_default() += u64::from(self.0 >> n & 1 == 1);
        }
    }
}

pub(super) const fn of_outcome(outcome: Outcome) -> Option<Seen> {
    Some(match outcome {
        Outcome::Succeeded => Seen::Straight,
        Outcome::OutcomeUnknown => Seen::Unknown,
        Outcome::Denied => Seen::Denied,
        Outcome::Deferred => Seen::Deferred,
        Outcome::Shed => Seen::Shed,
        Outcome::DeadlineExhausted => Seen::Deadline,
        Outcome::BudgetExhausted => Seen::Budget,
        Outcome::NotApplied => Seen::NotApplied,
        Outcome::Cancelled => Seen::Cancelled,
        Outcome::CircuitOpen => Seen::CircuitOpen,
        Outcome::Rejected | Outcome::StreamIncomplete => return None,
    })
}
