//! A day of steady load on one core, in simulated time: whatever it keeps stays within bounds, and so does memory.
//!
//! The core begins with as many tasks, cancelled tasks and ended writes as it may remember, as one does that has run for long, so that
//! each new one makes an old one go. Hardly anything here leaves an effect unknown: what is unknown stands open until
//! somebody looks it up, and lookups do not exist yet; how many such actions there are is up to the provider, not to the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use forbear_core::Coordinator;
use forbear_core::classify::{Boundary, BoundarySource, Classification, Kind};
use forbear_core::command::{Command, Commands};
use forbear_core::durable::{CANCELLED_MAX, Durable, Phase, TASKS_MAX, TaskSpent};
use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{ActionFinished, ActionRequested, EVENT_VERSION, Event, Fact, KeyOrigin, KeyUsed, Outcome};
use forbear_core::identity::ENDED_MAX;
use forbear_core::ids::{
    ActionId, AttemptNo, Digest, Key, PolicyMark, ProviderName, Route, RunId, ScopeId, Seq, TaskId,
};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Mark, Quota, Report, Request, Settings, Whose};
use forbear_core::policy::{Limits, Policy, Rank};
use forbear_core::time::{Mono, Now, Wall};

const START: Wall = Wall(1_767_225_600_000);
const HOURS: u64 = 24;
const HOUR_MS: u64 = 3_600_000;
const SCOPES: u64 = 200;
/// Calls of one task; then comes a new one.
const CALLS_OF_A_TASK: u64 = 3;
const CANCEL_EVERY_CALLS: u64 = 200;
/// The most that may be live at once at this load, by far: what is on its way for a minute.
const LIVE_SECONDS_MAX: u64 = 60;
/// Writes whose second attempt did not come to an end within its budgets.
const UNKNOWN_OF_10_000_CALLS_MAX: u64 = 5;
const MEMORY_GROWTH_PERCENT_MAX: u64 = 10;

enum Happening {
    Asks,
    Told { action: ActionId, attempt: AttemptNo },
    Ends { action: ActionId, attempt: AttemptNo },
    Durable { seq: Seq },
}

struct Soak {
    core: Coordinator,
    now: Now,
    queue: BTreeMap<(Mono, u64), Happening>,
    order: u64,
    policy: Policy,
    ranks: BTreeMap<ActionId, Rank>,
    closed: BTreeMap<u64, Mono>,
    calls: u64,
    answers: u64,
    sends: u64,
    events: u64,
    flushing: bool,
}

impl Soak {
    fn new() -> Self {
        let policy = Policy::default();
        let settings = Settings::of(&policy, Digest([1; 32]));
        let mut durable = Durable::default();
        for n in 0..TASKS_MAX {
            let spent = TaskSpent { retries: 1, wait_ms: 1_000, last_at: START };
            durable.tasks.insert(TaskId::new(&format!("earlier{n}")), spent);
        }
        for n in 0..CANCELLED_MAX {
            durable.cancelled.insert(TaskId::new(&format!("earlier{n}")), START);
        }
        let now = Now { mono: Mono(1_000_000_000), wall: START };
        let history = ended_before();
        let (core, _) = Coordinator::recover(Arc::new(settings), 7, now, Some(durable), &history);
        Self {
            core,
            now,
            queue: BTreeMap::new(),
            order: 0,
            policy,
            ranks: BTreeMap::new(),
            closed: BTreeMap::new(),
            calls: 0,
            answers: 0,
            sends: 0,
            events: 0,
            flushing: false,
        }
    }

    fn later(&mut self, in_ms: u64, happening: Happening) {
        self.order += 1;
        self.queue.insert((self.now.mono.plus_ms(in_ms), self.order), happening);
    }

    fn jump_to(&mut self, at: Mono) {
        let ms = at.0.saturating_sub(self.now.mono.0) / 1_000_000;
        self.now = Now { mono: self.now.mono.plus_ms(ms), wall: self.now.wall.plus_ms(ms) };
    }

    fn run_until(&mut self, end: Mono, every_ms: u64) {
        while let Some(((next, _), _)) = self.queue.first_key_value() {
            let wake = self.core.next_wakeup().map(|(at, _)| at.max(self.now.mono).plus_ms(1));
            let at = wake.map_or(*next, |w| w.min(*next));
            if at >= end {
                return;
            }
            self.jump_to(at);
            if wake.is_some_and(|w| w <= at) {
                let out = self.core.handle(self.now, Input::Wake);
                self.take(out);
            } else if let Some((_, happening)) = self.queue.pop_first() {
                self.happens(happening, every_ms);
            }
        }
    }

    fn happens(&mut self, happening: Happening, every_ms: u64) {
        let out = match happening {
            Happening::Asks => {
                self.later(every_ms, Happening::Asks);
                if self.calls.is_multiple_of(CANCEL_EVERY_CALLS) {
                    let task = self.task();
                    let out =
                        self.core.handle(self.now, Input::Cancel { whose: Whose::Task(task), by: "person".into() });
                    self.take(out);
                }
                self.calls += 1;
                let request = self.request();
                self.core.handle(self.now, Input::Request(Box::new(request)))
            }
            Happening::Told { action, attempt } => {
                let report = Box::new(self.told(action, attempt));
                self.core.handle(self.now, Input::Result { action, attempt, report })
            }
            Happening::Ends { action, attempt } => {
                self.ranks.remove(&action);
                self.core.handle(self.now, Input::Ended { action, attempt, end: BodyEnd::Complete })
            }
            Happening::Durable { seq } => {
                self.flushing = false;
                self.core.handle(self.now, Input::Durable { seq })
            }
        };
        self.take(out);
        if !self.flushing {
            self.flushing = true;
            let seq = self.core.last_seq();
            self.later(2, Happening::Durable { seq });
        }
    }

    fn take(&mut self, out: Commands) {
        for command in out {
            match command {
                Command::Append { .. } => self.events += 1,
                Command::Dispatch(d) => {
                    self.sends += 1;
                    let in_ms = 20 + self.draw(d.action, d.attempt, 1) % 280;
                    self.later(in_ms, Happening::Told { action: d.action, attempt: d.attempt });
                }
                Command::Relay { action, attempt, .. } => {
                    self.answers += 1;
                    self.later(10, Happening::Ends { action, attempt });
                }
                Command::Answer { action, .. } => {
                    self.answers += 1;
                    self.ranks.remove(&action);
                }
                Command::Share { .. }
                | Command::ReadBody { .. }
                | Command::CancelUpstream { .. }
                | Command::ForgetContent { .. } => {}
            }
        }
    }

    /// The provider: of a thousand calls thirty meet a limit, twenty an overload, ten a dropped connection that the next
    /// attempt mends.
    fn told(&mut self, action: ActionId, attempt: AttemptNo) -> Report {
        let scope = scope_of(action);
        let luck = self.draw(action, attempt, 2) % 1_000;
        let mends = matches!(self.ranks.get(&action), Some(Rank::Read | Rank::IdempotentWrite));
        let shut = self.closed.get(&scope).filter(|until| **until > self.now.mono).copied();
        match luck {
            _ if shut.is_some() => head(429, Kind::Throttled, true, shut.map(|until| until.ms_since(self.now.mono))),
            0..30 => {
                let wait_ms = 1_000 + luck * 100;
                self.closed.insert(scope, self.now.mono.plus_ms(wait_ms));
                head(429, Kind::Throttled, true, Some(wait_ms))
            }
            30..50 => head(503, Kind::Unavailable, true, None),
            50..60 if attempt == AttemptNo(1) && mends => {
                Report { evidence: Evidence::Unknown, answer: None, transport: None }
            }
            _ => head(200, Kind::Success, false, None),
        }
    }

    fn task(&self) -> TaskId {
        TaskId::new(&format!("task{}", self.calls / CALLS_OF_A_TASK))
    }

    fn request(&mut self) -> Request {
        // Ids are in the order of time: after those of before.
        let action = ActionId(u128::from(self.calls) + ENDED_MAX as u128);
        let rank = Rank::ALL[usize::try_from(self.draw(action, AttemptNo(0), 3) % 4).unwrap_or(0)];
        self.ranks.insert(action, rank);
        let key = key(&format!("k{}", self.calls));
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.calls.to_le_bytes());
        Request {
            action,
            task: self.task(),
            run: RunId::new("run"),
            provider: ProviderName::new("p"),
            scope: ScopeId::new(&format!("p/{}", scope_of(action))),
            tenant: None,
            policy: Digest([1; 32]),
            limits: Limits::default(),
            quota: Quota::default(),
            route: Route::new("POST /v1/x"),
            class: rank.class().into(),
            rank,
            rule: Arc::new(self.policy.request_classes[rank.class()].clone()),
            content_digest: Some(Digest(digest)),
            content_bytes: 100,
            replayable: true,
            body_pending: false,
            key: (rank == Rank::IdempotentWrite).then_some(key),
            repeatable: false,
            deletes: false,
            early_data: false,
            deadline: self.now.wall.plus_ms(900_000),
            goal: None,
            reference: None,
            reference_key: None,
            mark: Mark::Silent,
            invocation: None,
            call_digest: None,
            request_digest: None,
            run_named: false,
            journal_before: false,
            observe: false,
        }
    }

    fn unknown(&self) -> usize {
        self.core.durable_state().open.values().filter(|open| open.phase == Phase::Unknown).count()
    }

    fn draw(&self, action: ActionId, attempt: AttemptNo, purpose: u64) -> u64 {
        forbear_core::backoff::uniform(11, action, attempt, purpose, u64::from(u32::MAX))
    }

    /// Nothing that is kept is beyond its bound.
    fn check(&self, hour: u64, per_second: u64) {
        let durable = self.core.durable_state();
        let live = per_second * LIVE_SECONDS_MAX;
        assert!(self.core.live_actions() as u64 <= live, "hour {hour}: {} live", self.core.live_actions());
        assert_eq!(self.core.inconsistency(), None, "hour {hour}");
        let (open, unknown) = (durable.open.len(), self.unknown());
        assert!(durable.ended.len() <= ENDED_MAX, "hour {hour}: {} ended writes", durable.ended.len());
        assert!(open as u64 <= live + unknown as u64, "hour {hour}: {open} open, {unknown} unknown");
        let unknown_max = 1 + self.calls * UNKNOWN_OF_10_000_CALLS_MAX / 10_000;
        assert!(unknown as u64 <= unknown_max, "hour {hour}: {unknown} unknown effects");
        assert!(durable.tasks.len() <= TASKS_MAX + TASKS_MAX / 8, "hour {hour}: {} tasks", durable.tasks.len());
        let cancelled = durable.cancelled.len();
        assert!(cancelled <= CANCELLED_MAX + CANCELLED_MAX / 8, "hour {hour}: {cancelled} cancelled");
        let scopes = self.core.scopes_view(self.now, usize::MAX).len() as u64;
        assert!(scopes <= SCOPES && durable.scopes.len() as u64 <= SCOPES, "hour {hour}: {scopes} scopes");
        let retries: usize = durable.scopes.values().map(|s| s.retries.len()).sum();
        assert!(retries as u64 <= SCOPES * 60, "hour {hour}: {retries} retries remembered");
    }
}

/// As many ended writes as are remembered: those of the days before.
fn ended_before() -> Vec<Event> {
    let mut events = Vec::new();
    for n in 0..ENDED_MAX as u64 {
        let requested = ActionRequested {
            task: TaskId::new("before"),
            run: RunId::new("run"),
            provider: ProviderName::new("p"),
            scope: ScopeId::new(&format!("p/{}", n % SCOPES)),
            tenant: None,
            route: Route::new("POST /v1/x"),
            class: Rank::IdempotentWrite.class().into(),
            rank: Rank::IdempotentWrite,
            content_digest: Some(Digest([0; 32])),
            content_bytes: 100,
            key: Some(key(&format!("before{n}"))),
            deadline: START,
            goal: None,
            reference: None,
            reference_key: None,
            invocation: None,
        };
        let finished = ActionFinished {
            outcome: Outcome::Succeeded,
            effect: Effect::Applied,
            attempts: 1,
            waited_ms: 0,
            status: Some(200),
            reason: None,
            waited_for: None,
            straight: None,
            agent_left: false,
            refused: None,
        };
        for fact in [Fact::ActionRequested(Box::new(requested)), Fact::ActionFinished(Box::new(finished))] {
            let seq = Seq(events.len() as u64 + 1);
            let action = Some(ActionId(u128::from(n)));
            events.push(Event {
                v: EVENT_VERSION,
                seq,
                at: START,
                action,
                prev: None,
                policy: PolicyMark::new(""),
                fact,
            });
        }
    }
    events
}

fn key(value: &str) -> KeyUsed {
    KeyUsed {
        header: "idempotency-key".into(),
        value: Key::new(value),
        origin: KeyOrigin::Agent,
        retention_seconds: Some(86_400),
    }
}

fn scope_of(action: ActionId) -> u64 {
    u64::try_from(action.0).unwrap_or(0) % SCOPES
}

fn head(status: u16, kind: Kind, before_work: bool, wait_ms: Option<u64>) -> Report {
    let boundary = wait_ms.map(|wait_ms| Boundary {
        wait_ms,
        until: Wall(0),
        source: BoundarySource::RetryAfter,
        reading: String::new(),
        raw: String::new(),
    });
    let classification = Classification {
        kind,
        closes: forbear_core::classify::Closes::Narrowest,
        rule: "soak".into(),
        before_work,
        boundary,
        windows: Vec::new(),
        should_retry: None,
        malformed: Vec::new(),
        contradictions: Vec::new(),
        below: None,
        code: None,
    };
    Report { evidence: Evidence::Answered, answer: Some(HeadSeen { status, classification }), transport: None }
}

/// What this process has in memory, by the kernel.
fn resident_kib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a kernel that tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).expect("a number of pages");
    pages * 4
}

#[test]
fn a_day_of_load_leaves_nothing_behind() {
    let long = std::env::var_os("FORBEAR_TEST_LONG").is_some();
    let per_second: u64 = if long { 20 } else { 1 };
    let mut soak = Soak::new();
    let begin = soak.now.mono;
    soak.later(0, Happening::Asks);
    let mut after_two_hours = 0;
    for hour in 1..=HOURS {
        soak.run_until(begin.plus_ms(hour * HOUR_MS), 1_000 / per_second);
        soak.check(hour, per_second);
        if hour == 2 {
            after_two_hours = resident_kib();
        }
    }
    let at_the_end = resident_kib();
    println!(
        "{} calls, {} answers, {} sends, {} events; {after_two_hours} KiB after 2 hours, {at_the_end} KiB after {HOURS}; {} tasks, {} unknown",
        soak.calls,
        soak.answers,
        soak.sends,
        soak.events,
        soak.core.durable_state().tasks.len(),
        soak.unknown(),
    );
    assert!(soak.calls >= HOURS * 3_600 * per_second - 1, "{} calls", soak.calls);
    assert!(
        soak.answers + soak.core.live_actions() as u64 >= soak.calls,
        "{} of {} answered",
        soak.answers,
        soak.calls
    );
    assert!(soak.sends > soak.calls, "{} sends of {} calls: nothing was retried", soak.sends, soak.calls);
    let bound = after_two_hours + after_two_hours * MEMORY_GROWTH_PERCENT_MAX / 100;
    assert!(at_the_end <= bound, "{at_the_end} KiB after {HOURS} hours, {after_two_hours} KiB after 2");
}
