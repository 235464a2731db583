//! A scenario in as text, a golden trace out: the core alone, told line by line what happens, and everything it commands.
//!
//! A scenario is a file in `scenarios/`. Times are milliseconds; `until` lets time pass and wakes the core whenever it
//! asked for it. `a1` is an action, `a1#2` its second attempt.
//!
//! ```text
//! ask a1 t1 read [key=K] [retention=S] [content=N] [deadline=MS] [slots=N] [max_wait=S] [ref=R] [marked=1] [id=N]
//!   [run=R] [route=R] [line=N] [priority=P] [observe]
//! until MS | sleep MS (without waking) | flush [SEQ] | confirm a1#1
//! result a1#1 200 | 429 after=S | 401 | lost | not_sent | refused
//! ends a1#1 complete | cut        leave a1 | cancel t1 | run R | action a1 | reopen t1 | drain | fail | thaw | crash
//! ```

#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails its test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use forbear_core::Coordinator;
use forbear_core::breaker::BreakerRule;
use forbear_core::classify::{Boundary, BoundarySource, Classification, Kind};
use forbear_core::command::{Command, Commands};
use forbear_core::durable::Durable;
use forbear_core::effect::Evidence;
use forbear_core::event::{Event, Fact, KeyOrigin, KeyUsed};
use forbear_core::ids::{ActionId, AttemptNo, Digest, Key, ProviderName, Route, RunId, ScopeId, Seq, TaskId};
use forbear_core::input::{BodyEnd, HeadSeen, Input, Mark, Quota, Report, Request, Settings, Whose};
use forbear_core::policy::{BackoffRule, ClassRule, Limits, PacingRule, Priority, Rank, TaskRule};
use forbear_core::time::{Mono, Now, Wall};

#[test]
fn scenarios() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let mut stage = Stage::new();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            stage.play(line);
        }
        insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, stage.out);
        });
    }
}

struct Stage {
    core: Coordinator,
    now: Now,
    journal: Vec<Event>,
    durable: usize,
    out: String,
}

const START: Wall = Wall(1_767_225_600_000);

impl Stage {
    fn new() -> Self {
        let now = Now { mono: Mono(0), wall: START };
        let core = Coordinator::new(settings(), 7, Durable::default());
        Self { core, now, journal: Vec::new(), durable: 0, out: String::new() }
    }

    fn play(&mut self, line: &str) {
        if let Some(comment) = line.strip_prefix('#') {
            let _ = writeln!(self.out, "#{comment}");
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        self.say(&format!("{:>7} {line}", self.ms()));
        let given = |name: &str| words.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str, default: u64| given(name).map_or(default, |v| v.parse().unwrap());
        match words[0] {
            "until" => return self.until(words[1].parse().unwrap()),
            "sleep" => return self.jump(words[1].parse().unwrap()),
            "ask" => self.tell(Input::Request(Box::new(request(self.now, &words, &given, &number)))),
            "flush" => {
                self.durable = words.get(1).map_or(self.journal.len(), |n| n.parse().unwrap());
                self.tell(Input::Durable { seq: Seq(self.durable as u64) });
            }
            "confirm" => {
                let (action, attempt) = attempt(words[1]);
                let mut out = Commands::new();
                let go = self.core.confirm_send(self.now, action, attempt, &mut out);
                self.say(if go { "          = goes" } else { "          = does not go" });
                self.take(out);
            }
            "result" => {
                let (action, attempt) = attempt(words[1]);
                let report = Box::new(report(self.now, words[2], given("after").map(|s| s.parse().unwrap())));
                self.tell(Input::Result { action, attempt, report });
            }
            "ends" => {
                let (action, attempt) = attempt(words[1]);
                let end = if words[2] == "cut" { BodyEnd::Cut("reset".into()) } else { BodyEnd::Complete };
                self.tell(Input::Ended { action, attempt, end });
            }
            "reads" => {
                let (action, attempt) = attempt(words[1]);
                self.tell(Input::AnswerRead { action, attempt, end: BodyEnd::Complete });
            }
            "leave" => self.tell(Input::AgentLeft { action: action(words[1]) }),
            "cancel" => self.tell(Input::Cancel { whose: whose(&words[1..]), by: "person".into() }),
            "reopen" => self.tell(Input::Reopen { whose: whose(&words[1..]), by: "person".into() }),
            "drain" => self.tell(Input::Drain),
            "fail" => {
                self.journal.truncate(self.durable);
                self.tell(Input::AppendFailed { why: "disk full".into() });
            }
            "thaw" => {
                let out = self.core.thaw(self.now, None, &self.journal);
                self.take(out);
            }
            "crash" => {
                self.journal.truncate(self.durable);
                let (core, out) = Coordinator::recover(settings(), 8, self.now, None, &self.journal);
                self.core = core;
                self.take(out);
            }
            other => panic!("no such line: {other}"),
        }
        assert_eq!(self.core.inconsistency(), None, "{}", self.out);
    }

    fn until(&mut self, ms: u64) {
        while let Some((at, reason)) = self.core.next_wakeup().filter(|(at, _)| *at <= Mono(0).plus_ms(ms)) {
            self.jump(at.max(self.now.mono).0 / 1_000_000);
            self.say(&format!("{:>7}   (wakes: {reason:?})", self.ms()));
            self.tell(Input::Wake);
        }
        self.jump(ms);
    }

    fn jump(&mut self, ms: u64) {
        self.now = Now { mono: Mono(0).plus_ms(ms), wall: START.plus_ms(ms) };
    }

    fn ms(&self) -> u64 {
        self.now.mono.0 / 1_000_000
    }

    fn tell(&mut self, input: Input) {
        let out = self.core.handle(self.now, input);
        self.take(out);
    }

    fn take(&mut self, out: Commands) {
        for command in out {
            self.say(&format!("          > {}", spell(&command)));
            if let Command::Append { event, .. } = command
                && self.core.not_ready().is_none_or(|why| why != "disk full")
            {
                self.journal.push(*event);
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }
}

fn settings() -> Arc<Settings> {
    Arc::new(Settings {
        task: TaskRule { max_retries: 10, max_wait_seconds: 600 },
        backoff: BackoffRule { base_ms: 1_000, cap_ms: 60_000, floor_ms: 1_000 },
        pacing: PacingRule { release_gap_ms: 200, jitter_ms: 250, target_share_bp: 9_500, arrival_spread_ms: 0 },
        breakers: BreakerRule::default(),
        cancelled_at_once: 2,
        homes: BTreeMap::default(),
        digest: Digest([1; 32]),
    })
}

fn request<'a>(
    now: Now,
    words: &[&str],
    given: &impl Fn(&str) -> Option<&'a str>,
    number: &impl Fn(&str, u64) -> u64,
) -> Request {
    let rank = match words[3] {
        "read" => Rank::Read,
        "inference" => Rank::Inference,
        "idempotent_write" => Rank::IdempotentWrite,
        _ => Rank::UncertainWrite,
    };
    let key = given("key").map(|value| KeyUsed {
        header: "idempotency-key".into(),
        value: Key::new(value),
        origin: KeyOrigin::Agent,
        retention_seconds: given("retention").map(|s| s.parse().unwrap()),
    });
    let once = rank == Rank::UncertainWrite;
    Request {
        action: action(words[1]),
        task: TaskId::new(words[2]),
        run: RunId::new(given("run").unwrap_or("r")),
        provider: ProviderName::new("p"),
        scope: ScopeId::new("p/s"),
        tenant: None,
        policy: Digest([1; 32]),
        limits: Limits {
            max_delayed_requests: u32::try_from(number("line", 25)).unwrap(),
            max_concurrent_requests: u32::try_from(number("slots", 2)).unwrap(),
            max_retries_per_minute: 10,
            ..Limits::default()
        },
        quota: Quota { priority: given("priority").and_then(Priority::named).unwrap_or_default(), ..Quota::default() },
        route: Route::new(given("route").unwrap_or("POST /v1/things")),
        class: words[3].into(),
        rank,
        rule: Arc::new(ClassRule {
            rank: None,
            max_attempts: if once { 1 } else { 4 },
            max_wait_seconds: number("max_wait", 90),
            retry_statuses: if once { vec![] } else { vec![408, 429, 500, 502, 503, 504] },
            unknown_resends: 1,
            unsent_resends: 2,
            max_queue_seconds: 60,
            deadline_seconds: 900,
        }),
        content_digest: Some(Digest([u8::try_from(number("content", 1)).unwrap(); 32])),
        content_bytes: 10,
        replayable: true,
        body_pending: false,
        key,
        repeatable: false,
        deletes: false,
        early_data: false,
        deadline: now.wall.plus_ms(number("deadline", 900_000)),
        goal: None,
        reference: given("ref").map(Arc::from),
        reference_key: given("ref").map(Key::new),
        mark: given("marked").map_or(Mark::Silent, |_| Mark::Repeat),
        invocation: given("id").map(|id| Digest([id.parse().unwrap(); 32])),
        call_digest: None,
        request_digest: given("run").map(|_| Digest([u8::try_from(number("content", 1)).unwrap(); 32])),
        run_named: given("run").is_some(),
        journal_before: false,
        observe: words.contains(&"observe"),
    }
}

fn report(now: Now, word: &str, after_s: Option<u64>) -> Report {
    let evidence = match word {
        "lost" => Evidence::Unknown,
        "not_sent" => Evidence::NotSent,
        "refused" => Evidence::Refused,
        _ => Evidence::Answered,
    };
    let answer = word.parse::<u16>().ok().map(|status| {
        let kind = match status {
            200 => Kind::Success,
            429 => Kind::Throttled,
            503 => Kind::Unavailable,
            408 | 500..=599 => Kind::Transient,
            _ => Kind::Rejected,
        };
        let boundary = after_s.map(|s| Boundary {
            wait_ms: s * 1_000,
            until: now.wall.plus_ms(s * 1_000),
            source: BoundarySource::RetryAfter,
            reading: "delta seconds".into(),
            raw: s.to_string(),
        });
        let classification = Classification {
            kind,
            rule: format!("status {status}").into(),
            closes: forbear_core::classify::Closes::Narrowest,
            before_work: status == 429,
            boundary,
            windows: vec![],
            should_retry: None,
            malformed: vec![],
            contradictions: vec![],
            below: None,
            code: None,
        };
        HeadSeen { status, classification }
    });
    Report { evidence, answer, transport: None }
}

fn whose(words: &[&str]) -> Whose {
    match words {
        ["run", run] => Whose::Run(RunId::new(run)),
        ["action", name] => Whose::Action(action(name)),
        [task] => Whose::Task(TaskId::new(task)),
        other => panic!("nothing is called {other:?}"),
    }
}

fn action(word: &str) -> ActionId {
    ActionId(word.strip_prefix('a').unwrap().parse().unwrap())
}

fn attempt(word: &str) -> (ActionId, AttemptNo) {
    let (a, n) = word.split_once('#').unwrap();
    (action(a), AttemptNo(n.parse().unwrap()))
}

fn spell(command: &Command) -> String {
    match command {
        Command::Append { event, behind } => {
            let who = event.action.map_or(String::new(), |a| format!(" a{}", a.0));
            let how = if *behind { " behind" } else { "" };
            format!("append {}{how}{who} {}", event.seq.0, fact(&event.fact))
        }
        Command::Dispatch(d) => {
            let fresh = if d.fresh_connection { ", fresh connection" } else { "" };
            format!("dispatch a{}#{} not after {}{fresh}", d.action.0, d.attempt.0, d.send_not_after.0 / 1_000_000)
        }
        Command::ReadBody { action } => format!("read the body of a{}", action.0),
        Command::Relay { action, attempt, stamp } => {
            format!("relay a{}#{}: {}, {} attempts", action.0, attempt.0, stamp.outcome.as_str(), stamp.attempts)
        }
        Command::Answer { action, answer } => {
            let next: Vec<_> = answer.safe_next.iter().map(|s| s.as_str()).collect();
            let (outcome, why) = (answer.stamp.outcome.as_str(), &answer.reason);
            format!("answer a{}: {} {outcome}, {:?}: {why} {next:?}", action.0, answer.status, answer.effect)
        }
        Command::Share { action, of, .. } => format!("answer a{} with a copy of a{}'s", action.0, of.0),
        Command::CancelUpstream { action, attempt } => format!("cancel upstream a{}#{}", action.0, attempt.0),
        Command::ForgetContent { action } => format!("forget the content of a{}", action.0),
    }
}

fn fact(fact: &Fact) -> String {
    let since = |wall: &Wall| START.ms_until(*wall);
    match fact {
        Fact::ActionRequested(r) => format!("action_requested {}", r.class),
        Fact::ActionSent { attempt } => format!("action_sent #{}", attempt.0),
        Fact::ActionResult(r) => {
            format!("action_result #{} {:?} {:?} {}", r.attempt.0, r.evidence, r.effect, r.status.unwrap_or(0))
        }
        Fact::RetryScheduled { attempt, scheduled_retry_at, reason, .. } => {
            format!("retry_scheduled #{} at {}: {reason}", attempt.0, since(scheduled_retry_at))
        }
        Fact::RetryStarted { attempt, .. } => format!("retry_started #{}", attempt.0),
        Fact::RetryReturned { attempt, .. } => format!("retry_returned #{}", attempt.0),
        Fact::ScopeUpdated(u) => {
            format!("scope_updated until {:?}: {}", u.retry_not_before.map(|w| since(&w)), u.reason)
        }
        Fact::ReconciliationRequired { reason, .. } => format!("reconciliation_required: {reason}"),
        Fact::TaskCancelled { task, .. } => format!("task_cancelled {task}"),
        Fact::RunCancelled { run, .. } => format!("run_cancelled {run}"),
        Fact::ActionCancelled { .. } => "action_cancelled".into(),
        Fact::TaskReopened { task, .. } => format!("task_reopened {task}"),
        Fact::RunReopened { run, .. } => format!("run_reopened {run}"),
        Fact::ActionFinished(f) => {
            format!("action_finished {} {:?} after {} attempts", f.outcome.as_str(), f.effect, f.attempts)
        }
        Fact::CallJoined { how, .. } => format!("call_joined {}", how.as_str()),
        Fact::DecisionObserved { would } => format!("decision_observed {would:?}"),
        Fact::LogGap { events_at_most, .. } => format!("log_gap of {events_at_most} at most"),
        Fact::CircuitOpened(opened) => {
            format!("circuit_opened {} until {}: {}", opened.circuit.as_str(), since(&opened.until), opened.reason())
        }
        Fact::CircuitClosed { circuit, reason } => format!("circuit_closed {}: {reason}", circuit.as_str()),
        Fact::PolicyLoaded { .. } => "policy_loaded".into(),
    }
}
