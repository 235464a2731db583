//! Ends that are told only once the bytes before them were taken by the agent's socket.
//!
//! A write that is on record as done is one whose agent knows it: were the end told when the last piece was handed to
//! hyper, a kill just then would leave it so, and the agent without its answer. It would ask again, and act twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type End = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct Ends {
    waiting: Mutex<Waiting>,
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    ends: Vec<End>,
    is_over: bool,
}

impl Ends {
    /// Told with the next flush; at once where the connection is over.
    pub(super) fn after_flush(&self, end: End) {
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(waiting);
            return end();
        }
        waiting.ends.push(end);
        self.any.store(true, Ordering::Release);
    }

    /// Everything written so far is the kernel's.
    pub(super) fn flushed(&self) {
        if self.any.swap(false, Ordering::AcqRel) {
            let ends = std::mem::take(&mut self.lock().ends);
            ends.into_iter().for_each(|end| end());
        }
    }

    /// The connection is over: slots come back, whatever was told.
    pub(super) fn over(&self) {
        let mut waiting = self.lock();
        waiting.is_over = true;
        let ends = std::mem::take(&mut waiting.ends);
        drop(waiting);
        ends.into_iter().for_each(|end| end());
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

    #[test]
    fn an_end_is_told_once_with_the_flush_or_when_all_is_over() {
        let (ends, told) = (Ends::default(), Arc::new(AtomicU32::new(0)));
        let end = || {
            let told = Arc::clone(&told);
            Box::new(move || {
                told.fetch_add(1, Ordering::Relaxed);
            }) as End
        };
        let many = || told.load(Ordering::Relaxed);
        ends.flushed();
        ends.after_flush(end());
        assert_eq!(many(), 0);
        ends.flushed();
        ends.flushed();
        assert_eq!(many(), 1);
        ends.after_flush(end());
        ends.over();
        assert_eq!(many(), 2);
        ends.after_flush(end());
        assert_eq!(many(), 3);
    }
}
