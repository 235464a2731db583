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
mod tests {
    use super::*;
    use crate::classify::Classification;

    fn rule(max_attempts: u32, statuses: &[u16]) -> ClassRule {
        ClassRule {
            rank: None,
            max_attempts,
            max_wait_seconds: 90,
            retry_statuses: statuses.to_vec(),
            unknown_resends: 1,
            unsent_resends: 2,
            max_queue_seconds: 60,
            deadline_seconds: 900,
        }
    }

    fn head(status: u16, kind: Kind) -> HeadSeen {
        let classification = Classification {
            kind,
            rule: "test".into(),
            closes: crate::classify::Closes::Narrowest,
            before_work: false,
            boundary: None,
            windows: vec![],
            should_retry: None,
            malformed: vec![],
            contradictions: vec![],
            below: None,
            code: None,
        };
        HeadSeen { status, classification }
    }

    fn situation<'a>(rank: Rank, rule: &'a ClassRule) -> Situation<'a> {
        Situation {
            rank,
            rule,
            evidence: Evidence::Answered,
            answer: None,
            effect: Effect::NotApplied,
            sends: 1,
            unsent: 0,
            unknown_resends: 0,
            key_honoured: false,
            repeatable: false,
            deletes: false,
            repeats_key: false,
            early_data: false,
            too_early: 0,
            replayable: true,
            follow_only: false,
        }
    }

    #[test]
    fn an_unknown_write_is_repeated_only_under_an_honoured_key() {
        let all = rule(9, &[408, 429, 500, 502, 503, 504]);
        for status in [408, 500, 502, 503, 504] {
            let answer = head(status, Kind::Transient);
            for (rank, key, repeat) in [
                (Rank::UncertainWrite, false, false),
                (Rank::UncertainWrite, true, false),
                (Rank::IdempotentWrite, false, false),
                (Rank::IdempotentWrite, true, true),
            ] {
                let s = Situation {
                    answer: Some(&answer),
                    effect: Effect::Unknown,
                    key_honoured: key,
                    ..situation(rank, &all)
                };
                let v = verdict(s);
                assert_eq!(matches!(v, Verdict::Retry(_)), repeat, "{status} {rank:?} {key}: {v:?}");
                assert!(repeat || matches!(v, Verdict::Unknown(_)));
            }
        }
    }

    #[test]
    fn advice_to_retry_does_not_override_write_safety() {
        let none = rule(1, &[]);
        let mut answer = head(500, Kind::Transient);
        answer.classification.should_retry = Some(true);
        let s = Situation { answer: Some(&answer), effect: Effect::Unknown, ..situation(Rank::UncertainWrite, &none) };
        assert!(matches!(verdict(s), Verdict::Unknown(_)));
        let mut answer = head(429, Kind::Throttled);
        answer.classification.should_retry = Some(false);
        let four = rule(4, &[429]);
        let s = Situation { answer: Some(&answer), ..situation(Rank::Read, &four) };
        assert_eq!(verdict(s), Verdict::Relay(Outcome::Rejected));
    }

    #[test]
    fn a_refusal_settles_an_unknown_write_only_where_the_key_was_looked_at() {
        let all = rule(9, &[]);
        for (status, settled) in [(400, true), (409, false), (422, true), (401, false), (403, false), (404, false)] {
            let answer = head(status, if status == 409 { Kind::Conflict } else { Kind::Rejected });
            let s = Situation {
                answer: Some(&answer),
                effect: Effect::Unknown,
                sends: 2,
                key_honoured: true,
                ..situation(Rank::IdempotentWrite, &all)
            };
            assert_eq!(verdict(s) == Verdict::Relay(Outcome::Rejected), settled, "{status}");
            assert!(settled || matches!(verdict(s), Verdict::Unknown(_)), "{status}");
            let cut = Situation { evidence: Evidence::AnsweredPartially, ..s };
            assert!(matches!(verdict(cut), Verdict::Unknown(_)), "{status}, cut");
        }
    }

    #[test]
    fn an_overload_in_disguise_is_repeated_as_one_that_is_not() {
        for (statuses, retry) in [(&[503][..], true), (&[429], false)] {
            let rule = rule(4, statuses);
            let answer = head(200, Kind::Unavailable);
            let s = Situation { answer: Some(&answer), effect: Effect::Unknown, ..situation(Rank::Read, &rule) };
            assert_eq!(matches!(verdict(s), Verdict::Retry(_)), retry, "{statuses:?}");
            let write = Situation { rank: Rank::UncertainWrite, ..s };
            assert!(matches!(verdict(write), Verdict::Unknown(_)), "{statuses:?}");
        }
    }

    /// The first send may be why the second finds what it does: a PUT with If-Match gets 412, a POST on a path that it moved 404.
    #[test]
    fn a_repeat_without_a_key_that_meets_its_own_effect_leaves_it_open() {
        let all = rule(9, &[503]);
        for status in [404, 410, 412] {
            let answer = head(status, Kind::Rejected);
            let s = Situation {
                answer: Some(&answer),
                sends: 2,
                repeatable: true,
                ..situation(Rank::IdempotentWrite, &all)
            };
            let after_doubt = Situation { effect: Effect::Unknown, ..s };
            assert!(matches!(verdict(after_doubt), Verdict::Unknown(_)), "{status}");
            assert_eq!(verdict(s), Verdict::Relay(Outcome::Rejected), "{status}");
        }
    }

    #[test]
    fn a_repeated_delete_that_finds_nothing_is_done() {
        use Outcome::{Rejected, Succeeded};
        let all = rule(9, &[503]);
        for (status, kind, deletes, effect, repeats_key, expected) in [
            (404, Kind::Rejected, true, Effect::Unknown, false, Some(Succeeded)),
            (410, Kind::Rejected, true, Effect::Unknown, false, Some(Succeeded)),
            (404, Kind::Rejected, true, Effect::NotApplied, true, Some(Succeeded)),
            // Nothing was in doubt: it was not there to begin with.
            (404, Kind::Rejected, true, Effect::NotApplied, false, Some(Rejected)),
            (404, Kind::Rejected, false, Effect::Unknown, false, None),
            (403, Kind::Rejected, true, Effect::Unknown, false, None),
            (412, Kind::Rejected, true, Effect::Unknown, false, None),
            (404, Kind::Conflict, true, Effect::Unknown, false, None),
        ] {
            let answer = head(status, kind);
            let s = Situation {
                answer: Some(&answer),
                effect,
                sends: 2,
                deletes,
                repeats_key,
                ..situation(Rank::IdempotentWrite, &all)
            };
            let s = Situation { repeatable: true, ..s };
            let next = verdict(s);
            let is_expected =
                expected.map_or(matches!(next, Verdict::Unknown(_)), |outcome| next == Verdict::Relay(outcome));
            assert!(is_expected, "{status} {kind:?} {deletes} {effect:?} {repeats_key}: {next:?}");
            let cut = verdict(Situation { evidence: Evidence::AnsweredPartially, ..s });
            assert_ne!(cut, Verdict::Relay(Succeeded), "{status}, cut");
        }
    }

    #[test]
    fn too_early_is_sent_once_more_and_told_to_whom_early_data_came() {
        let (none, listed) = (rule(1, &[]), rule(4, &[425]));
        for (rank, rule, early_data, too_early, retry) in [
            (Rank::UncertainWrite, &none, false, 1, true),
            (Rank::UncertainWrite, &none, false, 2, false),
            (Rank::UncertainWrite, &none, true, 1, false),
            (Rank::Read, &none, false, 1, true),
            (Rank::Read, &none, true, 1, false),
            (Rank::Inference, &none, false, 2, false),
            // A class that lists it goes on within its attempts, but never with early data.
            (Rank::Read, &listed, false, 2, true),
            (Rank::Read, &listed, true, 1, false),
        ] {
            let answer = head(TOO_EARLY, Kind::Transient);
            let s = Situation { answer: Some(&answer), early_data, too_early, ..situation(rank, rule) };
            let next = verdict(s);
            let is_expected =
                if retry { matches!(next, Verdict::Retry(_)) } else { next == Verdict::Relay(Outcome::Rejected) };
            assert!(is_expected, "{rank:?} {early_data} {too_early}: {next:?}");
            assert!(!matches!(verdict(Situation { follow_only: true, ..s }), Verdict::Retry(_)), "nobody waits");
            assert!(!matches!(verdict(Situation { replayable: false, ..s }), Verdict::Retry(_)), "its body is gone");
        }
        // An attempt before it stays what it was.
        let answer = head(TOO_EARLY, Kind::Transient);
        let s = Situation {
            answer: Some(&answer),
            effect: Effect::Unknown,
            sends: 2,
            too_early: 1,
            ..situation(Rank::UncertainWrite, &none)
        };
        assert!(matches!(verdict(s), Verdict::Unknown(_)));
    }

    #[test]
    fn a_redirect_does_not_settle_an_attempt_before() {
        let all = rule(9, &[]);
        let answer = head(307, Kind::Success);
        for (effect, open) in [(Effect::Unknown, true), (Effect::NotApplied, false)] {
            let rank = Rank::IdempotentWrite;
            let s = Situation { answer: Some(&answer), effect, sends: 2, key_honoured: true, ..situation(rank, &all) };
            assert_eq!(matches!(verdict(s), Verdict::Unknown(_)), open, "{effect:?}");
        }
    }

    #[test]
    fn an_inference_that_a_gateway_gave_up_on_is_resent_once() {
        let four = rule(4, &[500, 502, 504]);
        for (status, used, retry) in [(504, 0, true), (504, 1, false), (502, 1, false), (500, 1, true)] {
            let answer = head(status, Kind::Transient);
            for (rank, retry) in [(Rank::Inference, retry), (Rank::Read, true)] {
                let s = Situation { answer: Some(&answer), unknown_resends: used, ..situation(rank, &four) };
                assert_eq!(matches!(verdict(s), Verdict::Retry(_)), retry, "{rank:?} {status} {used}");
            }
        }
    }

    #[test]
    fn attempts_are_bounded() {
        let three = rule(3, &[503]);
        let answer = head(503, Kind::Unavailable);
        for (sends, retry) in [(1, true), (2, true), (3, false)] {
            let s = Situation { answer: Some(&answer), sends, ..situation(Rank::Read, &three) };
            assert_eq!(matches!(verdict(s), Verdict::Retry(_)), retry, "{sends}");
        }
    }

    #[test]
    fn what_never_left_may_be_sent_again_a_bounded_number_of_times() {
        let one = rule(1, &[]);
        for (unsent, retry) in [(0, true), (1, true), (2, false)] {
            let s =
                Situation { evidence: Evidence::NotSent, sends: 0, unsent, ..situation(Rank::UncertainWrite, &one) };
            assert_eq!(matches!(verdict(s), Verdict::Retry(_)), retry, "{unsent}");
        }
    }

    #[test]
    fn an_inference_of_unknown_fate_is_resent_once() {
        let four = rule(4, &[429]);
        for (used, retry) in [(0, true), (1, false)] {
            let s = Situation {
                evidence: Evidence::Unknown,
                effect: Effect::Unknown,
                unknown_resends: used,
                ..situation(Rank::Inference, &four)
            };
            assert_eq!(matches!(verdict(s), Verdict::Retry(_)), retry);
        }
    }
}
