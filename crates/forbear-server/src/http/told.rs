//! Ends that are told only once the bytes before them were taken by the agent's socket.
//!
//! A write that is on record as done is one whose agent knows it: were the end told when the last piece was handed to
//! hyper, a kill just then would leave it so, and the agent without its answer. It would ask again, and act twice.
//!
//! Over HTTP/1 an end then rests a while: an agent that left without having read its answer shows by its connection, which is
//! closed before the answer came, or reset after it. It is told once the agent asks for more, closes in order, or stays.
//!
//! Over HTTP/2 a piece may wait in h2 for the agent's window. Each piece of a write's answer holds its [`Receipt`], and so
//! does the body, which hyper keeps until the frame that ends the answer is queued. Once nobody holds it, the end is told
//! after a poll of the connection that began later and left nothing unflushed. A piece that was dropped before it was taken, as
//! when the stream is reset, was lost: then, and where the connection ends first, the agent counts as gone, and what it did as
//! perhaps not told. What this cannot see over HTTP/2: whether an agent has read what its socket has taken.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::incoming::Shared;

/// What an end hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The provider's part is over, and the agent has not taken its own at once. Said once, or not at all.
    Waits,
    /// Whether the agent has it all, as far as that shows. The last word.
    Over(bool),
}

type End = Box<dyn FnMut(Word) + Send>;

/// How long an agent that left may take to show it.
const RESTS: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Ends {
    waiting: Mutex<Waiting>,
    any: AtomicBool,
    any_held: AtomicBool,
    any_resting: AtomicBool,
    /// Some has not heard yet that it waits.
    any_new: AtomicBool,
    /// Over HTTP/2: nothing was written since the last flush.
    is_flushed: AtomicBool,
    /// The one that polls an HTTP/2 connection.
    poller: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    ends: Vec<Flushing>,
    held: Vec<Held>,
    resting: Vec<(Flushing, Instant)>,
    is_over: bool,
}

/// An end over HTTP/1, told with the next flush.
struct Flushing {
    end: End,
    is_new: bool,
}

/// An end over HTTP/2, told once its receipt is gone.
struct Held {
    end: End,
    is_new: bool,
    receipt: Weak<Receipt>,
    since: Instant,
    lost: Arc<AtomicBool>,
}

/// Held by whatever stands between an answer and the wire.
#[derive(Debug)]
pub(super) struct Receipt {
    shared: Arc<Shared>,
    /// Some piece was dropped before it was taken.
    lost: Arc<AtomicBool>,
}

/// Bytes of an answer on their way to the wire, which know whether all of them were taken.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    receipt: Option<Arc<Receipt>>,
}

impl Receipt {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, lost: Arc::default() })
    }

    /// Told once this is held by nobody, and what it was held for has left.
    pub(super) fn after(self: &Arc<Self>, end: End) {
        self.shared.ends.hold(end, Arc::downgrade(self), Arc::clone(&self.lost));
    }

    /// Something of it will not be taken.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl Drop for Receipt {
    /// It may be h2 that lets go of the last piece, with its lock held: the end is told elsewhere.
    fn drop(&mut self) {
        self.shared.ends.poller.wake();
    }
}

impl Piece {
    /// The bytes, which hold the receipt until they are dropped.
    pub(super) fn new(bytes: Bytes, receipt: Option<&Arc<Receipt>>) -> Self {
        Self { bytes, receipt: receipt.cloned() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, taken: usize) {
        self.bytes.advance(taken);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.as_ref().filter(|_| self.bytes.has_remaining()) {
            receipt.lose();
        }
    }
}

/// An HTTP/2 connection that tells ends between its polls.
pub(super) struct Telling<'c, C> {
    pub(super) connection: Pin<&'c mut C>,
    pub(super) shared: Arc<Shared>,
    /// Whose end nobody takes for so long is told all the same: who does not read its answer holds a slot.
    pub(super) untold_max: Duration,
}

impl<C: Future> Future for Telling<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        let ends = &this.shared.ends;
        ends.poller.register(cx.waker());
        let due = ends.due(this.untold_max);
        let polled = this.connection.as_mut().poll(cx);
        ends.polled(due);
        ends.still_waiting();
        polled
    }
}

impl Ends {
    /// Told with the next flush; at once where the connection is over.
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

    /// Everything written so far is the kernel's. Whether the agent `has_left` by then is asked only where it matters.
    pub(super) fn flushed(&self, has_left: impl FnOnce() -> bool) {
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
        let now = Instant::now();
        waiting.resting.extend(ends.into_iter().map(|flushing| (flushing, now)));
        self.any_resting.store(true, Ordering::Release);
    }

    pub(super) fn any_resting(&self) -> bool {
        self.any_resting.load(Ordering::Acquire)
    }

    /// The agent has shown what became of what it was sent: it goes on, or it is gone.
    pub(super) fn shown(&self, is_told: bool) {
        if self.any_resting() {
            self.wake_up(is_told, |_| true);
        }
    }

    /// Ends of agents that have stayed are told.
    pub(super) fn rested(&self) {
        if self.any_resting() {
            self.wake_up(true, |since| since.elapsed() >= RESTS);
        }
    }

    fn wake_up(&self, is_told: bool, is_due: impl Fn(&Instant) -> bool) {
        let mut waiting = self.lock();
        let due: Vec<_> = waiting.resting.extract_if(.., |(_, since)| is_due(since)).collect();
        self.any_resting.store(!waiting.resting.is_empty(), Ordering::Release);
        drop(waiting);
        due.into_iter().for_each(|(mut flushing, _)| (flushing.end)(Word::Over(is_told)));
    }

    /// After a poll of the connection: what was not told in it waits for its agent.
    pub(super) fn still_waiting(&self) {
        if !self.any_new.load(Ordering::Acquire) || !self.any_new.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut waiting = self.lock();
        let Waiting { ends, held, resting, .. } = &mut *waiting;
        let new = ends.iter_mut().chain(resting.iter_mut().map(|(f, _)| f)).map(|f| (&mut f.end, &mut f.is_new));
        for (end, is_new) in new.chain(held.iter_mut().map(|h| (&mut h.end, &mut h.is_new))) {
            if std::mem::take(is_new) {
                end(Word::Waits);
            }
        }
    }

    fn hold(&self, mut end: End, receipt: Weak<Receipt>, lost: Arc<AtomicBool>) {
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

    /// Something was given to the socket, or was to be.
    pub(super) fn written(&self) {
        self.is_flushed.store(false, Ordering::Relaxed);
    }

    /// All that was given to an HTTP/2 connection's socket is the kernel's.
    pub(super) fn all_flushed(&self) {
        self.is_flushed.store(true, Ordering::Relaxed);
    }

    /// Ends whose answers were all queued before now.
    fn due(&self, untold_max: Duration) -> Vec<Held> {
        if !self.any_held.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut waiting = self.lock();
        let is_due = |held: &mut Held| held.receipt.strong_count() == 0 || held.since.elapsed() >= untold_max;
        let due = waiting.held.extract_if(.., is_due).collect();
        self.any_held.store(!waiting.held.is_empty(), Ordering::Release);
        due
    }

    /// A poll that began after them is over.
    fn polled(&self, due: Vec<Held>) {
        if due.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        let is_over = waiting.is_over;
        if self.is_flushed.load(Ordering::Relaxed) || is_over {
            drop(waiting);
            return due.into_iter().for_each(|mut held| {
                let is_taken = held.receipt.strong_count() == 0 && !held.lost.load(Ordering::Acquire);
                (held.end)(Word::Over(is_taken && !is_over));
            });
        }
        waiting.held.extend(due);
        self.any_held.store(true, Ordering::Release);
    }

    /// The connection is over: slots come back, whatever was told. What rests was taken by the kernel at least.
    pub(super) fn over(&self) {
        self.shown(true);
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
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A connection over HTTP/2 whose polls change nothing.
    fn poll_once(shared: &Arc<Shared>) {
        let mut connection = std::pin::pin!(std::future::pending::<()>());
        let untold_max = Duration::from_secs(150);
        let mut telling = Telling { connection: connection.as_mut(), shared: Arc::clone(shared), untold_max };
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut telling).poll(&mut cx).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn over_http_2_an_end_waits_for_the_last_piece_and_for_a_flush_but_not_for_ever() {
        let (shared, told, all) = (Shared::new(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let many = || told.load(Ordering::Relaxed);
        let answer = || {
            let (receipt, told, told_all) = (Receipt::new(Arc::clone(&shared)), Arc::clone(&told), Arc::clone(&all));
            let piece = Piece::new(Bytes::from_static(b"ok"), Some(&receipt));
            receipt.after(Box::new(move |word| {
                told.fetch_add(u32::from(word != Word::Waits), Ordering::Relaxed);
                told_all.fetch_add(u32::from(word == Word::Over(true)), Ordering::Relaxed);
            }));
            piece
        };
        let mut piece = answer();
        shared.ends.all_flushed();
        poll_once(&shared);
        assert_eq!(many(), 0, "h2 still has its piece");
        piece.advance(2);
        drop(piece);
        shared.ends.written();
        poll_once(&shared);
        assert_eq!(many(), 0, "the socket has not taken it");
        shared.ends.all_flushed();
        poll_once(&shared);
        poll_once(&shared);
        assert_eq!((many(), all.load(Ordering::Relaxed)), (1, 1));
        let _unread = answer();
        tokio::time::advance(Duration::from_secs(149)).await;
        poll_once(&shared);
        assert_eq!(many(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        poll_once(&shared);
        assert_eq!(many(), 2, "who reads nothing holds no slot for ever");
        let _unsent = answer();
        shared.ends.over();
        assert_eq!(many(), 3);
        drop(answer());
        assert_eq!((many(), all.load(Ordering::Relaxed)), (4, 1), "what nobody took was not told");
    }

    #[test]
    fn an_end_is_told_once_with_the_flush_or_when_all_is_over() {
        let (ends, told) = (Ends::default(), Arc::new(AtomicU32::new(0)));
        let end = || {
            let told = Arc::clone(&told);
            Box::new(move |word| {
                told.fetch_add(if word == Word::Waits { 100 } else { 1 }, Ordering::Relaxed);
            }) as End
        };
        let many = || told.load(Ordering::Relaxed);
        ends.flushed(|| false);
        ends.after_flush(end());
        assert_eq!(many(), 0);
        ends.flushed(|| false);
        ends.flushed(|| false);
        ends.rested();
        assert_eq!(many(), 0, "its agent may have left unread what was sent");
        ends.shown(true);
        assert_eq!(many(), 1);
        ends.after_flush(end());
        ends.still_waiting();
        ends.still_waiting();
        assert_eq!(many(), 101, "it waits, which is said once");
        ends.over();
        assert_eq!(many(), 102);
        ends.after_flush(end());
        assert_eq!(many(), 103);
    }
}
