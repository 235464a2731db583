//! The ends of writes' answers on one connection, from the last byte that was handed to hyper to the agent's having it.
//!
//! An end waits until its bytes were given to the socket, and until the agent's kernel has acknowledged them: what lies in
//! our own send buffer is lost with the connection. Then it rests a while, because an agent that has not read its answer
//! shows when it leaves: its connection is reset. It is told once the agent asks for more, closes in order, or stays. Where
//! the connection breaks or closes over bytes that were not acknowledged, or the agent does not take them in time, what was
//! done is perhaps not told.
//!
//! What it cannot see: whether an agent that stays has read what its kernel has acknowledged. Where the platform does not
//! say what was acknowledged, what the kernel has taken counts as that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::told::Receipt;

/// What an end hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The provider's part is over, and the agent has not taken its own at once. Said once, or not at all.
    Waits,
    /// Whether the agent has it all, as far as that shows. The last word.
    Over(bool),
}

/// What an agent shows of what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// It goes on: what it has not acknowledged yet it may still take.
    More,
    /// It closes, and takes nothing that it has not acknowledged.
    Closed,
    /// It has left, and read no more.
    Broken,
}

pub(super) type End = Box<dyn FnMut(Word) + Send>;

/// How long an agent that left may take to show it.
const RESTS: Duration = Duration::from_millis(100);

pub(super) struct Ends {
    waiting: Mutex<Waiting>,
    any: AtomicBool,
    any_held: AtomicBool,
    any_resting: AtomicBool,
    /// Some has not heard yet that it waits.
    any_new: AtomicBool,
    /// Over HTTP/2: nothing was written since the last flush.
    is_flushed: AtomicBool,
    /// Bytes that the socket has taken.
    written_bytes: AtomicU64,
    /// Whose answer nobody takes for so long is told of all the same: nothing is kept for ever.
    untold_max: Duration,
    /// The one that polls an HTTP/2 connection.
    pub(super) poller: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    ends: Vec<Flushing>,
    held: Vec<Held>,
    resting: Vec<Resting>,
    is_over: bool,
}

/// An end over HTTP/1, whose bytes leave with the next flush.
struct Flushing {
    end: End,
    is_new: bool,
}

/// An end over HTTP/2, whose bytes have left once its receipt is gone.
pub(super) struct Held {
    end: End,
    is_new: bool,
    receipt: Weak<Receipt>,
    since: Instant,
    lost: Arc<AtomicBool>,
}

/// An end whose bytes the socket has taken.
struct Resting {
    end: End,
    is_new: bool,
    since: Instant,
    /// What the socket had taken by then: it is delivered once so much is acknowledged.
    upto_bytes: u64,
}

impl Ends {
    pub(super) fn new(untold_max: Duration) -> Self {
        Self {
            waiting: Mutex::default(),
            any: AtomicBool::new(false),
            any_held: AtomicBool::new(false),
            any_resting: AtomicBool::new(false),
            any_new: AtomicBool::new(false),
            is_flushed: AtomicBool::new(false),
            written_bytes: AtomicU64::new(0),
            untold_max,
            poller: AtomicWaker::new(),
        }
    }

    /// Rests after the next flush; is told at once where the connection is over.
    pub(super) fn after_flush(&self, mut end: End) {
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(waiting);
            return end(Word::Over(false));
        }
        waiting.ends.push(Flushing { end, is_new: true });
        self.any.store(true, Ordering::Release);
        self.any_new.store(true, Ordering::Release);
    }

    /// Something was given to the socket, or was to be.
    pub(super) fn written(&self, bytes: usize) {
        self.is_flushed.store(false, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Everything written so far is the kernel's. Whether the agent `has_left` by then is asked only where it matters.
    pub(super) fn flushed(&self, has_left: impl FnOnce() -> bool) {
        self.is_flushed.store(true, Ordering::Relaxed);
        if !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let has_left = has_left();
        let mut waiting = self.lock();
        let ends = std::mem::take(&mut waiting.ends);
        if has_left {
            drop(waiting);
            return ends.into_iter().for_each(|mut flushing| (flushing.end)(Word::Over(false)));
        }
        ends.into_iter().for_each(|flushing| self.rest(&mut waiting, flushing.end, flushing.is_new));
    }

    fn rest(&self, waiting: &mut Waiting, end: End, is_new: bool) {
        let upto_bytes = self.written_bytes.load(Ordering::Relaxed);
        waiting.resting.push(Resting { end, is_new, since: Instant::now(), upto_bytes });
        self.any_resting.store(true, Ordering::Release);
    }

    pub(super) fn any_resting(&self) -> bool {
        self.any_resting.load(Ordering::Acquire)
    }

    /// The agent has shown what becomes of what it was sent. What it has not acknowledged is asked only where it matters.
    pub(super) fn shown(&self, shows: Shows, unacknowledged_bytes: impl FnOnce() -> Option<u64>) {
        if !self.any_resting() {
            return;
        }
        let upto = self.acknowledged(unacknowledged_bytes);
        self.tell_resting(|resting| match shows {
            Shows::Broken => Some(false),
            _ if resting.upto_bytes <= upto => Some(true),
            Shows::Closed => Some(false),
            Shows::More => None,
        });
    }

    /// Ends of agents that have stayed are told once they have it all, or have not for too long.
    pub(super) fn rested(&self, unacknowledged_bytes: impl FnOnce() -> Option<u64>) {
        if !self.any_resting() {
            return;
        }
        let upto = self.acknowledged(unacknowledged_bytes);
        self.tell_resting(|resting| match resting.since.elapsed() {
            since if resting.upto_bytes <= upto => (since >= RESTS).then_some(true),
            since => (since >= self.untold_max).then_some(false),
        });
    }

    fn acknowledged(&self, unacknowledged_bytes: impl FnOnce() -> Option<u64>) -> u64 {
        let written = self.written_bytes.load(Ordering::Relaxed);
        written.saturating_sub(unacknowledged_bytes().unwrap_or(0))
    }

    fn tell_resting(&self, is_told: impl Fn(&Resting) -> Option<bool>) {
        let mut waiting = self.lock();
        let due: Vec<_> = waiting.resting.extract_if(.., |resting| is_told(resting).is_some()).collect();
        self.any_resting.store(!waiting.resting.is_empty(), Ordering::Release);
        drop(waiting);
        for mut resting in due {
            let is_told = is_told(&resting).unwrap_or(false);
            (resting.end)(Word::Over(is_told));
        }
    }

    /// After a poll of the connection: what was not told in it waits for its agent.
    pub(super) fn still_waiting(&self) {
        if !self.any_new.load(Ordering::Acquire) || !self.any_new.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut waiting = self.lock();
        let Waiting { ends, held, resting, .. } = &mut *waiting;
        let new = ends.iter_mut().map(|f| (&mut f.end, &mut f.is_new));
        let new = new.chain(held.iter_mut().map(|h| (&mut h.end, &mut h.is_new)));
        for (end, is_new) in new.chain(resting.iter_mut().map(|r| (&mut r.end, &mut r.is_new))) {
            if std::mem::take(is_new) {
                end(Word::Waits);
            }
        }
    }

    /// Rests once nobody holds the receipt, and what it was held for has left.
    pub(super) fn hold(&self, mut end: End, receipt: Weak<Receipt>, lost: Arc<AtomicBool>) {
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(waiting);
            return end(Word::Over(false));
        }
        waiting.held.push(Held { end, is_new: true, receipt, since: Instant::now(), lost });
        self.any_held.store(true, Ordering::Release);
        self.any_new.store(true, Ordering::Release);
        drop(waiting);
        // Its stream may have read ahead of a connection that has nothing to do.
        self.poller.wake();
    }

    /// Ends whose answers were all queued before now.
    pub(super) fn due(&self) -> Vec<Held> {
        if !self.any_held.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = self.lock();
        let is_due = |held: &mut Held| held.receipt.strong_count() == 0 || held.since.elapsed() >= self.untold_max;
        let due = waiting.held.extract_if(.., is_due).collect();
        self.any_held.store(!waiting.held.is_empty(), Ordering::Release);
        due
    }

    /// A poll that began after them is over.
    pub(super) fn polled(&self, due: Vec<Held>) {
        if due.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        if !self.is_flushed.load(Ordering::Relaxed) && !waiting.is_over {
            waiting.held.extend(due);
            self.any_held.store(true, Ordering::Release);
            return;
        }
        let is_taken = |held: &Held| held.receipt.strong_count() == 0 && !held.lost.load(Ordering::Acquire);
        let is_over = waiting.is_over;
        let (taken, lost): (Vec<_>, Vec<_>) = due.into_iter().partition(|held| !is_over && is_taken(held));
        taken.into_iter().for_each(|held| self.rest(&mut waiting, held.end, held.is_new));
        drop(waiting);
        lost.into_iter().for_each(|mut held| (held.end)(Word::Over(false)));
    }

    /// The connection is over: slots come back, whatever was told.
    pub(super) fn over(&self, shows: Shows, unacknowledged_bytes: impl FnOnce() -> Option<u64>) {
        self.shown(shows, unacknowledged_bytes);
        let mut waiting = self.lock();
        waiting.is_over = true;
        let (ends, held) = (std::mem::take(&mut waiting.ends), std::mem::take(&mut waiting.held));
        drop(waiting);
        let all = ends.into_iter().map(|flushing| flushing.end).chain(held.into_iter().map(|held| held.end));
        all.for_each(|mut end| end(Word::Over(false)));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ends").field("any", &self.any).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;
