//! The loop: the earliest happening is taken, the clock jumps to it, the core hears of it, and its commands become
//! happenings again. At the end nothing may be left.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use forbear_core::command::{Command, Commands, Dispatch};
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, HeadSeen, Input};
use forbear_core::time::{Mono, Now, Wall};
use forbear_core::{Coordinator, effect::Evidence};

use super::agents::Call;
use super::checks::Ledger;
use super::plan::{Fixtures, Intent, Plan};
use super::provider::Provider;
use super::rng::Rng;
use super::store::Store;

/// 2026-01-01T00:00:00Z, so that traces read as times of day.
const START: Wall = Wall(1_767_225_600_000);
/// The monotonic clock does not start at zero: nothing may lean on that.
const ORIGIN: Mono = Mono(1_000_000_000_000);

/// What is going to happen. What the process would do carries the incarnation that meant to do it.
pub(super) enum Happening {
    Asks { intent: usize },
    AsksAgain { action: ActionId },
    Leaves { action: ActionId },
    Cancels { task: usize },
    Runs { incarnation: u32, command: Command },
    FirstByte { incarnation: u32, dispatch: Dispatch },
    Commits { intent: usize, action: ActionId, key: Option<u128> },
    Head { incarnation: u32, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<Box<HeadSeen>> },
    HeardTwice { incarnation: u32, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<HeadSeen> },
    Ends { incarnation: u32, action: ActionId, attempt: AttemptNo, end: BodyEnd },
    Flushed { incarnation: u32, up_to: usize },
    Acknowledged { incarnation: u32, up_to: usize },
    FailureIsTold { incarnation: u32 },
    Thaws { incarnation: u32 },
    Crashes,
    Starts,
    WallSteps { ms: i64 },
    Suspends { ms: u64 },
    Fills { full: bool },
    LoadsPolicy,
    Drains,
}

pub(super) struct World<'f> {
    pub(super) fixtures: &'f Fixtures,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) now: Now,
    pub(super) core: Option<Coordinator>,
    pub(super) incarnation: u32,
    pub(super) queue: BTreeMap<(Mono, u64), Happening>,
    order: u64,
    pub(super) store: Store,
    pub(super) provider: Provider,
    pub(super) intents: Vec<Intent>,
    pub(super) calls: Vec<Call>,
    pub(super) ledger: Ledger,
    pub(super) step: u64,
    pub(super) broken: Option<(&'static str, String)>,
    trace: Option<Vec<String>>,
}

impl<'f> World<'f> {
    pub(super) fn new(fixtures: &'f Fixtures, seed: u64, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let intents = plan.intents(&mut rng);
        let now = Now { mono: ORIGIN, wall: START };
        let (core, _) = Coordinator::recover(plan.settings.clone(), seed, now, None, []);
        let mut world = Self {
            fixtures,
            rng,
            now,
            core: Some(core),
            incarnation: 0,
            queue: BTreeMap::new(),
            order: 0,
            store: Store::default(),
            provider: Provider::default(),
            ledger: Ledger::new(&plan),
            plan,
            intents,
            calls: Vec::new(),
            step: 0,
            broken: None,
            trace: traced.then(Vec::new),
        };
        world.note(|w| format!("seed {seed}: {:?}", w.plan));
        world.foresee();
        world
    }

    /// What does not depend on anything else that happens.
    fn foresee(&mut self) {
        let span = self.plan.span_ms;
        for intent in 0..self.intents.len() {
            let at = self.rng.range(0, span);
            self.later(at, Happening::Asks { intent });
        }
        for _ in 0..self.plan.cancels {
            let (at, task) = (self.rng.range(0, span), self.rng.pick(&[0, 1, 2, 3]));
            self.later(at, Happening::Cancels { task });
        }
        for _ in 0..self.plan.crashes {
            let at = self.rng.range(1, span * 2);
            self.later(at, Happening::Crashes);
        }
        for _ in 0..self.plan.wall_steps {
            let (at, ms) = (self.rng.range(0, span), self.rng.pick(&[-3_600_000, -5_000, 5_000, 3_600_000]));
            self.later(at, Happening::WallSteps { ms });
        }
        for _ in 0..self.plan.suspends {
            let (at, ms) = (self.rng.range(0, span), self.rng.range(1_000, 3_600_000));
            self.later(at, Happening::Suspends { ms });
        }
        if self.plan.fills {
            let (from, to) = (self.rng.range(0, span), self.rng.range(0, span));
            self.later(from, Happening::Fills { full: true });
            self.later(to, Happening::Fills { full: false });
            self.later(to, Happening::LoadsPolicy);
        }
        if self.plan.drains {
            let at = self.rng.range(span / 2, span);
            self.later(at, Happening::Drains);
        }
    }

    pub(super) fn run(&mut self, steps_max: u64) {
        while self.broken.is_none() {
            self.step += 1;
            if self.step > steps_max {
                return self.fail("it_ends", |_| format!("still busy after {steps_max} steps"));
            }
            let wake = self.core.as_ref().and_then(Coordinator::next_wakeup);
            let wake = wake.map(|(at, _)| at.max(self.now.mono).plus_ms(self.plan.wake_late_ms));
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            match (next, wake) {
                (None, None) => break,
                (Some(at), wake) if wake.is_none_or(|w| at <= w) => {
                    if let Some(((at, _), happening)) = self.queue.pop_first() {
                        self.jump_to(at);
                        self.happens(happening);
                    }
                }
                (_, Some(at)) => {
                    self.jump_to(at);
                    self.wake();
                }
                (Some(_), None) => {}
            }
            self.check_step();
        }
        if self.broken.is_none() {
            self.check_end();
        }
    }

    fn wake(&mut self) {
        self.note(|w| format!("wake {:?}", w.core.as_ref().and_then(Coordinator::next_wakeup).map(|(_, r)| r)));
        let before = self.core.as_ref().and_then(Coordinator::next_wakeup);
        self.tell(Input::Wake);
        let after = self.core.as_ref().and_then(Coordinator::next_wakeup);
        if let (Some((at, reason)), Some(_)) = (after, before)
            && at <= self.now.mono
        {
            self.fail("never_stuck", |_| format!("after a wake the core still wants one at once: {reason:?}"));
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Asks { intent } => self.asks(intent),
            Happening::AsksAgain { action } => self.asks_again(action),
            Happening::Leaves { action } => self.leaves(action),
            Happening::Cancels { task } => self.cancels(task),
            Happening::Runs { incarnation, command } => self.runs(incarnation, command),
            Happening::FirstByte { incarnation, dispatch } => self.first_byte(incarnation, dispatch),
            Happening::Commits { intent, action, key } => self.commits(intent, action, key),
            Happening::Head { incarnation, action, attempt, evidence, answer } => {
                self.head(incarnation, action, attempt, evidence, answer);
            }
            Happening::Ends { incarnation, action, attempt, end } => self.ends(incarnation, action, attempt, end),
            Happening::Flushed { incarnation, up_to } => self.flushed(incarnation, up_to),
            Happening::Acknowledged { incarnation, up_to } => self.acknowledged(incarnation, up_to),
            Happening::HeardTwice { incarnation, action, attempt, evidence, answer } => {
                self.heard_twice(incarnation, action, attempt, evidence, answer);
            }
            Happening::FailureIsTold { incarnation } => self.failure_is_told(incarnation),
            Happening::Thaws { incarnation } => self.thaws(incarnation),
            Happening::Crashes => self.crashes(),
            Happening::Starts => self.starts(),
            Happening::WallSteps { ms } => {
                self.note(|_| format!("wall clock steps by {ms} ms"));
                self.now.wall.0 += ms;
                self.ledger.clock_stepped = true;
                // Deadlines are wall time.
                self.ledger.slack_ms += ms.unsigned_abs();
            }
            Happening::Suspends { ms } => {
                self.note(|_| format!("suspended for {ms} ms"));
                self.jump_to(self.now.mono.plus_ms(ms));
                self.ledger.slack_ms += ms;
            }
            Happening::Fills { full } => {
                self.note(|_| format!("store full: {full}"));
                self.tell(Input::StoreFull(full));
            }
            Happening::LoadsPolicy => {
                let settings = self.plan.settings.clone();
                self.note(|_| "policy loaded again".to_owned());
                self.tell(Input::PolicyLoaded { settings, by: "person".into() });
            }
            Happening::Drains => {
                self.note(|_| "drain".to_owned());
                self.tell(Input::Drain);
            }
        }
    }

    pub(super) fn jump_to(&mut self, at: Mono) {
        let ms = at.0.saturating_sub(self.now.mono.0) / 1_000_000;
        // Both clocks go on together, in whole milliseconds.
        self.now = Now { mono: self.now.mono.plus_ms(ms), wall: self.now.wall.plus_ms(ms) };
    }

    pub(super) fn later(&mut self, in_ms: u64, happening: Happening) {
        self.at(self.now.mono.plus_ms(in_ms), happening);
    }

    pub(super) fn at(&mut self, at: Mono, happening: Happening) {
        self.order += 1;
        self.queue.insert((at, self.order), happening);
    }

    /// The core hears; what it commands is appended at once and otherwise run soon.
    pub(super) fn tell(&mut self, input: Input) {
        let Some(core) = &mut self.core else { return };
        let out = core.handle(self.now, input);
        self.take(out);
    }

    pub(super) fn take(&mut self, out: Commands) {
        for command in out {
            match command {
                Command::Append { event, behind } => self.append(*event, behind),
                command => {
                    self.note(|_| format!("  > {}", brief(&command)));
                    self.check_command(&command);
                    let late = self.rng.range(0, self.plan.command_late_ms);
                    // Commands of one action keep their order; those of different actions do not.
                    let soon = self.now.mono.plus_ms(late);
                    let at = match command.action().and_then(|a| self.call_mut(a)) {
                        Some(call) => {
                            call.commands_at = call.commands_at.max(soon);
                            call.commands_at
                        }
                        None => soon,
                    };
                    let incarnation = self.incarnation;
                    self.at(at, Happening::Runs { incarnation, command });
                }
            }
        }
    }

    pub(super) fn call(&self, action: ActionId) -> Option<&Call> {
        self.calls.get(usize::try_from(action.0).ok()?.checked_sub(1)?)
    }

    pub(super) fn call_mut(&mut self, action: ActionId) -> Option<&mut Call> {
        self.calls.get_mut(usize::try_from(action.0).ok()?.checked_sub(1)?)
    }

    pub(super) fn fail(&mut self, check: &'static str, message: impl FnOnce(&Self) -> String) {
        if self.broken.is_none() {
            let message = message(self);
            self.note(|_| format!("BROKEN {check}: {message}"));
            self.broken = Some((check, message));
        }
    }

    /// Costs nothing unless this run is told.
    pub(super) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let mut text = String::new();
        let ms = self.now.mono.ms_since(ORIGIN);
        let _ = write!(text, "{:>7}.{:03} {}", ms / 1_000, ms % 1_000, line(self));
        if let Some(trace) = &mut self.trace {
            trace.push(text);
        }
    }

    pub(super) fn into_trace(self) -> Vec<String> {
        self.trace.unwrap_or_default()
    }
}

/// Short names: `a3#2` is the second attempt of the third call.
pub(super) fn brief(command: &Command) -> String {
    match command {
        Command::Append { event, .. } => format!("append {}", event.seq.0),
        Command::Dispatch(d) => format!("dispatch a{}#{}", d.action.0, d.attempt.0),
        Command::ReadBody { action } => format!("read the body of a{}", action.0),
        Command::Relay { action, attempt, stamp } => {
            format!("relay a{}#{} {}", action.0, attempt.0, stamp.outcome.as_str())
        }
        Command::Answer { action, answer } => {
            format!("answer a{} {} {}: {}", action.0, answer.status, answer.stamp.outcome.as_str(), answer.reason)
        }
        Command::Share { action, of, .. } => format!("answer a{} with a copy of a{}'s", action.0, of.0),
        Command::CancelUpstream { action, attempt } => format!("cancel upstream a{}#{}", action.0, attempt.0),
        Command::ForgetContent { action } => format!("forget the content of a{}", action.0),
    }
}
