//! Wakes that a task gives itself. Where one task drives both ends of a channel (a connection, and the answer that comes
//! through it), moving one end wakes the other, which is the task that is running already: the runtime would queue it once
//! more and rouse another worker for it, and that costs more than the call. Here such a wake only says: look again.
//!
//! It promises that no wake is lost: what comes while nobody looks goes to the task that looked last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Looks within one poll; then the task gives way to others and is woken as usual.
const LOOKS_MAX: usize = 16;

/// Nobody looks: a wake is for the task.
const AWAY: u8 = 0;
/// Somebody looks, and has not been woken since.
const LOOKING: u8 = 1;
/// Woken since somebody began to look, or since the task was woken.
const WOKEN: u8 = 2;

#[derive(Default)]
struct Signal {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == AWAY {
            self.task.wake();
        }
    }
}

pub(super) struct Inward {
    signal: Arc<Signal>,
    waker: Waker,
}

impl Default for Inward {
    fn default() -> Self {
        let signal = Arc::new(Signal::default());
        Self { waker: Waker::from(Arc::clone(&signal)), signal }
    }
}

impl Inward {
    /// Looks until something is ready or nothing was woken by looking.
    pub(super) fn poll<T>(&self, cx: &mut Context<'_>, mut look: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        // Before the first look, so that what is woken from here on is either seen by it or wakes the right task.
        self.signal.task.register(cx.waker());
        let mut inward = Context::from_waker(&self.waker);
        for _ in 0..LOOKS_MAX {
            self.signal.state.store(LOOKING, Ordering::Release);
            let looked = look(&mut inward);
            let quiet = self.signal.state.compare_exchange(LOOKING, AWAY, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if looked.is_ready() || quiet {
                return looked;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::{Inward, LOOKS_MAX};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task() -> (Arc<Woken>, Waker) {
        let woken = Arc::new(Woken::default());
        (Arc::clone(&woken), Waker::from(woken))
    }

    #[test]
    fn a_task_that_wakes_itself_looks_again_and_is_not_queued() {
        let ((woken, task), inward) = (task(), Inward::default());
        let mut looks = 0;
        let looked = inward.poll(&mut Context::from_waker(&task), |cx| {
            looks += 1;
            if looks == 3 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert!(looked.is_ready());
        assert_eq!((looks, woken.0.load(Ordering::Relaxed)), (3, 0));
    }

    #[test]
    fn what_comes_while_nobody_looks_wakes_the_task_that_looked_last() {
        let inward = Inward::default();
        let ((first, a), (last, b)) = (task(), task());
        let mut kept = None;
        for task in [&a, &b] {
            let looked = inward.poll(&mut Context::from_waker(task), |cx| {
                kept = Some(cx.waker().clone());
                Poll::<()>::Pending
            });
            assert!(looked.is_pending());
        }
        let waker = kept.unwrap();
        waker.wake_by_ref();
        // It has been woken and has not looked since.
        waker.wake_by_ref();
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        let looked = inward.poll(&mut Context::from_waker(&b), |_| Poll::<()>::Pending);
        assert!(looked.is_pending());
        waker.wake();
        assert_eq!(last.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn one_that_never_rests_gives_way() {
        let ((woken, task), inward) = (task(), Inward::default());
        let mut looks = 0;
        let looked = inward.poll(&mut Context::from_waker(&task), |cx| {
            looks += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(looked.is_pending());
        assert_eq!((looks, woken.0.load(Ordering::Relaxed)), (LOOKS_MAX, 1));
    }
}
