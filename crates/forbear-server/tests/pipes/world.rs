//! What everybody in one run shares: the plan, the clock, the trace, and the books that the checks keep.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use forbear_core::event::{Event, Fact};
use forbear_core::ids::ActionId;
use forbear_core::time::{Mono, Now, Wall};
use forbear_lab::sim::moods::{Caller, Dice, Mood, Moods};
use tokio::time::Instant;

use crate::books::{Books, Standing};
use crate::plan::Plan;

/// 2026-01-01T00:00:00Z, so that traces read as times of day.
const START: Wall = Wall(1_767_225_600_000);
/// A clock that does not begin at zero: nothing may lean on that.
const ORIGIN: Mono = Mono(1_000_000_000_000);

#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

pub(crate) struct State {
    pub(crate) plan: Plan,
    pub(crate) books: Books,
    moods: Moods,
    wires: Dice,
    agents: Dice,
    disk: Dice,
    /// Milliseconds that went by in the processes before this one, and when this one began.
    base_ms: u64,
    began: Option<Instant>,
    trace: Vec<String>,
    pub(crate) broken: Vec<String>,
    /// Since when the server stops, or has stopped.
    pub(crate) stops_at_ms: Option<u64>,
}

/// How one flush goes.
pub(crate) struct Moment {
    pub(crate) flush_ms: u64,
    pub(crate) fails: bool,
    pub(crate) kept: u64,
    pub(crate) told_ms: u64,
    pub(crate) ack_ms: u64,
}

impl State {
    pub(crate) fn now_ms(&self) -> u64 {
        let since = self.began.map_or(0, |b| b.elapsed().as_millis());
        self.base_ms + u64::try_from(since).expect("a run is shorter")
    }

    pub(crate) fn note(&mut self, line: &str) {
        let ms = self.now_ms();
        let mut text = String::new();
        let _ = write!(text, "{:>7}.{:03} {line}", ms / 1_000, ms % 1_000);
        self.trace.push(text);
    }

    pub(crate) fn fail(&mut self, check: &str, message: &str) {
        let line = format!("BROKEN {check}: {message}");
        self.note(&line);
        self.broken.push(line);
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut plan = Plan::draw(&mut dice);
        plan.break_circuits(&mut Dice::new(seed ^ 0x6272_6561_6b65_7273));
        let intents = plan.intents(&mut dice).into_iter().map(Standing::new).collect();
        let moods = Moods::new(dice.seed(), plan.retry_after_s_max);
        let (wires, agents, disk) = (Dice::new(dice.seed()), Dice::new(dice.seed()), Dice::new(dice.seed()));
        let mut state = State {
            books: Books::new(intents),
            plan,
            moods,
            wires,
            agents,
            disk,
            base_ms: 0,
            began: None,
            trace: Vec::new(),
            broken: Vec::new(),
            stops_at_ms: None,
        };
        let line = format!("seed {seed}: {:?}", state.plan);
        state.note(&line);
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A process begins, inside its runtime.
    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        (state.began, state.stops_at_ms) = (Some(Instant::now()), None);
    }

    /// The process is over.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.base_ms = state.now_ms();
        state.began = None;
    }

    /// The process was killed: of the boundaries the disk's are left.
    pub(crate) fn killed(&self) {
        let later_ms = self.agents(|d| d.range(1, 20_000));
        let mut state = self.lock();
        state.note("killed");
        state.base_ms += later_ms;
        let now_ms = state.now_ms();
        for scope in &mut state.books.scopes {
            let until = scope.durable_until.map_or(0, |wall| START.ms_until(wall));
            scope.told = vec![(now_ms.saturating_sub(1), until)];
            scope.on_wire.clear();
        }
        for task in 0..state.books.cancels_kept.len() {
            if !state.books.cancels_kept[task] {
                state.books.cancelled_at_ms[task] = None;
            }
        }
        for call in &mut state.books.calls {
            (call.not_before_ms, call.retry_at) = (0, None);
        }
    }

    pub(crate) fn wall(&self) -> Wall {
        wall_at(self.now_ms())
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.lock().now_ms()
    }

    pub(crate) fn note(&self, line: impl AsRef<str>) {
        self.lock().note(line.as_ref());
    }

    pub(crate) fn fail(&self, check: &str, message: impl AsRef<str>) {
        self.lock().fail(check, message.as_ref());
    }

    pub(crate) fn wires<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.lock().wires)
    }

    pub(crate) fn agents<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.lock().agents)
    }

    /// Whether the wire has a fault at this point.
    pub(crate) fn wire_fails(&self) -> bool {
        let mut state = self.lock();
        let permille = state.plan.wire_permille;
        state.wires.permille(permille)
    }

    pub(crate) fn mood(&self, who: Caller) -> Mood {
        let mut state = self.lock();
        let ms = state.now_ms();
        let now = Now { mono: ORIGIN.plus_ms(ms), wall: START.plus_ms(ms) };
        state.moods.arrive(now, who)
    }

    pub(crate) fn commit(&self, key: Option<u128>) {
        self.lock().moods.commit(key);
    }

    pub(crate) fn flush_moment(&self) -> Moment {
        let mut state = self.lock();
        let plan = state.plan.clone();
        let dice = &mut state.disk;
        Moment {
            flush_ms: dice.range(0, plan.flush_ms_max),
            fails: dice.permille(plan.store_fails_permille),
            kept: dice.range(0, 1_000),
            told_ms: dice.pick(&[0, 0, 1, 300]),
            ack_ms: if dice.permille(250) { plan.ack_ms_max } else { 0 },
        }
    }

    pub(crate) fn reopen_fails(&self) -> u64 {
        self.lock().plan.reopen_fails
    }

    /// An event entered the journal's queue.
    pub(crate) fn appended(&self, event: &Event, with_content: Option<bool>) {
        let mut state = self.lock();
        if let (Some(action), Some(run)) = (event.action, run_of(&event.fact)) {
            state.books.names(action, run);
        }
        let who = event.action.map(|a| state.books.name(a)).unwrap_or_default();
        let line = format!("  append {} {who} {}", event.seq.0, brief(&event.fact));
        state.note(&line);
        state.check_event(event, with_content);
    }

    /// An event is on the disk.
    pub(crate) fn durable(&self, event: &Event) {
        let mut state = self.lock();
        state.books.durable(event);
    }

    /// Sealed content goes.
    pub(crate) fn forgets(&self, action: ActionId) {
        let mut state = self.lock();
        let name = state.books.name(action);
        if !state.books.ended(action) {
            state.fail("content_is_kept", &format!("{name}: forgotten before its end is durable"));
        }
    }

    pub(crate) fn into_parts(self) -> (Vec<String>, Vec<String>) {
        let mut state = self.lock();
        (std::mem::take(&mut state.trace), std::mem::take(&mut state.broken))
    }
}

pub(crate) fn wall_at(ms: u64) -> Wall {
    START.plus_ms(ms)
}

/// The run names the call.
pub(crate) fn run_of(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::ActionRequested(asked) => Some(asked.run.as_str()),
        Fact::ActionFinished(end) => end.straight.as_ref().map(|s| s.run.as_str()),
        _ => None,
    }
}

fn brief(fact: &Fact) -> String {
    match fact {
        Fact::ActionRequested(_) => "action_requested".into(),
        Fact::ActionSent { attempt } => format!("action_sent #{}", attempt.0),
        Fact::ActionResult(r) => format!(
            "action_result #{} {:?} {:?} {:?} {}",
            r.attempt.0,
            r.evidence,
            r.effect,
            r.status,
            r.transport.as_deref().unwrap_or_default()
        ),
        Fact::RetryScheduled { attempt, wait_ms, reason, .. } => {
            format!("retry_scheduled #{} in {wait_ms} ms: {reason}", attempt.0)
        }
        Fact::RetryStarted { attempt, .. } => format!("retry_started #{}", attempt.0),
        Fact::RetryReturned { attempt, .. } => format!("retry_returned #{}", attempt.0),
        Fact::ScopeUpdated(u) => format!("scope_updated until {:?}", u.retry_not_before.map(|w| w.0 - START.0)),
        Fact::ActionFinished(f) => {
            format!("action_finished {} {:?} {}", f.outcome.as_str(), f.effect, f.reason.as_deref().unwrap_or(""))
        }
        Fact::TaskCancelled { task, .. } => format!("task_cancelled {task}"),
        Fact::RunCancelled { run, .. } => format!("run_cancelled {run}"),
        Fact::ActionCancelled { .. } => "action_cancelled".to_owned(),
        Fact::TaskReopened { task, .. } => format!("task_reopened {task}"),
        Fact::RunReopened { run, .. } => format!("run_reopened {run}"),
        Fact::CallJoined { how, .. } => format!("call_joined {}", how.as_str()),
        Fact::DecisionObserved { would } => format!("decision_observed {would:?}"),
        Fact::LogGap { events_at_most, .. } => format!("log_gap {events_at_most}"),
        Fact::PolicyLoaded { .. } => "policy_loaded".into(),
        Fact::CircuitOpened(opened) => format!("circuit_opened {}", opened.circuit.as_str()),
        Fact::CircuitClosed { circuit, .. } => format!("circuit_closed {}", circuit.as_str()),
        Fact::ReconciliationRequired { attempt, .. } => format!("reconciliation_required #{}", attempt.0),
    }
}
