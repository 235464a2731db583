//! The listener for agents: HTTP/1.1, and HTTP/2 by prior knowledge, on one port.
//!
//! It promises bounds on connections, heads, streams and idle time; that a handler's future is dropped when its agent
//! leaves; and that draining lets what is in flight end, up to a time. At the bound of connections
//! others wait in a room of their own ([`super::room`]), and when that is full in the listener's queue. It refuses half-open agents: one that has closed
//! its sending side counts as gone.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use super::ahead::Streams;
use super::guard;
use super::incoming::{self, AgentIo, Shared};
use super::inward::Inward;
use super::relay::{self, AgentBody};
use super::room::{Room, SAYS_WITHIN, Ticket};
use super::socket::{Listener, Socket};
use super::told::Telling;

/// Agents' connections at once, unless said otherwise.
pub const CONNECTIONS_MAX: usize = 4096;
/// From the first byte of a head to its last.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a connection may be without a request. Above what client pools keep one, so that they close first.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// An HTTP/2 agent that answers no ping for this long has left.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a connection with a call under way that nobody reads is looked at, for an agent that left behind bytes nobody wants yet. Leaving
/// is to be noticed within a tenth of a second, on a busy machine as well.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Agents' connections at once that came after draining began: each gets one answer.
const LATE_CONNECTIONS_MAX: usize = 64;
/// After a failed accept (no file handles left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listener's bounds.
#[derive(Debug, Clone, Copy)]
pub struct ServeOptions {
    pub connections_max: usize,
    pub head_timeout: Duration,
    pub idle_timeout: Duration,
    /// What is in flight has this long to end once draining has begun.
    pub drain_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            head_timeout: HEAD_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// Counted up from 0; never reused within a process.
    pub connection: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Draining,
    Over,
}

/// Serves until `drain` is ready, then lets what is in flight end. `handle` is called once a request; its future is
/// dropped if the agent leaves first.
pub async fn serve<H, F>(
    listener: impl Into<Listener>,
    options: ServeOptions,
    drain: impl Future<Output = ()>,
    handle: H,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<AgentBody>> + Send + 'static,
{
    let mut listener = listener.into();
    let room = Room::new(options.connections_max);
    let (phase, phases) = watch::channel(Phase::Open);
    let mut drain = pin!(drain);
    let mut connections = 0;
    let mut take = |(stream, address, ticket): Accepted| {
        let peer = Peer { address, connection: connections };
        connections += 1;
        let (handle, phases) = (handle.clone(), phases.clone());
        tokio::spawn(connection(stream, peer, ticket, options, phases, handle));
    };
    loop {
        tokio::select! {
            biased;
            () = &mut drain => break,
            accepted = accept(&mut listener, room.ticket()) => accepted.map(&mut take),
        };
    }
    let _ = phase.send(Phase::Draining);
    let all = u32::try_from(options.connections_max).unwrap_or(u32::MAX);
    // Whoever comes late is told so, in an answer; what was there before decides how long that goes on.
    let late_places = Arc::new(Semaphore::new(LATE_CONNECTIONS_MAX));
    let late = async || Arc::clone(&late_places).acquire_owned().await.ok().map(Ticket::place);
    // In a block of its own: what waits for places stands in the way of whoever asks after it.
    {
        let mut ended = pin!(timeout(options.drain_timeout, room.places.acquire_many(all)));
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => break,
                accepted = accept(&mut listener, late()) => accepted.map(&mut take),
            };
        }
    }
    drop(listener);
    let _ = phase.send(Phase::Over);
    let _ = room.places.acquire_many(all).await;
}

type Accepted = (Socket, SocketAddr, Ticket);

async fn accept(listener: &mut Listener, ticket: impl Future<Output = Option<Ticket>>) -> Option<Accepted> {
    let ticket = ticket.await?;
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address, ticket)),
        Err(e) => {
            tracing::warn!(error = %e, "an agent's connection could not be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection<H, F>(
    mut stream: Socket,
    peer: Peer,
    ticket: Ticket,
    options: ServeOptions,
    mut phases: watch::Receiver<Phase>,
    handle: H,
) where
    H: Fn(Request<Incoming>, Peer) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<AgentBody>> + Send + 'static,
{
    stream.set_nodelay();
    // Draining ends those who have said nothing yet; who comes later is heard.
    let came_in = *phases.borrow_and_update();
    let entered = tokio::select! {
        entered = timeout(options.idle_timeout, ticket.enter(&mut stream)) => entered,
        _ = phases.wait_for(|p| *p != came_in) => return,
    };
    // An agent that opened a connection and said nothing needs no answer. What has entered holds its place to the end.
    let Ok(Ok(Some(mut entered))) = entered else { return };
    let (read, is_http2) = (std::mem::take(&mut entered.read), entered.is_http2);
    let head_timeout = if entered.is_own { SAYS_WITHIN.min(options.head_timeout) } else { options.head_timeout };
    let shared = Shared::new(incoming::unread_max(head_timeout));
    if is_http2 {
        let teller = Arc::clone(&shared);
        let service = service_fn(move |request: Request<Incoming>| {
            let is_head = request.method() == Method::HEAD;
            let call = (request.headers().len() <= guard::HEADERS_MAX).then(|| handle(request, peer));
            let teller = Arc::clone(&teller);
            async move {
                let response = match call {
                    Some(call) => call.await.map(|body| body.told_by_receipt(&teller)),
                    None => relay::refusal(guard::TOO_MANY_HEADERS),
                };
                Ok::<_, Infallible>(if is_head { relay::head_only(response) } else { response })
            }
        });
        let io = TokioIo::new(AgentIo::plain(stream, read, head_timeout, Arc::clone(&shared)));
        let connection = hyper::server::conn::http2::Builder::new(Streams::default())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(guard::HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(io, service);
        let telling = Telling { connection: pin!(connection), shared: Arc::clone(&shared) };
        drive(pin!(telling), |t| t.get_mut().connection.as_mut().graceful_shutdown(), phases, &shared, None).await;
    } else {
        let refusals = Arc::clone(&shared);
        let requests = AtomicU64::new(0);
        let service = service_fn(move |request: Request<Incoming>| {
            let refusal = refusals.refusal_of(requests.fetch_add(1, Ordering::Relaxed));
            let call = refusal.ok_or_else(|| (handle(request, peer), refusals.begin()));
            async move {
                Ok::<_, Infallible>(match call {
                    Ok(refusal) => relay::refusal(refusal),
                    Err((call, in_call)) => call.await.map(|body| body.told_by(in_call.shared()).during(in_call)),
                })
            }
        });
        let io = TokioIo::new(AgentIo::watched(stream, read, head_timeout, Arc::clone(&shared)));
        let connection = hyper::server::conn::http1::Builder::new()
            .keep_alive(came_in == Phase::Open && !entered.is_own)
            .preserve_header_case(true)
            .half_close(false)
            // hyper's own would cost every request a timer; the head's time is the watch's, the idle time `drive`'s.
            .header_read_timeout(None)
            .max_buf_size(guard::HEAD_BYTES_MAX + 1024)
            .serve_connection(io, service);
        drive(pin!(connection), |c| c.graceful_shutdown(), phases, &shared, Some(options.idle_timeout)).await;
    }
}

enum Woken {
    Ended(hyper::Result<()>),
    Idle,
    Look,
}

/// Runs a connection to its end: its own, the drain's, the end of the drain's patience, or so long a time without a call.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    mut phases: watch::Receiver<Phase>,
    shared: &Shared,
    idle_timeout: Option<Duration>,
) where
    C: Future<Output = hyper::Result<()>>,
{
    let inward = Inward::default();
    // Put off only when it is over: what a call costs is a look at when the one before it ended.
    let mut idle = pin!(idle_timeout.map(sleep));
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let looking = std::future::poll_fn(|cx| {
            // Whether a call is under way shows only once the connection was polled.
            if let Poll::Ready(ended) = inward.poll(cx, |cx| connection.as_mut().poll(cx)) {
                return Poll::Ready(Woken::Ended(ended));
            }
            shared.ends.still_waiting();
            if let (Some(mut idle), Some(max)) = (idle.as_mut().as_pin_mut(), idle_timeout) {
                while idle.as_mut().poll(cx).is_ready() {
                    match shared.idle_until(max) {
                        Some(until) if until <= Instant::now() => return Poll::Ready(Woken::Idle),
                        until => idle.as_mut().reset(until.unwrap_or_else(|| Instant::now() + max)),
                    }
                }
            }
            if shared.is_unwatched() || shared.ends.any_resting() {
                looks.poll_tick(cx).map(|_| Woken::Look)
            } else {
                Poll::Pending
            }
        });
        tokio::select! {
            biased;
            woken = looking => match woken {
                Woken::Ended(ended) => return note(ended),
                Woken::Idle => return,
                // The connection is polled again right after, and looks then.
                Woken::Look => shared.look(),
            },
            changed = phases.changed() => match changed.map(|()| *phases.borrow_and_update()) {
                Ok(Phase::Draining) => shut_down(connection.as_mut()),
                Ok(Phase::Open) => {}
                Ok(Phase::Over) | Err(_) => return,
            },
        }
    }
}

fn note(ended: hyper::Result<()>) {
    if let Err(e) = ended {
        tracing::debug!(error = %e, "an agent's connection ended");
    }
}
