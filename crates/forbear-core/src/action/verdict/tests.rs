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
        let s =
            Situation { answer: Some(&answer), sends: 2, repeatable: true, ..situation(Rank::IdempotentWrite, &all) };
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
        let s = Situation { evidence: Evidence::NotSent, sends: 0, unsent, ..situation(Rank::UncertainWrite, &one) };
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
