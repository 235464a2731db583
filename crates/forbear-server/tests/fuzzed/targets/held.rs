//! What the core makes of a reading: how long its scope is closed by it.

use std::sync::Arc;

use forbear_core::classify::{Boundary, Classification, Kind};
use forbear_core::command::{Command, Commands};
use forbear_core::coordinator::Coordinator;
use forbear_core::durable::Durable;
use forbear_core::effect::Evidence;
use forbear_core::ids::{ActionId, AttemptNo, Digest, ProviderName, Route, RunId, ScopeId, TaskId};
use forbear_core::input::{HeadSeen, Input, Mark, Quota, Report, Request, Settings};
use forbear_core::policy::{Limits, Policy, Rank};
use forbear_core::time::Wall;

use super::NOW;

/// The longest that one answer closes a scope: a month, and the jitter above it.
const CLOSED_MS_MAX: u64 = 31 * 24 * 3_600_000 + 1_000;
const ACTION: ActionId = ActionId(1);

/// A scope opens within the bound, and not before a refusal wants the next call.
pub(super) fn check(status: u16, read: &Classification) {
    let Some(opens) = closed_until(status, read) else { return };
    assert!(opens <= NOW.wall.plus_ms(CLOSED_MS_MAX), "closed for {} ms by {read:?}", NOW.wall.ms_until(opens));
    let wanted = read.boundary.as_ref().map_or(0, |b: &Boundary| b.wait_ms.min(CLOSED_MS_MAX - 1_000));
    let refusal = matches!(read.kind, Kind::Throttled | Kind::Exhausted);
    assert!(!refusal || opens >= NOW.wall.plus_ms(wanted), "open after {} ms by {read:?}", NOW.wall.ms_until(opens));
}

/// One read, and this answer to it.
fn closed_until(status: u16, read: &Classification) -> Option<Wall> {
    let policy = Policy::default();
    let settings = Settings::of(&policy, Digest([0; 32]));
    let mut core = Coordinator::new(Arc::new(settings), 7, Durable::default());
    let asked = core.handle(NOW, Input::Request(Box::new(request(&policy))));
    assert!(carry_out(&mut core, asked), "the call is sent at once");
    let answer = Some(HeadSeen { status, classification: read.clone() });
    let report = Box::new(Report { evidence: Evidence::Answered, answer, transport: None });
    let told = core.handle(NOW, Input::Result { action: ACTION, attempt: AttemptNo(1), report });
    carry_out(&mut core, told);
    core.scopes_view(NOW, 1).first().and_then(|scope| scope.next_allowed_at)
}

/// Everything that the core asks for; whether the call is sent.
fn carry_out(core: &mut Coordinator, mut commands: Commands) -> bool {
    let mut sent = false;
    while !commands.is_empty() {
        let mut more = Commands::new();
        for command in commands {
            match command {
                Command::Append { event, .. } => more.extend(core.handle(NOW, Input::Durable { seq: event.seq })),
                Command::Dispatch(d) => sent |= core.confirm_send(NOW, d.action, d.attempt, &mut more),
                _ => {}
            }
        }
        commands = more;
    }
    sent
}

fn request(policy: &Policy) -> Request {
    let rule = policy.request_classes["read"].clone();
    Request {
        action: ACTION,
        task: TaskId::new("t"),
        run: RunId::new("t"),
        provider: ProviderName::new("p"),
        scope: ScopeId::new("p/k"),
        tenant: None,
        policy: Digest([0; 32]),
        limits: Limits::default(),
        route: Route::new("GET /x"),
        class: "read".into(),
        rank: Rank::Read,
        deadline: NOW.wall.plus_ms(rule.deadline_seconds * 1_000),
        rule: Arc::new(rule),
        content_digest: None,
        content_bytes: 0,
        replayable: true,
        body_pending: false,
        key: None,
        repeatable: false,
        goal: None,
        reference: None,
        reference_key: None,
        mark: Mark::Silent,
        call_digest: None,
        request_digest: None,
        run_named: false,
        journal_before: false,
        observe: false,
        deletes: false,
        early_data: false,
        quota: Quota::default(),
        invocation: None,
    }
}
