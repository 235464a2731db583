//! The connections to providers that are kept: idle ones of HTTP/1.1, shared ones of HTTP/2, and the dialing of new ones.
//!
//! It promises that what it hands out was looked at this instant: not closed, nothing unasked in it, not too old, and for
//! HTTP/2 under the peer's stream limit. It refuses to queue: whether a call may be sent at all is decided before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::{Instant, MissedTickBehavior};

use super::dial::{self, DialError};
use super::http1::Http1;
use super::http2::{Http2, StreamSlot};
use super::origin::Origin;
use super::socket::Dialler;
use super::upstream::Stage;
use super::warm::{self, Warm};

/// How long an HTTP/1.1 connection is kept without use. Below the five seconds that widespread servers keep one, so that
/// theirs is not closed just while a request is written into it: nobody could tell whether that request was seen.
pub const IDLE_MAX: Duration = Duration::from_secs(4);
/// How long an HTTP/2 connection is kept without a stream. Its peer says before it closes, so this may be longer.
pub const HTTP2_IDLE_MAX: Duration = Duration::from_secs(30);
/// How long any connection is used, so that changed addresses are noticed.
pub const AGE_MAX: Duration = Duration::from_secs(300);
/// Idle HTTP/1.1 connections to one origin; one more is closed instead of kept.
pub const IDLE_PER_ORIGIN_MAX: usize = 256;
/// Open connections to one origin; at it, dialing fails before anything is sent.
pub const OPEN_PER_ORIGIN_MAX: usize = 1024;

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How long connections are kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// An HTTP/1.1 connection without use.
    pub idle: Duration,
    /// Any connection, used or not.
    pub age: Duration,
    /// Idle HTTP/1.1 connections to one origin.
    pub idle_connections_max: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { idle: IDLE_MAX, age: AGE_MAX, idle_connections_max: IDLE_PER_ORIGIN_MAX }
    }
}

/// All kept connections. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

/// The pool, for who must not keep it.
pub(super) struct WeakPool(Weak<Inner>);

impl WeakPool {
    pub(super) fn upgrade(&self) -> Option<Pool> {
        self.0.upgrade().map(Pool)
    }
}

struct Inner {
    dialler: Dialler,
    tls: Arc<ClientConfig>,
    keep: Keep,
    places: Mutex<BTreeMap<Box<str>, Arc<Place>>>,
}

/// What is kept for one origin.
pub(super) struct Place {
    keep: Keep,
    /// Boxed, because each is moved with every call it serves.
    #[allow(clippy::vec_box, reason = "they go from box to box; unboxing would move and allocate each time")]
    idle: Mutex<Vec<Box<Http1>>>,
    shared: Mutex<Vec<Http2>>,
    /// Set by the first connection that negotiated: parallel dials to such a peer would each bring a whole connection.
    is_http2: AtomicBool,
    /// Set when the peer is known to speak HTTP/1.1, where every call needs a connection anyway.
    is_http1: AtomicBool,
    pub(super) warm: Warm,
    dialing: tokio::sync::Mutex<()>,
    open: Arc<AtomicUsize>,
}

/// One connection counted as open, until dropped.
pub(super) struct OpenPermit(Arc<AtomicUsize>);

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection to send one request on.
pub(super) enum Taken {
    Http1(Box<Http1>),
    Http2(Http2, StreamSlot),
}

impl Pool {
    /// An empty pool. Must be called inside a runtime, because it sweeps what has been idle too long.
    #[must_use]
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self::keeping(Dialler::Tcp, tls, Keep::default())
    }

    /// As [`Pool::new`], with bounds and a network of the caller's.
    #[must_use]
    pub fn keeping(dialler: Dialler, tls: Arc<ClientConfig>, keep: Keep) -> Self {
        let inner = Arc::new(Inner { dialler, tls, keep, places: Mutex::default() });
        tokio::spawn(sweep(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Keeps so many connections open ahead of the calls to an origin, as [`super::warm`] says.
    pub fn keep_warm(&self, origin: &Origin, connections: usize) {
        if connections > 0 && self.place(origin).warm.want(connections) {
            tokio::spawn(warm::keep(WeakPool(Arc::downgrade(&self.0)), origin.clone()));
        }
    }

    pub(super) fn place(&self, origin: &Origin) -> Arc<Place> {
        let mut places = locked(&self.0.places);
        if let Some(place) = places.get(origin.key()) {
            return Arc::clone(place);
        }
        let place = Arc::new(Place {
            keep: self.0.keep,
            idle: Mutex::default(),
            shared: Mutex::default(),
            is_http2: AtomicBool::new(origin.http2_prior_knowledge()),
            is_http1: AtomicBool::new(!origin.is_tls() && !origin.http2_prior_knowledge()),
            warm: Warm::default(),
            dialing: tokio::sync::Mutex::default(),
            open: Arc::default(),
        });
        places.insert(origin.key().into(), Arc::clone(&place));
        place
    }

    /// A new connection, or a shared one that another dial brought while this waited for its turn.
    pub(super) async fn dial(
        &self,
        origin: &Origin,
        place: &Place,
        timeout: Duration,
        fresh: bool,
    ) -> Result<(Taken, bool), DialError> {
        let until = Instant::now() + timeout;
        let _turn = if place.is_http1.load(Ordering::Acquire) {
            None
        } else {
            let turn = tokio::time::timeout_at(until, place.dialing.lock()).await;
            let turn = turn.map_err(|_| connect_error("an earlier dial to this provider did not end in time"))?;
            if let Some(taken) = place.take(Instant::now(), fresh) {
                return Ok((taken, true));
            }
            Some(turn)
        };
        let permit = place.permit().ok_or_else(|| connect_error("too many connections to this provider are open"))?;
        let dialed =
            dial::dial(&self.0.dialler, origin, &self.0.tls, until.saturating_duration_since(Instant::now())).await?;
        let failed = |e: &dyn std::fmt::Display| connect_error(&format!("the connection could not be set up: {e}"));
        if dialed.is_http2 {
            place.is_http2.store(true, Ordering::Release);
            let http2 = Http2::handshake(dialed, permit).await.map_err(|e| failed(&e))?;
            let slot = http2.take_slot().ok_or_else(|| connect_error("the provider allows no HTTP/2 stream"))?;
            locked(&place.shared).push(http2.clone());
            Ok((Taken::Http2(http2, slot), false))
        } else {
            place.is_http1.store(true, Ordering::Release);
            let mut http1 = Http1::handshake(dialed, permit).await.map_err(|e| failed(&e))?;
            if !http1.is_usable() {
                return Err(connect_error("the provider closed the new connection, or spoke before it was asked"));
            }
            Ok((Taken::Http1(Box::new(http1)), false))
        }
    }
}

fn connect_error(what: &str) -> DialError {
    DialError { stage: Stage::Connect, what: what.into() }
}

impl Place {
    /// A kept connection that can take a request now. `fresh`: one of HTTP/2, whose streams tell answers apart, or one
    /// that has carried no request yet.
    pub(super) fn take(&self, now: Instant, fresh: bool) -> Option<Taken> {
        if self.is_http2.load(Ordering::Acquire) {
            let mut shared = locked(&self.shared);
            shared.retain_mut(|c| c.is_usable() && now.duration_since(c.opened_at()) < self.keep.age);
            let found = shared.iter().find_map(|c| c.take_slot().map(|slot| (c.clone(), slot)));
            if let Some((connection, slot)) = found {
                return Some(Taken::Http2(connection, slot));
            }
        }
        let idle = || {
            loop {
                let mut http1 = locked(&self.idle).pop()?;
                if self.is_young(&http1, now) && http1.is_still_usable(now) {
                    return Some(http1);
                }
            }
        };
        let used = if fresh { None } else { idle() };
        used.or_else(|| self.warm.take(now, |http1| self.is_young(http1, now))).map(Taken::Http1)
    }

    /// Whether a call would find a connection to share.
    pub(super) fn has_shared(&self) -> bool {
        self.is_http2.load(Ordering::Acquire) && locked(&self.shared).iter_mut().any(Http2::is_usable)
    }

    pub(super) fn idle_max(&self) -> Duration {
        self.keep.idle
    }

    /// Keeps a connection whose answer has been read to its end.
    pub(super) fn give_back(&self, mut http1: Box<Http1>) {
        let now = Instant::now();
        if now.duration_since(http1.opened_at()) >= self.keep.age || !http1.is_usable() {
            return;
        }
        http1.rest(now);
        let mut idle = locked(&self.idle);
        if idle.len() < self.keep.idle_connections_max {
            idle.push(http1);
        }
    }

    fn is_young(&self, http1: &Http1, now: Instant) -> bool {
        now.duration_since(http1.idle_since()) < self.keep.idle && now.duration_since(http1.opened_at()) < self.keep.age
    }

    fn permit(&self) -> Option<OpenPermit> {
        let more = |n| if n < OPEN_PER_ORIGIN_MAX { Some(n + 1) } else { None };
        self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(OpenPermit(Arc::clone(&self.open)))
    }

    fn sweep(&self, now: Instant) {
        locked(&self.idle).retain(|c| self.is_young(c, now));
        locked(&self.shared).retain_mut(|c| {
            let too_long = c.idle_since().is_some_and(|since| now.duration_since(since) >= HTTP2_IDLE_MAX);
            !too_long && now.duration_since(c.opened_at()) < self.keep.age && c.is_usable()
        });
    }
}

async fn sweep(inner: Weak<Inner>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let places: Vec<_> = locked(&inner.places).values().cloned().collect();
        let now = Instant::now();
        for place in places {
            place.sweep(now);
        }
    }
}

/// A panic elsewhere leaves at most a connection too few here.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
