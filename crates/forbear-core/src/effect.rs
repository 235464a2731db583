//! What an attempt did to the world: a pure function of evidence, classification, status and contract. The one table.
//!
//! It promises never to call an effect `not_applied` without proof, and refuses to look at an error's text.

use serde::{Deserialize, Serialize};

use crate::classify::Kind;

/// What the transport proves of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// No byte of the request left the socket.
    NotSent,
    /// Proven unprocessed (HTTP/2: REFUSED_STREAM, or a GOAWAY below our stream).
    Refused,
    /// Bytes left, no answer: anything may have happened.
    Unknown,
    /// A complete answer.
    Answered,
    /// A head, and a body that was cut.
    AnsweredPartially,
}

/// What that means for the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Applied,
    NotApplied,
    Unknown,
}

/// What an answer's head said, as far as the effect depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub kind: Kind,
    /// The contract's word that this refusal is decided before any work.
    pub before_work: bool,
    /// A layer below sent it more than once: the answer is that of the last send, and says nothing of those before.
    pub resent_below: bool,
}

/// The table.
///
/// Nothing outlasts a read: callers ask only for classes that write, but the table answers for all.
#[must_use]
pub fn effect(evidence: Evidence, answer: Option<Answer>) -> Effect {
    let answer = match (evidence, answer) {
        (Evidence::NotSent | Evidence::Refused, _) => return Effect::NotApplied,
        (Evidence::Unknown, _) | (_, None) => return Effect::Unknown,
        (Evidence::Answered | Evidence::AnsweredPartially, Some(answer)) => answer,
    };
    match answer.kind {
        // A head is sent before its body is: a cut one leaves open what the rest would have said.
        Kind::Success if evidence == Evidence::AnsweredPartially => Effect::Unknown,
        Kind::Success if !matches!(answer.status, 307 | 308) => Effect::Applied,
        _ if answer.resent_below => Effect::Unknown,
        // RFC 9110 sections 15.4.8 and 15.4.9: the request is to be made elsewhere, unchanged.
        Kind::Success => Effect::NotApplied,
        _ if answer.before_work => Effect::NotApplied,
        // RFC 8470 section 5.2: sent instead of processing.
        Kind::Transient if answer.status == 425 => Effect::NotApplied,
        Kind::Rejected | Kind::Conflict if matches!(answer.status, 400..=499) => Effect::NotApplied,
        _ => Effect::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(evidence: Evidence, status: u16, kind: Kind, before_work: bool) -> Effect {
        effect(evidence, Some(Answer { status, kind, before_work, resent_below: false }))
    }

    #[test]
    fn only_proof_says_not_applied() {
        use Effect::{Applied, NotApplied, Unknown};
        let whole = Evidence::Answered;
        for (evidence, expected) in [
            (Evidence::NotSent, NotApplied),
            (Evidence::Refused, NotApplied),
            (Evidence::Unknown, Unknown),
            (Evidence::AnsweredPartially, Unknown),
        ] {
            assert_eq!(effect(evidence, None), expected, "{evidence:?}");
        }
        for (status, kind, before_work, expected) in [
            (200, Kind::Success, false, Applied),
            (303, Kind::Success, false, Applied),
            (307, Kind::Success, false, NotApplied),
            (308, Kind::Success, false, NotApplied),
            (429, Kind::Throttled, true, NotApplied),
            (429, Kind::Throttled, false, Unknown),
            (403, Kind::Throttled, true, NotApplied),
            (400, Kind::Rejected, false, NotApplied),
            (404, Kind::Rejected, false, NotApplied),
            (409, Kind::Conflict, false, NotApplied),
            (409, Kind::InProgress, false, Unknown),
            (408, Kind::Transient, false, Unknown),
            (425, Kind::Transient, false, NotApplied),
            (500, Kind::Transient, false, Unknown),
            (502, Kind::Transient, false, Unknown),
            (503, Kind::Unavailable, false, Unknown),
            (503, Kind::Unavailable, true, NotApplied),
            (504, Kind::Transient, false, Unknown),
            (529, Kind::Unavailable, false, Unknown),
            (501, Kind::Rejected, false, Unknown),
            (200, Kind::Disguised, false, Unknown),
        ] {
            assert_eq!(of(whole, status, kind, before_work), expected, "{status} {kind:?} {before_work}");
        }
        assert_eq!(of(Evidence::AnsweredPartially, 200, Kind::Success, false), Unknown);
    }

    #[test]
    fn a_refusal_of_the_last_of_several_sends_proves_nothing_of_the_others() {
        for (status, kind, before_work) in [
            (429, Kind::Throttled, true),
            (400, Kind::Rejected, false),
            (409, Kind::Conflict, false),
            (425, Kind::Transient, false),
            (307, Kind::Success, false),
            (503, Kind::Unavailable, true),
        ] {
            let answer = Answer { status, kind, before_work, resent_below: true };
            assert_eq!(effect(Evidence::Answered, Some(answer)), Effect::Unknown, "{status}");
            assert_eq!(effect(Evidence::Refused, Some(answer)), Effect::NotApplied, "{status}");
        }
        let done = Answer { status: 201, kind: Kind::Success, before_work: false, resent_below: true };
        assert_eq!(effect(Evidence::Answered, Some(done)), Effect::Applied);
    }
}
