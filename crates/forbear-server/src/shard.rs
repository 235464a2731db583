//! The core behind its lock, the journal beside it, and the calls that wait for commands.
//!
//! A visit takes the lock, lets the core decide, puts the events into the journal's outgoing queue and the commands into
//! the mailboxes of the calls they are for: journal order and the order of each call's commands are the order of
//! decisions. What a command asks for is done by its call after the lock was given back. It promises that nothing under the
//! lock waits for disk or network.

mod cancel;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forbear_audit::seal::Sealed;
use forbear_core::advice::Advisable;
use forbear_core::breaker::Opened;
use forbear_core::command::{Command, Commands, Dispatch};
use forbear_core::coordinator::Coordinator;
use forbear_core::event::{Event, Fact};
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{BodyEnd, Input, Request};
use forbear_core::time::Mono;
use forbear_core::view::{LiveView, ScopeView};
use forbear_store::{Batch, Progress};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::gateway::{AnswerCopy, Copies};
use crate::journal::Journal;
use crate::mailbox::Mailbox;
use cancel::Written;

pub use cancel::Decided;

/// Events between two snapshots: a start replays at most so many, and what came while one was taken.
const SNAPSHOT_EVERY_EVENTS: u64 = 200_000;
/// How often a draining shard is asked whether it is done.
const IDLE_LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);

pub struct Shard {
    inner: Mutex<Inner>,
    store: std::sync::OnceLock<Box<dyn Journal>>,
    /// The core's, as of the last visit: read without the lock.
    doubts: AtomicU64,
    clock: Clock,
    /// The next wakeup moved.
    timer: Notify,
    frozen: Notify,
    snapshot_due: Notify,
    /// For whoever waits until something is on the disk.
    written: watch::Sender<Written>,
    tasks: Mutex<Vec<AbortHandle>>,
}

struct Inner {
    core: Coordinator,
    calls: BTreeMap<ActionId, Arc<Mailbox>>,
    /// The answer whose end is being decided on, for those who wait for it too.
    copy: Option<Arc<AnswerCopy>>,
    /// Answers that a marked repeat may ask for again.
    copies: Copies,
    /// Sealed contents of writes whose intent is being decided on.
    contents: BTreeMap<ActionId, Sealed>,
    armed: Option<Mono>,
    events_since_snapshot: u64,
}

impl Inner {
    fn route(&self, command: Command, own: Option<ActionId>, mine: &mut Commands) {
        let action = command.action();
        if let Command::Share { action, of, .. } = &command
            && let Some(copy) = self.copy.as_ref().or_else(|| self.copies.get(*of))
            && let Some(mailbox) = self.calls.get(action)
        {
            mailbox.put_copy(Arc::clone(copy));
        }
        if action.is_some() && action == own {
            mine.push(command);
        } else if let Some(mailbox) = action.and_then(|a| self.calls.get(&a)) {
            mailbox.put(command);
        }
    }
}

impl Shard {
    /// A core that is not yet connected to its journal: [`Shard::connect`] does that.
    #[must_use]
    pub fn new(core: Coordinator, clock: Clock) -> Arc<Self> {
        let inner = Inner {
            core,
            calls: BTreeMap::new(),
            copy: None,
            copies: Copies::default(),
            contents: BTreeMap::new(),
            armed: None,
            events_since_snapshot: 0,
        };
        Arc::new(Self {
            doubts: AtomicU64::new(inner.core.doubts()),
            inner: Mutex::new(inner),
            store: std::sync::OnceLock::new(),
            clock,
            timer: Notify::new(),
            frozen: Notify::new(),
            snapshot_due: Notify::new(),
            written: watch::Sender::default(),
            tasks: Mutex::default(),
        })
    }

    /// Gives the journal, writes what recovery decided, and starts the timer, the thaw and the snapshots.
    pub fn connect(self: &Arc<Self>, store: Box<dyn Journal>, recovered: Commands) {
        if self.store.set(store).is_err() {
            return;
        }
        let mut inner = self.lock();
        self.settle(&mut inner, recovered, None);
        drop(inner);
        self.start_upkeep();
    }

    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A new call. Its first commands are handed back; later ones come to its mailbox, until [`Shard::hang_up`].
    pub fn admit(&self, request: Box<Request>, content: Option<Sealed>, mailbox: &Arc<Mailbox>) -> Commands {
        let action = request.action;
        let mut inner = self.lock();
        if let Some(content) = content {
            inner.contents.insert(action, content);
        }
        inner.calls.insert(action, Arc::clone(mailbox));
        let now = self.clock.now();
        let commands = inner.core.handle(now, Input::Request(request));
        let own = self.settle(&mut inner, commands, Some(action));
        inner.contents.remove(&action);
        own
    }

    /// As the core's: whether news of an agent's leaving would change what becomes of this call.
    #[must_use]
    pub fn may_repeat_one_who_leaves(&self, request: &Request) -> bool {
        self.lock().core.may_repeat_one_who_leaves(request)
    }

    /// Something happened to a call; its own next commands are handed back in order.
    pub fn tell(&self, action: ActionId, input: Input) -> Commands {
        self.visit(Some(action), input)
    }

    /// Something happened that is no call's own.
    pub fn note(&self, input: Input) {
        let _ = self.visit(None, input);
    }

    /// All of the answer that a call relays was read, and its agent takes it yet. Whoever waits for it gets the copy now, and
    /// who comes meanwhile too.
    pub fn answer_read(&self, action: ActionId, attempt: AttemptNo, end: BodyEnd, copy: Option<Arc<AnswerCopy>>) {
        let mut inner = self.lock();
        let now = self.clock.now();
        if let Some(copy) = copy {
            inner.copies.keep_for_the_flight(action, copy);
        }
        let commands = inner.core.handle(now, Input::AnswerRead { action, attempt, end });
        self.settle(&mut inner, commands, None);
    }

    /// The body that a call relayed has ended, and with it the call. Whoever waits for the same answer gets the copy.
    pub fn ended(
        &self,
        action: ActionId,
        attempt: AttemptNo,
        end: BodyEnd,
        copy: Option<Arc<AnswerCopy>>,
        may_come_again: bool,
    ) {
        let mut inner = self.lock();
        let now = self.clock.now();
        if let Some(copy) = copy.as_ref().filter(|_| may_come_again) {
            inner.copies.keep(now.mono, action, Arc::clone(copy));
        }
        inner.copy = copy;
        inner.copies.over(action);
        let commands = inner.core.handle(now, Input::Ended { action, attempt, end });
        inner.calls.remove(&action);
        self.settle(&mut inner, commands, None);
        inner.copy = None;
    }

    /// The call takes no more commands.
    pub fn hang_up(&self, action: ActionId) {
        self.lock().calls.remove(&action);
    }

    /// Whether an attempt may still leave, asked right before its first byte.
    pub fn confirm_send(&self, dispatch: &Dispatch) -> bool {
        // The usual case, and every visit that could say no has counted itself before it gave the lock back.
        if self.doubts.load(Ordering::Acquire) == dispatch.doubts {
            return true;
        }
        let (action, attempt) = (dispatch.action, dispatch.attempt);
        let mut inner = self.lock();
        let mut commands = Commands::new();
        let now = self.clock.now();
        let may = inner.core.confirm_send(now, action, attempt, &mut commands);
        if !commands.is_empty() {
            self.settle(&mut inner, commands, None);
        }
        may
    }

    /// What the run of a call is told with the answer that is about to be relayed.
    pub fn advise(&self, action: ActionId, asked: &Advisable, unchanged: Option<u64>) -> Option<Arc<str>> {
        let now = self.clock.now();
        self.lock().core.advise(now, action, asked, unchanged)
    }

    #[must_use]
    pub fn not_ready(&self) -> Option<String> {
        self.lock().core.not_ready().map(str::to_owned)
    }

    #[must_use]
    pub fn scopes(&self, max: usize) -> Vec<ScopeView> {
        let now = self.clock.now();
        self.lock().core.scopes_view(now, max)
    }

    #[must_use]
    pub fn live_action(&self, action: ActionId) -> Option<LiveView> {
        let now = self.clock.now();
        self.lock().core.placed_view(now, action)
    }

    /// What waits or is on the wire, oldest first.
    #[must_use]
    pub fn live(&self, max: usize, wanted: impl Fn(&Request) -> bool) -> Vec<LiveView> {
        let now = self.clock.now();
        self.lock().core.live_views(now, max, wanted)
    }

    #[must_use]
    pub fn circuits(&self, max: usize) -> Vec<Opened> {
        self.lock().core.circuits(max)
    }

    /// Whether somebody still waits for the action's result.
    #[must_use]
    pub fn is_heard(&self, action: ActionId) -> bool {
        self.lock().core.is_heard(action)
    }

    #[must_use]
    pub fn live_actions(&self) -> usize {
        self.lock().core.live_actions()
    }

    /// Calls that commands may still come for.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.lock().calls.len()
    }

    /// Ready when nothing is live any more.
    pub async fn idle(&self) {
        let mut look = tokio::time::interval(IDLE_LOOK_EVERY);
        while self.live_actions() > 0 {
            look.tick().await;
        }
    }

    pub fn drain(&self) {
        self.note(Input::Drain);
    }

    pub fn drain_over(&self) {
        self.note(Input::DrainOver);
    }

    /// The store's word from its writer thread.
    pub fn progress(&self, progress: Progress) {
        match progress {
            Progress::Durable { seq, over_limit, .. } => {
                let mut inner = self.lock();
                let now = self.clock.now();
                let mut commands = inner.core.handle(now, Input::StoreFull(over_limit));
                commands.extend(inner.core.handle(now, Input::Durable { seq }));
                self.settle(&mut inner, commands, None);
                drop(inner);
                self.written.send_modify(|w| w.reached(seq));
            }
            Progress::Failed { error, .. } => {
                tracing::error!(%error, "the journal cannot be written; no write is sent until it can");
                self.written.send_modify(Written::failed);
                self.note(Input::AppendFailed { why: error.to_string() });
                self.frozen.notify_one();
            }
        }
    }

    fn visit(&self, own: Option<ActionId>, input: Input) -> Commands {
        let mut inner = self.lock();
        let now = self.clock.now();
        let commands = inner.core.handle(now, input);
        self.settle(&mut inner, commands, own)
    }

    /// Events go to the journal in order, commands to their calls; those of the caller's own call are handed back.
    fn settle(&self, inner: &mut Inner, commands: Commands, own: Option<ActionId>) -> Commands {
        let mut mine = Commands::new();
        let mut batch = Batch { behind: true, ..Batch::default() };
        let mut forget = Vec::new();
        for command in commands {
            match command {
                Command::Append { event, behind } => {
                    batch.behind &= behind;
                    take_content(inner, &event, &mut batch);
                    batch.events.push(*event);
                }
                Command::ForgetContent { action } => forget.push(action),
                command => inner.route(command, own, &mut mine),
            }
        }
        if let Some(store) = self.store.get() {
            self.append(inner, &**store, batch, own, &mut mine);
            for action in forget {
                // A full queue keeps the content a while longer; it stays sealed.
                let _ = store.delete_content(action);
            }
        }
        self.arm(inner);
        self.doubts.store(inner.core.doubts(), Ordering::Release);
        mine
    }

    fn append(&self, inner: &mut Inner, store: &dyn Journal, batch: Batch, own: Option<ActionId>, mine: &mut Commands) {
        if batch.events.is_empty() {
            return;
        }
        inner.events_since_snapshot += batch.events.len() as u64;
        if inner.events_since_snapshot >= SNAPSHOT_EVERY_EVENTS {
            inner.events_since_snapshot = 0;
            self.snapshot_due.notify_one();
        }
        let Err(error) = store.append(batch) else { return };
        tracing::error!(%error, "the journal takes nothing more; no write is sent until it does");
        self.written.send_modify(Written::failed);
        let now = self.clock.now();
        let why = store.failure().map_or_else(|| error.to_string(), |failure| failure.to_string());
        for command in inner.core.handle(now, Input::AppendFailed { why }) {
            inner.route(command, own, mine);
        }
        self.frozen.notify_one();
    }

    fn arm(&self, inner: &mut Inner) {
        let next = inner.core.next_wakeup().map(|(at, _)| at);
        if next != inner.armed {
            let sooner = match (next, inner.armed) {
                (Some(next), Some(armed)) => next < armed,
                (Some(_), None) => true,
                (None, _) => false,
            };
            inner.armed = next;
            if sooner {
                self.timer.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic under the lock is a defect of the core; its state is still the best there is, and the journal's rules
        // hold without it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The content goes into the same transaction as the intent.
fn take_content(inner: &mut Inner, event: &Event, batch: &mut Batch) {
    if let (Fact::ActionRequested(_), Some(action)) = (&event.fact, event.action)
        && let Some(sealed) = inner.contents.remove(&action)
    {
        batch.contents.push((action, sealed));
    }
}
