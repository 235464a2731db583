//! What follows an attempt: a pure function of what the attempt showed and of what the class allows. It does not look
//! at budgets of time and task; [`super::send`] asks those when it plans the wait.
//!
//! It promises: a write whose effect is unknown is never sent again without a key that the provider honours or a route
//! that is declared repeatable.

use crate::classify::Kind;
use crate::effect::{Effect, Evidence};
use crate::event::Outcome;
use crate::input::HeadSeen;
use crate::policy::{ClassRule, Rank};

/// RFC 8470 section 5.2: sent instead of processing, because the request may be a replay.
pub(crate) const TOO_EARLY: u16 = 425;

#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub rank: Rank,
    pub rule: &'a ClassRule,
    pub evidence: Evidence,
    pub answer: Option<&'a HeadSeen>,
    /// What all attempts leave open, this one included.
    pub effect: Effect,
    /// Attempts that left, this one included if it did, and what layers below made of them.
    pub sends: u32,
    pub unsent: u32,
    pub unknown_resends: u32,
    pub key_honoured: bool,
    pub repeatable: bool,
    /// It takes something away, and what is not there is what it wants.
    pub deletes: bool,
    /// An earlier action under the same key was or may have been done.
    pub repeats_key: bool,
    /// It came in early data to somebody before Forbear, who must be told of a 425.
    pub early_data: bool,
    /// Answers of 425, this one included if it is one.
    pub too_early: u32,
    /// The body can be sent again.
    pub replayable: bool,
    /// Nobody waits any more: no further attempt.
    pub follow_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The provider's answer goes to the agent.
    Relay(Outcome),
    /// Another attempt, if its wait fits the budgets.
    Retry(&'static str),
    /// The effect is unknown and must not be risked twice.
    Unknown(&'static str),
    /// No further attempt is allowed.
    Stop(&'static str),
}

#[must_use]
pub fn verdict(s: Situation<'_>) -> Verdict {
    match s.answer {
        Some(answer) => answered(s, answer),
        None => unanswered(s),
    }
}

fn answered(s: Situation<'_>, answer: &HeadSeen) -> Verdict {
    let c = &answer.classification;
    if c.kind == Kind::Success {
        // A redirect that asks for the same again elsewhere says nothing of an attempt before.
        let open = s.rank.writes() && s.effect == Effect::Unknown;
        return if open {
            Verdict::Unknown("it is to be made elsewhere, and an earlier attempt may have been done")
        } else {
            Verdict::Relay(Outcome::Succeeded)
        };
    }
    let listed = s.rule.retry_statuses.contains(&answer.status)
        || (c.kind == Kind::Throttled && s.rule.retry_statuses.contains(&429))
        // An overload inside a success is what it would be outside.
        || (c.kind == Kind::Unavailable && answer.status < 400 && s.rule.retry_statuses.contains(&503))
        || (c.kind == Kind::InProgress && s.key_honoured);
    let wanted = match (c.kind, c.should_retry) {
        // The provider's own word, and what no repeat can mend.
        (_, Some(false)) | (Kind::Exhausted | Kind::Disguised, _) => false,
        // Advice does not make a write safe that nothing else allows to repeat.
        (_, Some(true)) => listed || s.key_honoured || !s.rank.writes(),
        (Kind::Rejected | Kind::Conflict, None) => false,
        _ => listed,
    };
    let open = s.rank.writes() && s.effect == Effect::Unknown;
    if is_gone(s, answer) {
        return Verdict::Relay(Outcome::Succeeded);
    }
    if answer.status == TOO_EARLY && !open && c.kind == Kind::Transient {
        if !s.early_data && s.too_early == 1 && s.replayable && !s.follow_only && c.should_retry != Some(false) {
            return Verdict::Retry("too early, and so not processed: sent once more");
        }
        if s.early_data || !wanted {
            return Verdict::Relay(Outcome::Rejected);
        }
    }
    if open && !may_repeat_unknown(s) {
        return Verdict::Unknown("the answer leaves open whether it was done");
    }
    if wanted && s.rank == Rank::Inference && may_have_run(answer.status) {
        if s.unknown_resends >= s.rule.unknown_resends {
            return Verdict::Stop("it may have run, and a resend may cost twice");
        }
        return exhausted(s).map_or(Verdict::Retry("it may have run: this resend may cost twice"), Verdict::Stop);
    }
    if wanted {
        if let Some(why) = exhausted(s) {
            return if open { Verdict::Unknown(why) } else { Verdict::Stop(why) };
        }
        return Verdict::Retry(if open { "same key: the provider honours it" } else { "status allows a retry" });
    }
    if open && !settles(s, answer) {
        return Verdict::Unknown("the answer leaves open whether it was done");
    }
    Verdict::Relay(Outcome::Rejected)
}

fn unanswered(s: Situation<'_>) -> Verdict {
    let open = s.rank.writes() && s.effect == Effect::Unknown;
    if matches!(s.evidence, Evidence::NotSent | Evidence::Refused) {
        if open && !may_repeat_unknown(s) {
            return Verdict::Unknown("an earlier attempt may have been done");
        }
        if s.follow_only || !s.replayable || s.unsent >= s.rule.unsent_resends {
            let why = "the provider could not be reached";
            return if open { Verdict::Unknown(why) } else { Verdict::Stop(why) };
        }
        return Verdict::Retry("proven not processed");
    }
    if s.rank.writes() {
        if !may_repeat_unknown(s) {
            return Verdict::Unknown("the request left and no answer came");
        }
        return match exhausted(s) {
            Some(why) => Verdict::Unknown(why),
            None => Verdict::Retry("same key: the provider honours it"),
        };
    }
    // A second inference costs again, though it harms nothing: so many, and said.
    if s.rank == Rank::Inference && s.unknown_resends >= s.rule.unknown_resends {
        return Verdict::Stop("no answer came, and a resend may cost twice");
    }
    match exhausted(s) {
        Some(why) => Verdict::Stop(why),
        None if s.rank == Rank::Inference => Verdict::Retry("no answer came: this resend may cost twice"),
        None => Verdict::Retry("no answer came to a call without lasting effect"),
    }
}

/// RFC 9110 sections 15.6.3 and 15.6.5: whoever stands before the server got no answer from it, which says nothing of what
/// the server did.
pub(crate) const fn may_have_run(status: u16) -> bool {
    matches!(status, 502 | 504)
}

/// A DELETE that may have been done before finds nothing: what it wants is so, whoever did it. 404 and 410 of RFC 9110, as
/// the provider's whole word.
#[must_use]
pub fn is_gone(s: Situation<'_>, answer: &HeadSeen) -> bool {
    let may_have_been = s.effect == Effect::Unknown || s.repeats_key;
    let nothing = matches!(answer.status, 404 | 410) && answer.classification.kind == Kind::Rejected;
    s.deletes && s.rank.writes() && may_have_been && nothing && s.evidence == Evidence::Answered
}

/// A refusal of a resend with an honoured key is the provider's word on the action itself, unless it was given by
/// whoever stands before the key is looked at: authentication, access and routing say nothing of the first send. Nor does a
/// conflict: it may be the first send, still at work (draft-ietf-httpapi-idempotency-key-header-07); nor a refusal whose body,
/// which may have said so, was cut.
#[must_use]
pub fn settles(s: Situation<'_>, answer: &HeadSeen) -> bool {
    let before_the_key = matches!(answer.status, 401 | 403 | 404 | 405 | 407 | 429);
    let is_whole = s.evidence == Evidence::Answered;
    answer.classification.kind == Kind::Rejected && s.key_honoured && is_whole && !before_the_key
}

const fn may_repeat_unknown(s: Situation<'_>) -> bool {
    matches!(s.rank, Rank::IdempotentWrite) && (s.key_honoured || s.repeatable)
}

const fn exhausted(s: Situation<'_>) -> Option<&'static str> {
    if s.follow_only {
        Some("nobody waits for it any more")
    } else if s.sends >= s.rule.max_attempts {
        Some("all attempts of its class are used")
    } else if !s.replayable {
        Some("its body was over the replay cap and could be sent only once")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
