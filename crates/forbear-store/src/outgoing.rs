//! The outgoing queue: what was decided and is not yet durable. It is pushed to under the shard's lock, so it only ever
//! takes a short lock of its own and never waits for the disk.
//!
//! It is bounded in bytes and refuses above. Batches that may follow behind do not wake the writer; they leave with the
//! next one that does, after the flush interval, or when enough of them have gathered.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forbear_audit::seal::Sealed;
use forbear_core::event::Event;
use forbear_core::ids::ActionId;

use crate::error::StoreError;
use crate::options::{CONTENT_BYTES_MAX, Options};
use crate::writer::Command;

/// What one decision has to remember.
#[derive(Debug, Default)]
pub struct Batch {
    /// In order, numbered without a gap from the last one given.
    pub events: Vec<Event>,
    /// Stored in the same transaction.
    pub contents: Vec<(ActionId, Sealed)>,
    /// Nobody waits for this to be durable.
    pub behind: bool,
}

/// Events that are gathered into one batch where nobody waits for any of them. What the writer frees one by one was
/// allocated by other threads, which costs both.
const GATHERED_EVENTS_MAX: usize = 64;

impl Batch {
    /// Whether another one may as well be part of this one.
    fn takes(&self, next: &Self, group_bytes_max: usize) -> bool {
        let is_plain = |b: &Self| b.behind && b.contents.is_empty();
        let fits = self.events.len() + next.events.len() <= GATHERED_EVENTS_MAX
            && weight(self) + weight(next) <= group_bytes_max;
        is_plain(self) && is_plain(next) && fits
    }
}

/// Why a batch was not taken. The caller's state must not go on as if it had been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("too much waits to become durable")]
    Full,
    #[error("event {found} was given where {expected} comes next")]
    OutOfOrder { expected: u64, found: u64 },
    #[error("a sealed content of {bytes} bytes is more than is stored")]
    TooLarge { bytes: usize },
    /// An append failed earlier; the journal must be read again first.
    #[error("the store accepts nothing until it was opened again")]
    Stopped,
}

/// What an event is counted as in memory, before it was written out: most are shorter.
const EVENT_BYTES_ASSUMED: usize = 512;

pub(crate) struct Outgoing {
    state: Mutex<State>,
    wake: Condvar,
    bytes_max: usize,
    behind_bytes_max: usize,
    group_bytes_max: usize,
    flush: Duration,
}

struct State {
    batches: VecDeque<Batch>,
    deletes: Vec<ActionId>,
    commands: VecDeque<(u64, Command)>,
    bytes: usize,
    /// A batch that somebody waits for is among them.
    urgent: bool,
    last_seq: u64,
    phase: Phase,
    /// The writer waits without an end.
    asleep: bool,
    /// The writer waits, with an end or without.
    waiting: bool,
}

#[derive(Clone)]
enum Phase {
    Open,
    Closing,
    Stopped(StoreError),
}

/// What the writer does next.
pub(crate) enum Work {
    Group { batches: Vec<Batch>, deletes: Vec<ActionId> },
    Command(Command),
    Close,
}

impl Outgoing {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            state: Mutex::new(State {
                batches: VecDeque::new(),
                deletes: Vec::new(),
                commands: VecDeque::new(),
                bytes: 0,
                urgent: false,
                last_seq: 0,
                phase: Phase::Stopped(StoreError::Stopped { message: "it is not open yet".into() }),
                asleep: false,
                waiting: false,
            }),
            wake: Condvar::new(),
            bytes_max: options.outgoing_bytes_max,
            behind_bytes_max: options.behind_bytes_max,
            group_bytes_max: options.group_bytes(),
            flush: Duration::from_millis(options.behind_flush_ms),
        }
    }

    /// Begins to accept, after the event that is the last durable one.
    pub(crate) fn open(&self, last_seq: u64) {
        let mut state = self.lock();
        state.last_seq = last_seq;
        state.phase = Phase::Open;
    }

    pub(crate) fn append(&self, mut batch: Batch) -> Result<(), AppendError> {
        let mut weight = weight(&batch);
        if let Some((_, sealed)) = batch.contents.iter().find(|(_, c)| c.as_bytes().len() > CONTENT_BYTES_MAX) {
            return Err(AppendError::TooLarge { bytes: sealed.as_bytes().len() });
        }
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Open) {
            return Err(AppendError::Stopped);
        }
        if state.bytes.saturating_add(weight) > self.bytes_max && !state.batches.is_empty() {
            return Err(AppendError::Full);
        }
        state.last_seq = batch.events.iter().try_fold(state.last_seq, |last, event| {
            let expected = last.saturating_add(1);
            let found = event.seq.0;
            if found == expected { Ok(found) } else { Err(AppendError::OutOfOrder { expected, found }) }
        })?;
        state.urgent |= !batch.behind || state.bytes + weight >= self.behind_bytes_max;
        match state.batches.back_mut().filter(|last| last.takes(&batch, self.group_bytes_max)) {
            Some(last) => {
                last.events.append(&mut batch.events);
                weight -= size_of::<Batch>();
            }
            None => state.batches.push_back(batch),
        }
        state.bytes += weight;
        self.wake_for(state);
        Ok(())
    }

    pub(crate) fn delete(&self, action: ActionId) -> Result<(), AppendError> {
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Open) {
            return Err(AppendError::Stopped);
        }
        state.deletes.push(action);
        state.bytes += size_of::<ActionId>();
        state.urgent |= state.bytes >= self.behind_bytes_max;
        self.wake_for(state);
        Ok(())
    }

    /// Runs after all that was appended before it.
    pub(crate) fn command(&self, command: Command) -> Result<(), StoreError> {
        let mut state = self.lock();
        match &state.phase {
            Phase::Open => {}
            Phase::Closing => return Err(StoreError::Stopped { message: "it is closing".into() }),
            Phase::Stopped(error) => return Err(StoreError::Stopped { message: error.to_string() }),
        }
        let after = state.last_seq;
        state.commands.push_back((after, command));
        state.urgent = true;
        self.wake_for(state);
        Ok(())
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Closing;
        }
        state.urgent = true;
        self.wake_for(state);
    }

    /// Ends all acceptance and drops what is queued: none of it is durable.
    pub(crate) fn stop(&self, error: StoreError) {
        let mut state = self.lock();
        state.phase = Phase::Stopped(error);
        state.batches.clear();
        state.deletes.clear();
        state.commands.clear();
        state.bytes = 0;
        state.urgent = false;
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.lock().phase, Phase::Open)
    }

    pub(crate) fn failure(&self) -> Option<StoreError> {
        match &self.lock().phase {
            Phase::Stopped(error) => Some(error.clone()),
            Phase::Open | Phase::Closing => None,
        }
    }

    /// For the writer: waits for work. `durable_seq` says which commands' turn it is.
    pub(crate) fn next(&self, durable_seq: u64) -> Work {
        let mut state = self.lock();
        // After a group the writer stays for one more interval, so that a stream of reads need not wake it.
        let mut linger = true;
        loop {
            if state.commands.front().is_some_and(|(after, _)| *after <= durable_seq)
                && let Some((_, command)) = state.commands.pop_front()
            {
                return Work::Command(command);
            }
            let idle = state.batches.is_empty() && state.deletes.is_empty();
            if state.urgent && !idle {
                return self.take(&mut state);
            }
            if matches!(state.phase, Phase::Closing) && idle {
                return Work::Close;
            }
            state.urgent &= !idle;
            let timed = linger || !idle;
            (state.waiting, state.asleep) = (true, !timed);
            if timed {
                let (next, timeout) = self.wake.wait_timeout(state, self.flush).unwrap_or_else(PoisonError::into_inner);
                state = next;
                linger = false;
                if timeout.timed_out() {
                    let late = !state.batches.is_empty() || !state.deletes.is_empty();
                    state.urgent |= late;
                }
            } else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            (state.waiting, state.asleep) = (false, false);
        }
    }

    fn take(&self, state: &mut State) -> Work {
        let mut batches = Vec::with_capacity(state.batches.len());
        let mut bytes = 0;
        while let Some(batch) = state.batches.front() {
            let weight = weight(batch);
            if bytes > 0 && bytes + weight > self.group_bytes_max {
                break;
            }
            bytes += weight;
            batches.extend(state.batches.pop_front());
        }
        let deletes = std::mem::take(&mut state.deletes);
        state.bytes = state.bytes.saturating_sub(bytes + deletes.len() * size_of::<ActionId>());
        state.urgent = !state.batches.is_empty() || matches!(state.phase, Phase::Closing);
        Work::Group { batches, deletes }
    }

    fn wake_for(&self, state: MutexGuard<'_, State>) {
        let wake = state.asleep || (state.waiting && state.urgent);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn weight(batch: &Batch) -> usize {
    let contents: usize = batch.contents.iter().map(|(_, sealed)| sealed.as_bytes().len()).sum();
    batch.events.len() * EVENT_BYTES_ASSUMED + contents + size_of::<Batch>()
}
