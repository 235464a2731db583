//! The real coordinator and the real classification against a scripted provider, under a clock that jumps.
//!
//! A script is a function from an arrival to an answer written as text: `429; retry-after: 3; body: {}`. Times in it are computed on
//! the provider's own clock: `{date}`, `{date+30s}`, `{epoch-2s}`. What comes out is what the provider saw, and how each
//! call ended. Nothing waits, so that hours cost nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use forbear_core::classify::{ResponseFacts, classify};
use forbear_core::command::{Command, Commands};
use forbear_core::contract::Contract;
use forbear_core::coordinator::Coordinator;
use forbear_core::durable::Durable;
use forbear_core::effect::Evidence;
use forbear_core::event::{Event, Outcome};
use forbear_core::ids::{ActionId, AttemptNo, Digest, ProviderName, Route, RunId, ScopeId, TaskId};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Mark, Quota, Report, Request, Settings};
use forbear_core::policy::{Limits, Policy, Rank};
use forbear_core::time::{Mono, Now, Wall};
use forbear_core::view::ScopeView;

/// 30 November 2026, 00:53:20 UTC.
pub(crate) const START: Wall = Wall(1_796_000_000_000);
/// Steps of one run: far more than any of these needs.
const STEPS_MAX: u32 = 100_000;
/// What stands before an answer's body, which is the last of it.
const BODY: &str = "; body: ";

/// One arrival at the provider, in milliseconds since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) at_ms: u64,
    /// When the answer's head was read.
    pub(crate) head_ms: u64,
    pub(crate) call: u32,
    pub(crate) account: &'static str,
    pub(crate) status: u16,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) at_ms: u64,
    pub(crate) outcome: Outcome,
    pub(crate) attempts: u32,
    pub(crate) next_allowed_ms: Option<i64>,
}

/// What a script is asked with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The account's arrivals so far, this one included.
    pub(crate) nth: usize,
    pub(crate) at_ms: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Head(u32, AttemptNo),
    Call(u32),
    Leave(u32),
    Limits(u32),
}

type Script = Box<dyn FnMut(Asked) -> String>;

pub(crate) struct World {
    core: Coordinator,
    settings: Settings,
    script: Script,
    contract: Contract,
    limits: Limits,
    max_wait_s: u64,
    max_queue_s: u64,
    /// The provider's wall clock less ours.
    skew_ms: i64,
    pub(crate) latency_ms: u64,
    now_ms: u64,
    due: BTreeMap<(u64, u32), Due>,
    order: u32,
    calls: Vec<&'static str>,
    answers: BTreeMap<(u32, u32), String>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) ends: BTreeMap<u32, End>,
    pub(crate) events: Vec<Event>,
    /// The register's instant for each account whenever it changed.
    pub(crate) boundaries: Vec<(u64, ScopeId, Option<Wall>)>,
}

/// A fixed sequence for each account; the last answer repeats.
pub(crate) fn sequence(answers: &[&str]) -> Script {
    let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
    Box::new(move |asked| answers[(asked.nth - 1).min(answers.len() - 1)].clone())
}

impl World {
    pub(crate) fn new(seed: u64, script: Script) -> Self {
        let policy = Policy::default();
        let settings = Settings::of(&policy, Digest([0; 32]));
        Self {
            core: Coordinator::new(Arc::new(settings.clone()), seed, Durable::default()),
            settings,
            script,
            contract: Contract::default(),
            limits: Limits::default(),
            max_wait_s: 90,
            max_queue_s: 60,
            skew_ms: 0,
            latency_ms: 5,
            now_ms: 0,
            due: BTreeMap::new(),
            order: 0,
            calls: Vec::new(),
            answers: BTreeMap::new(),
            arrivals: Vec::new(),
            ends: BTreeMap::new(),
            events: Vec::new(),
            boundaries: Vec::new(),
        }
    }

    pub(crate) fn contract(mut self, contract: Contract) -> Self {
        self.contract = contract;
        self
    }

    pub(crate) fn slots(mut self, slots: u32) -> Self {
        self.limits.max_concurrent_requests = slots;
        self
    }

    pub(crate) fn max_wait_s(mut self, seconds: u64) -> Self {
        self.max_wait_s = seconds;
        self.settings.task.max_wait_seconds = self.settings.task.max_wait_seconds.max(seconds);
        let settings = Arc::new(self.settings.clone());
        let loaded = self.core.handle(self.now(), Input::PolicyLoaded { settings, by: "test".into() });
        self.carry_out(loaded);
        self
    }

    pub(crate) fn max_queue_s(mut self, seconds: u64) -> Self {
        self.max_queue_s = seconds;
        self
    }

    pub(crate) fn skew_ms(mut self, ms: i64) -> Self {
        self.skew_ms = ms;
        self
    }

    /// A read of an account, at an instant.
    pub(crate) fn call(&mut self, at_ms: u64, account: &'static str) -> u32 {
        let call = u32::try_from(self.calls.len()).unwrap();
        self.calls.push(account);
        self.plan(at_ms, Due::Call(call));
        call
    }

    /// The agent of a call hangs up.
    pub(crate) fn leave(&mut self, at_ms: u64, call: u32) {
        self.plan(at_ms, Due::Leave(call));
    }

    /// From here on calls carry another number of slots.
    pub(crate) fn slots_at(&mut self, at_ms: u64, slots: u32) {
        self.plan(at_ms, Due::Limits(slots));
    }

    pub(crate) fn run(mut self, until_ms: u64) -> Self {
        for _ in 0..STEPS_MAX {
            let planned = self.due.first_key_value().map(|((at, _), _)| *at);
            let wakeup = self.core.next_wakeup().map(|(at, _)| at.0.div_ceil(1_000_000));
            let Some(next) = planned.into_iter().chain(wakeup).min().filter(|at| *at <= until_ms) else {
                self.now_ms = until_ms;
                return self;
            };
            self.now_ms = self.now_ms.max(next);
            let commands = match self.due.first_entry().filter(|e| e.key().0 <= self.now_ms) {
                Some(entry) => {
                    let due = entry.remove();
                    self.happen(due)
                }
                None => self.core.handle(self.now(), Input::Wake),
            };
            self.carry_out(commands);
            self.note_boundaries();
        }
        panic!("it does not come to rest: {:?}", self.arrivals);
    }

    pub(crate) fn register(&self) -> Vec<ScopeView> {
        self.core.scopes_view(self.now(), 100)
    }

    /// Milliseconds between the head of one arrival and another, both counted from 1.
    pub(crate) fn gap_ms(&self, head: usize, arrival: usize) -> u64 {
        self.arrivals[arrival - 1].at_ms - self.arrivals[head - 1].head_ms
    }

    fn now(&self) -> Now {
        Now { mono: Mono(0).plus_ms(self.now_ms), wall: START.plus_ms(self.now_ms) }
    }

    fn plan(&mut self, at_ms: u64, due: Due) {
        self.order += 1;
        self.due.insert((at_ms, self.order), due);
    }

    fn happen(&mut self, due: Due) -> Commands {
        let input = match due {
            Due::Call(call) => Input::Request(Box::new(self.request(call))),
            Due::Leave(call) => Input::AgentLeft { action: id(call) },
            Due::Limits(slots) => {
                self.limits.max_concurrent_requests = slots;
                Input::Wake
            }
            Due::Head(call, attempt) => self.head(call, attempt),
        };
        self.core.handle(self.now(), input)
    }

    fn head(&mut self, call: u32, attempt: AttemptNo) -> Input {
        let answer = self.answers.remove(&(call, attempt.0)).unwrap();
        let (status, headers) = self.head_of(&answer);
        let body = answer.split_once(BODY).map(|(_, body)| body.as_bytes());
        let facts = ResponseFacts { status, headers: &headers, body, received: self.now() };
        let classification = classify(&self.contract, Rank::Read, &facts);
        let answer = Some(HeadSeen { status, classification });
        let report = Report { evidence: Evidence::Answered, answer, transport: None };
        Input::Result { action: id(call), attempt, report: Box::new(report) }
    }

    fn head_of(&self, answer: &str) -> (u16, http::HeaderMap) {
        let head = answer.split_once(BODY).map_or(answer, |(head, _)| head);
        let mut parts = head.split(';').map(str::trim);
        let status = parts.next().unwrap().parse().unwrap();
        let mut headers = http::HeaderMap::new();
        for part in parts {
            let (name, value) = part.split_once(':').unwrap();
            let value = self.computed(value.trim());
            headers.append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        (status, headers)
    }

    /// `{date+30s}` and `{epoch-2s}` on the provider's clock.
    fn computed(&self, value: &str) -> String {
        let Some(inner) = value.strip_prefix('{').and_then(|v| v.strip_suffix('}')) else { return value.to_owned() };
        let shifted = inner.trim_start_matches(char::is_alphabetic);
        let shift_s: i64 = if shifted.is_empty() { 0 } else { shifted.trim_end_matches('s').parse().unwrap() };
        let epoch_s = (self.now().wall.0 + self.skew_ms).div_euclid(1_000) + shift_s;
        if inner.starts_with("epoch") {
            return epoch_s.to_string();
        }
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(epoch_s.unsigned_abs());
        httpdate::fmt_http_date(at)
    }

    fn request(&self, call: u32) -> Request {
        let name = format!("call-{call}");
        let mut rule = Policy::default().request_classes["read"].clone();
        rule.max_wait_seconds = self.max_wait_s;
        rule.max_queue_seconds = self.max_queue_s;
        rule.deadline_seconds = 200_000;
        Request {
            action: id(call),
            task: TaskId::new(&name),
            run: RunId::new(&name),
            provider: ProviderName::new("p"),
            scope: ScopeId::new(&format!("p/{}", self.calls[call as usize])),
            tenant: None,
            policy: self.settings.digest,
            limits: self.limits,
            quota: Quota::default(),
            route: Route::new("GET /x"),
            class: "read".into(),
            rank: Rank::Read,
            deadline: self.now().wall.plus_ms(rule.deadline_seconds * 1_000),
            rule: Arc::new(rule),
            content_digest: None,
            content_bytes: 0,
            replayable: true,
            body_pending: false,
            key: None,
            repeatable: false,
            deletes: false,
            early_data: false,
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

    /// Everything that the core asks for, until it asks for nothing more.
    fn carry_out(&mut self, mut commands: Commands) {
        while !commands.is_empty() {
            let mut more = Commands::new();
            for command in commands {
                self.carry_out_one(command, &mut more);
            }
            commands = more;
        }
    }

    fn carry_out_one(&mut self, command: Command, more: &mut Commands) {
        let now = self.now();
        match command {
            Command::Append { event, .. } => {
                let seq = event.seq;
                self.events.push(*event);
                more.extend(self.core.handle(now, Input::Durable { seq }));
            }
            Command::Dispatch(d) if self.core.confirm_send(now, d.action, d.attempt, more) => {
                self.arrive(call_of(d.action), d.attempt);
            }
            Command::Relay { action, attempt, stamp } => {
                let end =
                    End { at_ms: self.now_ms, outcome: stamp.outcome, attempts: stamp.attempts, next_allowed_ms: None };
                self.ends.insert(call_of(action), end);
                more.extend(self.core.handle(now, Input::Ended { action, attempt, end: BodyEnd::Complete }));
            }
            Command::Answer { action, answer } => {
                let end = End {
                    at_ms: self.now_ms,
                    outcome: answer.stamp.outcome,
                    attempts: answer.stamp.attempts,
                    next_allowed_ms: answer.next_allowed_at.map(|at| at.0 - START.0),
                };
                self.ends.insert(call_of(action), end);
            }
            Command::Dispatch(_)
            | Command::ReadBody { .. }
            | Command::CancelUpstream { .. }
            | Command::Share { .. }
            | Command::ForgetContent { .. } => {}
        }
    }

    fn arrive(&mut self, call: u32, attempt: AttemptNo) {
        let account = self.calls[call as usize];
        let nth = self.arrivals.iter().filter(|a| a.account == account).count() + 1;
        let answer = (self.script)(Asked { nth, at_ms: self.now_ms });
        let (status, _) = self.head_of(&answer);
        let head_ms = self.now_ms + self.latency_ms;
        self.answers.insert((call, attempt.0), answer);
        self.arrivals.push(Arrival { at_ms: self.now_ms, head_ms, call, account, status });
        self.plan(head_ms, Due::Head(call, attempt));
    }

    fn note_boundaries(&mut self) {
        for view in self.register() {
            let last = self.boundaries.iter().rev().find(|(_, scope, _)| *scope == view.scope).map(|(.., at)| *at);
            if last != Some(view.next_allowed_at) {
                self.boundaries.push((self.now_ms, view.scope, view.next_allowed_at));
            }
        }
    }
}

fn id(call: u32) -> ActionId {
    ActionId(u128::from(call) + 1)
}

fn call_of(action: ActionId) -> u32 {
    u32::try_from(action.0 - 1).unwrap()
}
