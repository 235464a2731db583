//! The loop: the earliest happening is taken, the clock jumps to it, a core hears of it, and its commands become
//! happenings again. At the end nothing may be left.

use std::collections::BTreeMap;

use forbear_core::Coordinator;
use forbear_core::command::{Command, Commands, Dispatch};
use forbear_core::coordinator::WakeReason;
use forbear_core::effect::Evidence;
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, HeadSeen, Input};
use forbear_core::time::{Mono, Now, Wall};

use super::agents::Again;
use super::calls::{Calls, number};
use super::chance::{Chance, Site};
use super::checks::Tally;
use super::coverage::{Coverage, Seen, of_outcome};
use super::intents::{Fixtures, Intent};
use super::ledger::Ledger;
use super::node::Node;
use super::plan::{Foreseen, Plan, Schedule};
use super::provider::Provider;
use super::queue::Queue;
use super::store::Store;
use super::trace::{Trace, brief};

/// 2026-01-01T00:00:00Z, so that traces read as times of day.
const START: Wall = Wall(1_767_225_600_000);
/// The monotonic clock does not start at zero: nothing may lean on that.
pub(super) const ORIGIN: Mono = Mono(1_000_000_000_000);
/// From here on something is late enough to be counted.
const LATE_MS: u64 = 1_000;

/// What is going to happen. What a process would do carries its number: with the process it is gone.
pub(super) enum Happening {
    Foreseen(Foreseen),
    Asks { intent: usize, again: Again },
    AsksAgain { action: ActionId },
    AsksAsWell { action: ActionId },
    Leaves { action: ActionId },
    Runs { by: u32, command: Command },
    FirstByte { by: u32, dispatch: Dispatch },
    Commits { action: ActionId, key: Option<u128> },
    Head { by: u32, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<Box<HeadSeen>> },
    Heard { by: u32, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<Box<HeadSeen>> },
    HeardTwice { by: u32, action: ActionId, attempt: AttemptNo, evidence: Evidence, answer: Option<Box<HeadSeen>> },
    Reads { by: u32, action: ActionId, attempt: AttemptNo },
    Ends { by: u32, action: ActionId, attempt: AttemptNo, end: BodyEnd },
    Flushed { by: u32, up_to: usize },
    Acknowledged { by: u32, up_to: usize },
    FailureIsTold { by: u32 },
    Thaws { by: u32 },
    Starts,
    OldEnds,
    DrainOver { by: u32 },
}

pub(super) struct World<'f> {
    pub(super) fixtures: &'f Fixtures,
    pub(super) chance: Chance,
    pub(super) plan: Plan,
    /// Which of the plan's policies is in force.
    pub(super) policy: usize,
    pub(super) now: Now,
    /// The process that owns the journal, and one that did and does not know or has not ended yet.
    pub(super) owner: Option<Node>,
    pub(super) old: Option<Node>,
    /// How many there were.
    pub(super) processes: u32,
    queue: Queue,
    counts: BTreeMap<Site, u64>,
    pub(super) store: Store,
    pub(super) provider: Provider,
    pub(super) intents: Vec<Intent>,
    pub(super) calls: Calls,
    pub(super) tally: Tally,
    pub(super) step: u64,
    pub(super) coverage: Coverage,
    pub(super) broken: Option<(&'static str, String)>,
    pub(super) trace: Option<Trace>,
}

impl<'f> World<'f> {
    pub(super) fn new(fixtures: &'f Fixtures, schedule: Schedule, traced: bool, recorded: bool) -> Self {
        let now = Now { mono: ORIGIN, wall: START };
        let Schedule { seed, plan, intents, atoms, calm } = schedule;
        let (core, _) = Coordinator::recover(plan.policies[0].settings.clone(), seed, now, None, []);
        let mut world = Self {
            fixtures,
            chance: Chance::new(seed, calm, recorded),
            tally: Tally::new(&plan),
            policy: 0,
            now,
            owner: Some(Node::new(1, core, Ledger::default(), 0)),
            old: None,
            processes: 1,
            queue: Queue::default(),
            counts: BTreeMap::new(),
            store: Store::default(),
            provider: Provider::default(),
            intents,
            calls: Calls::default(),
            plan,
            step: 0,
            coverage: Coverage::default(),
            broken: None,
            trace: traced.then(Trace::default),
        };
        if world.plan.gap_ms > 0 {
            world.cover(Seen::IdleDay);
        }
        for atom in atoms {
            world.later(atom.at_ms, Happening::Foreseen(atom.what));
        }
        world
    }

    pub(super) fn run(&mut self, steps_max: u64) {
        while self.broken.is_none() {
            self.step += 1;
            if self.step > steps_max {
                return self.fail("it_ends", |_| format!("still busy after {steps_max} steps"));
            }
            match (self.queue.next_at(), self.next_wake()) {
                (None, None) => break,
                (Some(at), wake) if wake.is_none_or(|(w, _)| at <= w) => {
                    if let Some((at, happening)) = self.queue.pop() {
                        self.jump_to(at);
                        self.happens(happening);
                    }
                }
                (_, Some((at, by))) => {
                    self.jump_to(at);
                    self.wake(by);
                }
                (Some(_), None) => {}
            }
            self.check_step();
        }
        if self.broken.is_none() {
            self.check_end();
        }
    }

    /// When a core's timer fires next, and whose.
    fn next_wake(&self) -> Option<(Mono, u32)> {
        let nodes = self.owner.iter().chain(&self.old);
        let wakes = nodes.filter_map(|n| Some((n.core.next_wakeup()?.0, n.number)));
        wakes.map(|(at, by)| (at.max(self.now.mono).plus_ms(self.plan.wake_late_ms), by)).min()
    }

    fn wake(&mut self, by: u32) {
        let due = |w: &Self| w.node(by).and_then(|n| n.core.next_wakeup());
        if self.plan.wake_late_ms >= LATE_MS {
            self.cover(Seen::LateTimer);
        }
        let before: Option<(Mono, WakeReason)> = due(self);
        self.note(|w| format!("{}wake {:?}", w.tag(by), before.map(|(_, reason)| reason)));
        self.tell(by, Input::Wake);
        if let (Some((at, reason)), Some(_)) = (due(self), before)
            && at <= self.now.mono
            && reason != WakeReason::Stop
        {
            self.fail("never_stuck", |_| format!("after a wake the core still wants one at once: {reason:?}"));
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Foreseen(what) => self.comes(what),
            Happening::Asks { intent, again } => self.asks(intent, again),
            Happening::AsksAgain { action } => self.asks_again(action),
            Happening::AsksAsWell { action } => self.asks_as_well(action),
            Happening::Leaves { action } => self.leaves(action),
            Happening::Runs { by, command } => self.runs(by, command),
            Happening::FirstByte { by, dispatch } => self.first_byte(by, dispatch),
            Happening::Commits { action, key } => self.commits(action, key),
            Happening::Head { by, action, attempt, evidence, answer } => {
                self.head(by, action, attempt, evidence, answer);
            }
            Happening::Heard { by, action, attempt, evidence, answer } => {
                self.heard(by, action, attempt, evidence, answer);
            }
            Happening::HeardTwice { by, action, attempt, evidence, answer } => {
                self.heard_twice(by, action, attempt, evidence, answer);
            }
            Happening::Reads { by, action, attempt } => self.reads(by, action, attempt),
            Happening::Ends { by, action, attempt, end } => self.ends(by, action, attempt, end),
            Happening::Flushed { by, up_to } => self.flushed(by, up_to),
            Happening::Acknowledged { by, up_to } => self.acknowledged(by, up_to),
            Happening::FailureIsTold { by } => self.failure_is_told(by),
            Happening::Thaws { by } => self.thaws(by),
            Happening::Starts => self.starts(),
            Happening::OldEnds => self.old_ends(),
            Happening::DrainOver { by } => self.drain_over(by),
        }
    }

    fn comes(&mut self, what: Foreseen) {
        match what {
            Foreseen::Asks { intent } => self.asks(intent, Again::Marked),
            Foreseen::Cancels { task } => self.cancels(task),
            Foreseen::CancelsOne { of } => self.cancels_one(of),
            Foreseen::CancelsRun => self.cancels_run(),
            Foreseen::Reopens { task } => self.reopens(Some(task)),
            Foreseen::ReopensRun => self.reopens(None),
            Foreseen::Crashes => self.crashes(),
            Foreseen::TakesOver => self.takes_over(),
            Foreseen::WallSteps { ms } => {
                self.cover(if ms < 0 { Seen::WallBack } else { Seen::WallForward });
                self.note(|_| format!("wall clock steps by {ms} ms"));
                self.now.wall.0 += ms;
                self.tally.clock_stepped = true;
                // Deadlines are wall time.
                self.tally.slack_ms += ms.unsigned_abs();
            }
            Foreseen::Suspends { ms } => {
                self.cover(Seen::Suspend);
                self.note(|_| format!("suspended for {ms} ms"));
                self.jump_to(self.now.mono.plus_ms(ms));
                self.tally.slack_ms += ms;
            }
            Foreseen::Fills { full } => {
                self.cover(Seen::StoreFull);
                self.note(|_| format!("store full: {full}"));
                self.tell_all(|| Input::StoreFull(full));
            }
            Foreseen::LoadsPolicy { number } => self.loads_policy(number),
            Foreseen::Drains => self.drains(),
        }
    }

    fn loads_policy(&mut self, number: usize) {
        self.policy = number;
        self.cover(Seen::Reload);
        let settings = self.plan.policies[number].settings.clone();
        let spent = self.owner.as_ref().and_then(|n| n.ledger.charged.iter().max().copied()).unwrap_or(0);
        if u64::from(settings.task.max_retries) < spent {
            self.cover(Seen::SmallerBudget);
        }
        self.note(|w| {
            let p = &w.plan.policies[number];
            format!("policy {} loaded: {:?}, {:?}", number + 1, p.settings.task, p.limits)
        });
        self.limits_are_loaded(number);
        self.tell_all(|| Input::PolicyLoaded { settings: settings.clone(), by: "person".into() });
    }

    pub(super) fn jump_to(&mut self, at: Mono) {
        let at = at.max(self.now.mono);
        let ms = at.0 / 1_000_000 - self.now.mono.0 / 1_000_000;
        // Both clocks go on together; the wall clock shows whole milliseconds.
        self.now = Now { mono: at, wall: self.now.wall.plus_ms(ms) };
    }

    pub(super) fn later(&mut self, in_ms: u64, happening: Happening) {
        self.at(self.now.mono.plus_ms(in_ms), happening);
    }

    pub(super) fn at(&mut self, at: Mono, happening: Happening) {
        self.queue.push(at, happening);
    }

    pub(super) fn node(&self, number: u32) -> Option<&Node> {
        self.owner.iter().chain(&self.old).find(|n| n.number == number)
    }

    pub(super) fn node_mut(&mut self, number: u32) -> Option<&mut Node> {
        self.owner.iter_mut().chain(&mut self.old).find(|n| n.number == number)
    }

    /// A core hears; what it commands is appended at once and otherwise run soon.
    pub(super) fn tell(&mut self, by: u32, input: Input) {
        let now = self.now;
        let Some(node) = self.node_mut(by) else { return };
        let out = node.core.handle(now, input);
        self.take(by, out);
    }

    fn tell_all(&mut self, input: impl Fn() -> Input) {
        let all: Vec<u32> = self.owner.iter().chain(&self.old).map(|n| n.number).collect();
        for by in all {
            self.tell(by, input());
        }
    }

    pub(super) fn take(&mut self, by: u32, out: Commands) {
        let withdrawn = out.iter().filter(|c| matches!(c, Command::CancelUpstream { .. }));
        let withdrawn: Vec<ActionId> = withdrawn.filter_map(Command::action).collect();
        for command in out {
            if let Command::Append { event, behind } = command {
                self.append(by, *event, behind);
                continue;
            }
            self.note(|w| format!("  {}> {}", w.tag(by), brief(&command)));
            self.check_command(by, &command, &withdrawn);
            // Commands of one action keep their order, since they lie in one mailbox; those of different ones do not.
            let late_max = self.plan.command_late_ms;
            let Some(call) = command.action().and_then(|a| self.calls.get_mut(a)) else { continue };
            call.commands += 1;
            let of = number(call.request.action);
            let late =
                if late_max == 0 { 0 } else { self.chance.at(Site::Command, of, call.commands).range(0, late_max) };
            let soon = self.now.mono.plus_ms(late);
            call.commands_at = call.commands_at.max(soon);
            let at = call.commands_at;
            if late >= LATE_MS {
                self.cover(Seen::LateCommand);
            }
            self.at(at, Happening::Runs { by, command });
        }
    }

    /// How many of a kind there were before.
    pub(super) fn count(&mut self, site: Site) -> u64 {
        let count = self.counts.entry(site).or_default();
        *count += 1;
        *count
    }

    pub(super) const fn cover(&mut self, seen: Seen) {
        self.coverage.add(seen);
    }

    pub(super) const fn cover_outcome(&mut self, outcome: forbear_core::event::Outcome) {
        if let Some(seen) = of_outcome(outcome) {
            self.cover(seen);
        }
    }

    pub(super) fn fail(&mut self, check: &'static str, message: impl FnOnce(&Self) -> String) {
        if self.broken.is_none() {
            let message = message(self);
            self.note(|_| format!("BROKEN {check}: {message}"));
            self.broken = Some((check, message));
        }
    }
}
