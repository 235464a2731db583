//! Connections that are opened ahead, so that a call after a quiet time does not wait for name, TCP and TLS.
//!
//! It promises that what it hands out has never carried a request and was looked at this instant: no earlier request's late
//! answer can be on it, so that a write which wants a fresh connection may take it. One is closed and replaced before it is
//! as old as an idle one may be. A peer that speaks HTTP/2 gets one connection to share instead of so many. A provider is kept
//! warm for a minute from the start and after each call; one that nobody calls is left alone, and what is open to it ages out.
//! It refuses to press: one dial at a time, and after a failure, which nobody waits for, a pause that doubles.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::http1::Http1;
use super::origin::Origin;
use super::pool::{Place, Pool, Taken, WeakPool, locked};

/// How long a provider is kept warm that nobody calls.
pub const WARM_FOR: Duration = Duration::from_secs(60);

/// How often connections are looked at that nobody takes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of one dial. Callers of a peer whose protocol is not known yet wait for it, so it is short.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is open ahead to one origin.
#[derive(Default)]
pub(super) struct Warm {
    wanted: AtomicUsize,
    /// Nothing before the first, which the start counts as.
    called_at: Mutex<Option<Instant>>,
    #[allow(clippy::vec_box, reason = "as the idle ones, which they become")]
    unused: Mutex<Vec<Box<Http1>>>,
    /// One was taken, or a quiet time is over.
    changed: Notify,
}

impl Warm {
    /// So many are wanted from now on, or as many as before if those were more. Whether somebody has to begin.
    pub(super) fn want(&self, connections: usize) -> bool {
        self.called(Instant::now());
        self.wanted.fetch_max(connections, Ordering::AcqRel) == 0
    }

    pub(super) fn called(&self, now: Instant) {
        let before = locked(&self.called_at).replace(now);
        if before.is_some_and(|before| now.duration_since(before) >= WARM_FOR) {
            self.changed.notify_one();
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > 0
    }

    /// The youngest that is still good.
    pub(super) fn take(&self, now: Instant, is_young: impl Fn(&Http1) -> bool) -> Option<Box<Http1>> {
        if !self.is_wanted() {
            return None;
        }
        let taken = loop {
            let Some(mut http1) = locked(&self.unused).pop() else { break None };
            if is_young(&http1) && http1.is_still_usable(now) {
                break Some(http1);
            }
        };
        self.changed.notify_one();
        taken
    }

    /// Closes what the peer has closed, and what would be too old before the next look.
    fn look(&self, now: Instant, idle_max: Duration) {
        let age_max = idle_max.saturating_sub(LOOK_EVERY).max(LOOK_EVERY);
        locked(&self.unused).retain_mut(|c| now.duration_since(c.idle_since()) < age_max && c.is_usable());
    }

    fn wants_more(&self, now: Instant) -> bool {
        let called_at = *locked(&self.called_at);
        called_at.is_some_and(|at| now.duration_since(at) < WARM_FOR)
            && locked(&self.unused).len() < self.wanted.load(Ordering::Acquire)
    }
}

/// Keeps one origin warm until the pool is gone.
pub(super) async fn keep(pool: WeakPool, origin: Origin) {
    let mut pause = PAUSE_MIN;
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let place = pool.place(&origin);
        let filled = fill(&pool, &origin, &place).await;
        drop(pool);
        if filled {
            pause = PAUSE_MIN;
            // Its own end is as good as a word: then it is time to look again.
            let _ = timeout(LOOK_EVERY, place.warm.changed.notified()).await;
        } else {
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Opens what is missing. Whether no dial failed.
async fn fill(pool: &Pool, origin: &Origin, place: &Place) -> bool {
    place.warm.look(Instant::now(), place.idle_max());
    while place.warm.wants_more(Instant::now()) && !place.has_shared() {
        match pool.dial(origin, place, DIAL_TIMEOUT, true).await {
            Ok((Taken::Http1(http1), false)) => locked(&place.warm.unused).push(http1),
            // Another dial's, or one to share, which is kept already.
            Ok(_) => return true,
            Err(e) => {
                tracing::debug!(error = e.what, "a connection could not be opened ahead");
                return false;
            }
        }
    }
    true
}
