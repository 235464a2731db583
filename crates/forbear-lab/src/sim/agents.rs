//! The agents: they ask, hang up, ask again under the same key while the first call is open or after it, and repeat keyless
//! writes when told that the effect is unknown, as careless ones do.

use std::sync::Arc;

use forbear_core::command::{Answer, SafeNext};
use forbear_core::event::{KeyOrigin, Outcome};
use forbear_core::ids::{ActionId, Digest, Key};
use forbear_core::input::{Input, Mark, Quota, Request, Whose};
use forbear_core::lane::{Lane, Narrow};
use forbear_core::pacer::Ask;

use super::calls::{CALLS_MAX, Call, Calls, number};
use super::chance::{Rng, Site};
use super::coverage::Seen;
use super::intents::{Intent, TASKS_MAX, rank_index};
use super::world::{Happening, World};

/// An agent whose process is away tries again so much later.
const KNOCK_AGAIN_MS: u64 = 500;
const DAY_MS: u64 = 86_400_000;
const OTHER_CONTENT: Digest = Digest([249; 32]);

/// How a call comes that may repeat another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// With its client's mark, if it is not the first.
    Marked,
    Unmarked,
    /// Under the same name, and something else.
    OtherContent,
}

impl Again {
    /// Most clients mark nothing.
    fn drawn(rng: &mut Rng) -> Self {
        if rng.permille(500) { Self::Unmarked } else { Self::Marked }
    }
}

impl World<'_> {
    pub(super) fn asks(&mut self, index: usize, again: Again) {
        let Some(intent) = self.intents.get(index).filter(|i| i.calls < CALLS_MAX) else { return };
        let action = Calls::action(index, intent.calls + 1);
        let mut rng = self.chance.at(Site::Asks, number(action), 0);
        let Some(home) = self.door(rng.permille(400)) else {
            return self.later(KNOCK_AGAIN_MS, Happening::Asks { intent: index, again });
        };
        let intent = &mut self.intents[index];
        intent.calls += 1;
        let (nth, intent) = (intent.calls, intent.clone());
        // Work of a cancelled task is often given to another agent, under a name of its own.
        let stopped = self.node(home).is_some_and(|n| n.ledger.cancelled[intent.task]);
        let task = if stopped && rng.permille(500) { (intent.task + 1) % TASKS_MAX } else { intent.task };
        if task != intent.task {
            self.cover(Seen::AskedByAnotherTask);
        }
        let mut request = self.request(action, &intent, task);
        request.mark = if nth > 1 && again != Again::Unmarked { Mark::Repeat } else { Mark::First };
        if again == Again::OtherContent {
            request.content_digest = Some(OTHER_CONTENT);
        }
        let deadline = self.now.mono_at(request.deadline);
        self.note(|w| {
            let what = format!("{:?} {} {}", intent.rank, request.scope, request.task);
            let key = request.key.as_ref().map_or("-", |k| k.value.as_str());
            format!("{}a{} asks (intent {index}, call {nth}): {what} key {key}", w.tag(home), action.0)
        });
        if rng.permille(self.plan.leaves_permille) {
            let in_ms = rng.pick(&[0, 5, 50, 2_000, 20_000]);
            self.later(in_ms, Happening::Leaves { action });
        }
        if rng.permille(self.plan.again_permille) {
            let in_ms = rng.pick(&[0, 3, 100, 3_000, 60_000]);
            self.later(in_ms, Happening::AsksAsWell { action });
        }
        self.calls.push(Call::new(index, task, home, request.clone(), self.now.mono, deadline));
        self.admits(home, request);
    }

    /// Which process the agent's connection reaches.
    fn door(&self, rather_the_old: bool) -> Option<u32> {
        let (owner, old) = (self.owner.as_ref(), self.old.as_ref());
        old.filter(|_| rather_the_old).or(owner).or(old).map(|n| n.number)
    }

    fn request(&self, action: ActionId, intent: &Intent, task: usize) -> Request {
        let class = rank_index(intent.rank);
        let policy = &self.plan.policies[self.policy];
        let mut key = intent.key.clone();
        let is_derived = key.as_ref().is_some_and(|k| k.origin == KeyOrigin::Derived);
        if let Some(made) = key.as_mut().filter(|k| k.origin == KeyOrigin::Made) {
            made.value = Key::new(&format!("m{}", action.0));
        }
        Request {
            action,
            task: self.fixtures.tasks[task].clone(),
            run: self.fixtures.run.clone(),
            provider: self.fixtures.provider.clone(),
            scope: self.fixtures.scopes[intent.scope].clone(),
            tenant: intent.tenant.map(|tenant| self.fixtures.tenants[intent.scope][tenant].clone()),
            policy: policy.settings.digest,
            limits: policy.limits,
            quota: self.quota(intent),
            route: self.fixtures.routes[intent.route].clone(),
            class: self.fixtures.classes[class].clone(),
            rank: intent.rank,
            rule: Arc::clone(&policy.rules[class]),
            content_digest: intent.digest,
            content_bytes: 10,
            replayable: intent.replayable,
            body_pending: intent.body_pending,
            key,
            repeatable: intent.repeatable,
            deletes: false,
            early_data: false,
            deadline: self.now.wall.plus_ms(intent.deadline_ms),
            goal: None,
            reference: intent.reference.clone(),
            reference_key: intent.reference.as_deref().map(Key::new).filter(|_| !is_derived),
            mark: Mark::Silent,
            invocation: intent.invocation,
            call_digest: intent.digest.filter(|_| !intent.rank.writes()),
            request_digest: intent.digest,
            run_named: intent.digest.is_some(),
            journal_before: intent.journal_before,
            observe: false,
        }
    }

    fn quota(&self, intent: &Intent) -> Quota {
        let policy = &self.plan.policies[self.policy];
        let narrow = intent.narrow.iter().map(|scope| Narrow {
            scope: self.fixtures.scopes[*scope].clone(),
            max_concurrent_requests: policy.narrow_slots,
            rates: policy.rates(),
        });
        Quota {
            rates: policy.rates(),
            lane: Lane::new(narrow.collect()),
            priority: intent.priority,
            ask: Ask::default(),
        }
    }

    /// The core takes a call in, or not; with it come its limits.
    fn admits(&mut self, home: u32, request: Request) {
        let (action, limits) = (request.action, request.limits);
        self.tell(home, Input::Request(Box::new(request)));
        self.check_admitted(home, action, limits);
    }

    /// The body that was held back came.
    pub(super) fn asks_again(&mut self, action: ActionId) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(action).filter(|c| !c.gone && c.answers == 0) else { return };
        call.request.body_pending = false;
        call.deadline = now.mono_at(call.request.deadline);
        let (home, request) = (call.home, call.request.clone());
        self.note(|_| format!("a{} sent its body", action.0));
        self.admits(home, request);
    }

    /// The same call once more, though nobody told the agent that the first one failed: a second worker, or a client that
    /// does not wait.
    pub(super) fn asks_as_well(&mut self, action: ActionId) {
        let Some((open, index)) = self.calls.get(action).map(|c| (c.is_open(), c.intent)) else { return };
        self.cover(if open { Seen::AskedWhileOpen } else { Seen::AskedOnceMore });
        let intent = &self.intents[index];
        let is_known = intent.is_named() && intent.digest.is_some();
        let writes = intent.rank.writes();
        let mut rng = self.chance.at(Site::Again, number(action), 0);
        let again = if is_known && writes && rng.permille(300) {
            self.cover(Seen::OtherContent);
            Again::OtherContent
        } else {
            Again::drawn(&mut rng)
        };
        let intent = &mut self.intents[index];
        // Equal calls without a name may be meant to be two, unless their client calls them one.
        intent.loose |= !is_known && !intent.is_marked_exactly();
        self.asks(index, again);
    }

    pub(super) fn leaves(&mut self, action: ActionId) {
        let Some(call) = self.calls.get_mut(action).filter(|c| c.is_open()) else { return };
        call.gone = true;
        let (index, home) = (call.intent, call.home);
        self.cover(Seen::AgentLeft);
        self.note(|_| format!("a{} leaves", action.0));
        self.tell(home, Input::AgentLeft { action });
        let mut rng = self.chance.at(Site::Leaves, number(action), 0);
        let intent = &mut self.intents[index];
        if intent.calls >= CALLS_MAX || !rng.permille(500) {
            return;
        }
        let in_ms = rng.pick(&[0, 20, 1_000, 30_000, 30_000, DAY_MS + 60_000]);
        // A repeat of what was not answered is known by its names or its content, for a day.
        intent.loose |= intent.digest.is_none() || in_ms > DAY_MS;
        self.cover(Seen::AskedAfterLeaving);
        self.later(in_ms, Happening::Asks { intent: index, again: Again::drawn(&mut rng) });
    }

    pub(super) fn cancels(&mut self, task: usize) {
        let nth = self.count(Site::Cancel);
        let rather_the_old = self.chance.at(Site::Cancel, nth, 0).permille(300);
        let Some(home) = self.door(rather_the_old) else { return };
        self.cover(Seen::Cancel);
        let name = self.fixtures.tasks[task].clone();
        self.note(|w| format!("{}cancel {name}", w.tag(home)));
        self.stops(home, Whose::Task(name), |call| call.task == task);
        self.stops_agents(task, nth);
    }

    /// Cancels, and remembers whom that stopped.
    fn stops(&mut self, home: u32, whose: Whose, is_of_it: impl Fn(&Call) -> bool) {
        let now = self.now;
        let Some(node) = self.node(home) else { return };
        let is_here = |action| node.core.live_view(now, action).is_some();
        let of_it = self.calls.iter().filter(|c| c.is_open() && is_of_it(c) && is_here(c.request.action));
        let stopped: Vec<ActionId> = of_it.map(|c| c.request.action).collect();
        if let Some(node) = self.node_mut(home) {
            node.ledger.stopped.extend(stopped);
        }
        self.tell(home, Input::Cancel { whose, by: "person".into() });
    }

    pub(super) fn cancels_one(&mut self, of: u64) {
        let Some(home) = self.door(false) else { return };
        let open: Vec<ActionId> = self.calls.iter().filter(|c| c.is_open()).map(|c| c.request.action).collect();
        let Some(action) = open.get(super::plan::index(of) % open.len().max(1)).copied() else { return };
        self.cover(Seen::CancelOne);
        self.note(|w| format!("{}cancel a{}", w.tag(home), action.0));
        self.stops(home, Whose::Action(action), |call| call.request.action == action);
    }

    pub(super) fn cancels_run(&mut self) {
        let Some(home) = self.door(false) else { return };
        self.cover(Seen::CancelRun);
        self.note(|w| format!("{}cancel the run", w.tag(home)));
        let run = self.fixtures.run.clone();
        self.stops(home, Whose::Run(run), |call| call.request.run_named);
    }

    pub(super) fn reopens(&mut self, task: Option<usize>) {
        let Some(home) = self.door(false) else { return };
        let whose = match task {
            Some(task) => Whose::Task(self.fixtures.tasks[task].clone()),
            None => Whose::Run(self.fixtures.run.clone()),
        };
        self.cover(Seen::Reopen);
        self.note(|w| format!("{}reopen {whose:?}", w.tag(home)));
        self.tell(home, Input::Reopen { whose, by: "person".into() });
        // It holds at once, also while the journal does not hear of it.
        if let Some(node) = self.node_mut(home) {
            match task {
                Some(task) => node.ledger.cancelled[task] = false,
                None => node.ledger.run_cancelled = false,
            }
        }
    }

    /// Whoever cancels a task often stops its agents too.
    fn stops_agents(&mut self, task: usize, nth: u64) {
        let of_task = self.calls.iter().filter(|c| c.is_open() && c.task == task);
        let actions: Vec<ActionId> = of_task.map(|c| c.request.action).collect();
        for action in actions {
            let mut rng = self.chance.at(Site::Cancel, nth, number(action) + 1);
            if rng.permille(300) {
                let in_ms = rng.pick(&[1, 20, 1_000]);
                self.later(in_ms, Happening::Leaves { action });
            }
        }
    }

    /// An answer of Forbear's own reached the agent, unless it is gone.
    pub(super) fn answered(&mut self, action: ActionId, answer: &Answer) {
        self.count_answer(action);
        self.cover_outcome(answer.stamp.outcome);
        if answer.about != action {
            self.cover(Seen::Denied);
        }
        let Some(call) = self.calls.get(action).filter(|c| !c.gone) else { return };
        let index = call.intent;
        let Some(intent) = self.intents.get_mut(index).filter(|i| i.calls < CALLS_MAX) else { return };
        let unknown = answer.stamp.outcome == Outcome::OutcomeUnknown;
        let safe = answer.safe_next.contains(&SafeNext::CallAgain);
        if unknown && intent.digest.is_none() {
            // Nothing can tell a repeat of a body that was streamed once.
            intent.loose = true;
        }
        let mut rng = self.chance.at(Site::Answered, number(action), 0);
        if (unknown && rng.permille(600)) || (safe && rng.permille(300)) {
            let wait = answer.retry_after_seconds.unwrap_or(0).saturating_mul(1_000);
            let in_ms = wait + rng.pick(&[0, 100, 10_000, 100_000]);
            self.cover(Seen::AskedAfterAnswer);
            self.later(in_ms, Happening::Asks { intent: index, again: Again::drawn(&mut rng) });
        }
    }

    /// Every agent's connection went with its process. Some ask again.
    pub(super) fn connections_lost(&mut self, home: u32) {
        for call in self.calls.iter_mut().filter(|c| c.home == home) {
            call.on_wire = false;
            call.dead = true;
        }
        let lost: Vec<(ActionId, usize)> = self
            .calls
            .iter_mut()
            .filter(|c| c.home == home && c.is_open())
            .map(|call| {
                call.gone = true;
                call.relaying = false;
                (call.request.action, call.intent)
            })
            .collect();
        for (action, index) in lost {
            let mut rng = self.chance.at(Site::Lost, number(action), 0);
            let intent = &mut self.intents[index];
            if intent.calls >= CALLS_MAX || !rng.permille(500) {
                continue;
            }
            intent.loose |= intent.digest.is_none();
            let in_ms = rng.pick(&[0, 1_000, 30_000]);
            self.cover(Seen::AskedAfterLosing);
            self.later(in_ms, Happening::Asks { intent: index, again: Again::drawn(&mut rng) });
        }
    }
}
