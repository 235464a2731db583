use forbear_core::classify::{Below, Boundary, BoundarySource, Classification, Kind};
use forbear_core::event::{EVENT_VERSION, KeyUsed, Outcome};
use forbear_core::ids::{ActionId, AttemptNo, Digest, Key, ProviderName, Route, RunId, ScopeId, Seq, TaskId};
use forbear_core::policy::Rank;

use super::*;

fn event(fact: Fact) -> Event {
    let policy = "0011223344556677".to_owned();
    Event {
        v: EVENT_VERSION,
        seq: Seq(7),
        at: Wall(0),
        action: Some(ActionId(1)),
        prev: None,
        policy: policy.into(),
        fact,
    }
}

fn throttled() -> Classification {
    Classification {
        kind: Kind::Throttled,
        rule: "status 429".into(),
        closes: forbear_core::classify::Closes::Narrowest,
        before_work: true,
        boundary: Some(Boundary {
            wait_ms: 10_000,
            until: Wall(10_000),
            source: BoundarySource::RetryAfter,
            reading: "delta seconds".into(),
            raw: "10".into(),
        }),
        windows: vec![],
        should_retry: None,
        malformed: vec!["x-ratelimit-reset: soon".into()],
        contradictions: vec![],
        below: None,
        code: None,
    }
}

#[test]
fn each_line_says_when_what_and_why() {
    let lines = [
        (
            Fact::ActionResult(Box::new(ActionResult {
                attempt: AttemptNo(1),
                evidence: Evidence::Answered,
                effect: Effect::NotApplied,
                status: Some(429),
                classification: Some(Box::new(throttled())),
                transport: None,
            })),
            "attempt 1: status 429, throttled (status 429); wait 10.0 s until 00:00:10.000 (retry_after: `10`); cannot be read: x-ratelimit-reset: soon; nothing was done",
        ),
        (
            Fact::ActionResult(Box::new(ActionResult {
                attempt: AttemptNo(1),
                evidence: Evidence::Answered,
                effect: Effect::Unknown,
                status: Some(429),
                classification: Some(Box::new(Classification {
                    boundary: None,
                    malformed: vec![],
                    below: Some(Below { retries: 16, claimed: 4_000_000_000, said: "x-tries: 4000000000".into() }),
                    ..throttled()
                })),
                transport: None,
            })),
            "attempt 1: status 429, throttled (status 429); a layer below sent it 16 more times (x-tries: 4000000000, and 4000000000 claimed), charged as retries; whether it was done is unknown",
        ),
        (
            Fact::ActionResult(Box::new(ActionResult {
                attempt: AttemptNo(1),
                evidence: Evidence::Unknown,
                effect: Effect::Unknown,
                status: None,
                classification: None,
                transport: Some("connection reset".into()),
            })),
            "attempt 1: it left and no answer came; connection reset; whether it was done is unknown",
        ),
        (
            Fact::RetryScheduled {
                attempt: AttemptNo(2),
                scheduled_retry_at: Wall(10_050),
                retry_not_before: Some(Wall(10_000)),
                reason: "status allows a retry".into(),
                scope: ScopeId::new("p/a"),
                task: TaskId::new("t"),
                wait_ms: 10_050,
            },
            "attempt 2 waits 10.0 s until 00:00:10.050: status allows a retry; the provider wants none before 00:00:10.000",
        ),
        (
            Fact::ActionFinished(Box::new(ActionFinished {
                outcome: Outcome::Succeeded,
                effect: Effect::Applied,
                attempts: 2,
                waited_ms: 10_050,
                status: Some(200),
                reason: None,
                waited_for: None,
                straight: None,
                agent_left: false,
                refused: None,
            })),
            "succeeded after 2 attempts; waited 10.0 s; status 200; it was done",
        ),
    ];
    for (fact, expected) in lines {
        assert_eq!(text_of(&event(fact)), expected);
    }
}

#[test]
fn the_key_itself_is_data_and_its_origin_is_said() {
    let fact = Fact::ActionRequested(Box::new(ActionRequested {
        task: TaskId::new("t"),
        run: RunId::new("t"),
        provider: ProviderName::new("p"),
        scope: ScopeId::new("p/a"),
        tenant: None,
        route: Route::new("POST /v1/transfers"),
        class: "idempotent_write".into(),
        rank: Rank::IdempotentWrite,
        content_digest: Some(Digest([1; 32])),
        content_bytes: 12,
        key: Some(KeyUsed {
            header: "Idempotency-Key".into(),
            value: Key::new("k-1"),
            origin: KeyOrigin::Agent,
            retention_seconds: Some(86_400),
        }),
        deadline: Wall(900_000),
        goal: Some("pay the invoice".into()),
        reference: None,
        reference_key: None,
        invocation: None,
    }));
    let said = story_event(&event(fact));
    assert_eq!(
        said.text,
        "POST /v1/transfers asked for as idempotent_write, task t; 12 bytes; key in Idempotency-Key (the agent's own, kept 24 h by the provider); deadline 00:15:00.000; goal: pay the invoice"
    );
    assert_eq!((said.kind.as_str(), said.data["key"]["value"].as_str()), ("action_requested", Some("k-1")));
    assert!(said.data.get("type").is_none());
}
