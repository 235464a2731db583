//! An agent's socket with the watch in front of hyper: what the guard has not passed is never read by it.
//!
//! A refused head is put in place by one of our own, so that its answer takes its turn behind the answers to earlier
//! requests of the connection; the service is told which request that is. It promises a bound in time for a head that has
//! begun and for an answer that nobody reads, and that a connection closed before its agent was done sending stays
//! readable long enough to be answered.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::ends::{Ends, Shows};
use super::guard::{Framing, Refusal, Step};
use super::socket::Socket;

/// How long, and how many bytes, an agent may go on sending after its answer, before the connection is dropped. Closing
/// with unread bytes would reset it, and the agent might lose the answer.
const LINGER_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// How long a connection that closes stays for the agent of a write to take its answer.
const CLOSES_MAX: Duration = Duration::from_secs(5);

const STAND_IN: &[u8] = b"GET /-/refused HTTP/1.1\r\nhost: forbear\r\nconnection: close\r\n\r\n";

/// What socket, service and listener tell each other about one connection.
#[derive(Debug)]
pub(super) struct Shared {
    began: Instant,
    /// The number, from 0, of the request that is refused, and why. Nothing comes after it.
    refused: OnceLock<(u64, Refusal)>,
    /// Asks the socket to look whether the agent has left, which hyper cannot see past bytes it does not want yet.
    look: AtomicBool,
    /// Calls whose answers are not over.
    calls: AtomicUsize,
    /// When the last one was over, in nanoseconds from the beginning.
    quiet_since_ns: AtomicU64,
    /// hyper waits for bytes: then it is told of a close as of any other event.
    is_read: AtomicBool,
    /// What is to be told once the bytes before it have left.
    pub(super) ends: Ends,
}

/// One call under way on a connection, until dropped.
#[derive(Debug)]
pub(super) struct InCall(Arc<Shared>);

impl InCall {
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        let ns = u64::try_from(self.0.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.quiet_since_ns.store(ns, Ordering::Relaxed);
        self.0.calls.fetch_sub(1, Ordering::Release);
    }
}

impl Shared {
    pub(super) fn new(untold_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            refused: OnceLock::new(),
            look: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            quiet_since_ns: AtomicU64::new(0),
            is_read: AtomicBool::new(false),
            ends: Ends::new(untold_max),
        })
    }

    /// The end of so long a time without a call; none while one is under way.
    pub(super) fn idle_until(&self, idle_max: Duration) -> Option<Instant> {
        if self.calls.load(Ordering::Acquire) > 0 {
            return None;
        }
        Some(self.began + Duration::from_nanos(self.quiet_since_ns.load(Ordering::Relaxed)) + idle_max)
    }

    pub(super) fn refusal_of(&self, request: u64) -> Option<Refusal> {
        self.refused.get().filter(|(at, _)| *at == request).map(|(_, refusal)| *refusal)
    }

    pub(super) fn look(&self) {
        self.look.store(true, Ordering::Release);
    }

    pub(super) fn begin(self: &Arc<Self>) -> InCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        InCall(Arc::clone(self))
    }

    /// Whether somebody's leaving would end a call, and nobody would notice.
    pub(super) fn is_unwatched(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0 && !self.is_read.load(Ordering::Relaxed)
    }
}

/// How many times the time for a head an agent may take nothing of what it is sent.
const UNREAD_HEAD_TIMES: u32 = 10;

pub(super) fn unread_max(head_timeout: Duration) -> Duration {
    head_timeout * UNREAD_HEAD_TIMES
}

pub(super) struct AgentIo {
    stream: Socket,
    /// How long an agent may take nothing of what it is sent: who holds its answer open for ever holds a slot.
    unread_max: Duration,
    unread_deadline: Option<Pin<Box<Sleep>>>,
    closes_at: Option<Instant>,
    /// Bytes that may be read by hyper before anything else.
    passed: Bytes,
    watch: Option<Watch>,
    shared: Arc<Shared>,
}

struct Watch {
    framing: Framing,
    /// The beginning of a head.
    held: Vec<u8>,
    is_held_new: bool,
    head_timeout: Duration,
    head_deadline: Option<Pin<Box<Sleep>>>,
    broken: Option<&'static str>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl AgentIo {
    /// A socket spoken to in HTTP/1, of which `read` has been read already.
    pub(super) fn watched(stream: Socket, read: Vec<u8>, head_timeout: Duration, shared: Arc<Shared>) -> Self {
        let watch = Watch {
            framing: Framing::new(),
            is_held_new: !read.is_empty(),
            held: read,
            head_timeout,
            head_deadline: None,
            broken: None,
            linger: None,
        };
        let unread_max = unread_max(head_timeout);
        Self {
            stream,
            unread_max,
            unread_deadline: None,
            closes_at: None,
            passed: Bytes::new(),
            watch: Some(watch),
            shared,
        }
    }

    /// A socket whose framing is not ours to watch.
    pub(super) fn plain(stream: Socket, read: Vec<u8>, head_timeout: Duration, shared: Arc<Shared>) -> Self {
        let unread_max = unread_max(head_timeout);
        Self { stream, unread_max, unread_deadline: None, closes_at: None, passed: read.into(), watch: None, shared }
    }

    /// What became of a write, unless the agent has taken nothing for too long.
    fn taken(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let bytes = match &written {
            Poll::Ready(Ok(bytes)) => *bytes,
            _ => 0,
        };
        self.shared.ends.written(bytes);
        if self.shared.look.load(Ordering::Acquire) {
            self.rested();
        }
        if written.is_ready() {
            self.unread_deadline = None;
            return written;
        }
        let unread_max = self.unread_max;
        let deadline = self.unread_deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(unread_max)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the agent does not read its answer")))
    }

    /// Ends that have rested are told, by what the agent has acknowledged.
    fn rested(&self) {
        self.shared.ends.rested(|| self.stream.unacknowledged_bytes());
    }

    fn hand_on(&mut self, buf: &mut ReadBuf<'_>) {
        let bytes = buf.remaining().min(self.passed.len());
        buf.put_slice(&self.passed[..bytes]);
        self.passed.advance(bytes);
    }

    fn refuse(&mut self, refusal: Refusal) {
        if let Some(watch) = &mut self.watch {
            let _ = self.shared.refused.set((watch.framing.heads(), refusal));
            watch.held = Vec::new();
            watch.head_deadline = None;
        }
    }
}

impl Drop for AgentIo {
    fn drop(&mut self) {
        self.shared.ends.over(Shows::Closed, || self.stream.unacknowledged_bytes());
    }
}

impl AsyncRead for AgentIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = this.read(cx, buf);
        let shows = match &read {
            Poll::Pending => None,
            Poll::Ready(Err(_)) => Some(Shows::Broken),
            Poll::Ready(Ok(())) if buf.filled().len() == before => Some(Shows::Closed),
            // Over HTTP/2 anything may come at any time.
            Poll::Ready(Ok(())) => this.watch.is_some().then_some(Shows::More),
        };
        if let Some(shows) = shows {
            this.shared.ends.shown(shows, || this.stream.unacknowledged_bytes());
        }
        this.shared.is_read.store(read.is_pending(), Ordering::Relaxed);
        read
    }
}

impl AgentIo {
    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self;
        loop {
            if !this.passed.is_empty() {
                this.hand_on(buf);
                return Poll::Ready(Ok(()));
            }
            let Some(watch) = &mut this.watch else { return Pin::new(&mut this.stream).poll_read(cx, buf) };
            if this.shared.refused.get().is_some() {
                return Poll::Pending; // Its answer closes the connection.
            }
            if let Some(why) = watch.broken {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            let before = buf.filled().len();
            if !watch.is_held_new {
                if Pin::new(&mut this.stream).poll_read(cx, buf)?.is_pending() {
                    return watch.poll_head_deadline(cx);
                }
                if buf.filled().len() == before {
                    return Poll::Ready(Ok(()));
                }
            }
            let step = if watch.held.is_empty() {
                let step = watch.framing.follow(&buf.filled()[before..]);
                let (Step::Pass(bytes) | Step::Refuse(bytes, _) | Step::Broken(bytes, _)) = step;
                watch.held.extend_from_slice(&buf.filled()[before + bytes..]);
                buf.set_filled(before + bytes);
                step
            } else {
                watch.held.extend_from_slice(&buf.filled()[before..]);
                buf.set_filled(before);
                watch.is_held_new = false;
                let step = watch.framing.follow(&watch.held);
                let (Step::Pass(bytes) | Step::Refuse(bytes, _) | Step::Broken(bytes, _)) = step;
                let rest = watch.held.split_off(bytes);
                this.passed = std::mem::replace(&mut watch.held, rest).into();
                step
            };
            match step {
                Step::Pass(_) => watch.set_head_deadline(),
                Step::Refuse(_, refusal) => {
                    let mut passed = Vec::from(std::mem::take(&mut this.passed));
                    passed.extend_from_slice(STAND_IN);
                    this.passed = passed.into();
                    this.refuse(refusal);
                }
                Step::Broken(_, why) => {
                    watch.broken = Some(why);
                    watch.held = Vec::new();
                }
            }
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Watch {
    fn set_head_deadline(&mut self) {
        if self.held.is_empty() {
            self.head_deadline = None;
        } else if self.head_deadline.is_none() {
            self.head_deadline = Some(Box::pin(tokio::time::sleep(self.head_timeout)));
        }
    }

    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(deadline) = &mut self.head_deadline else { return Poll::Pending };
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the request's head did not end in time")))
    }
}

impl AsyncWrite for AgentIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.taken(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.taken(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes whenever it is woken, so this is where a look at the socket costs nothing otherwise.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.shared.look.load(Ordering::Acquire) {
            this.shared.look.store(false, Ordering::Release);
            this.rested();
            if this.watch.is_some() && this.stream.is_read_closed(cx) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, "the agent has left")));
            }
        }
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.shared.ends.flushed(|| this.stream.has_left());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        let Some(watch) = &mut this.watch else { return Poll::Ready(Ok(())) };
        if watch.framing.is_mid_body() || this.shared.refused.get().is_some() {
            let new = || (Box::pin(tokio::time::sleep_until(Instant::now() + LINGER_MAX)), 0);
            let (deadline, bytes) = watch.linger.get_or_insert_with(new);
            let mut scratch = [0; 8 * 1024];
            while *bytes < LINGER_BYTES_MAX && deadline.as_mut().poll(cx).is_pending() {
                let mut buf = ReadBuf::new(&mut scratch);
                match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf)) {
                    Ok(()) if !buf.filled().is_empty() => *bytes += buf.filled().len(),
                    _ => break,
                }
            }
        }
        this.poll_taken(cx).map(Ok)
    }
}

impl AgentIo {
    /// Ready once the agent of a write has shown what became of its answer, which nobody could see after the close.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.rested();
        let closes_at = *self.closes_at.get_or_insert_with(|| Instant::now() + CLOSES_MAX);
        let mut scratch = [0; 1024];
        while self.shared.ends.any_resting() && Instant::now() < closes_at {
            // The connection is looked at again while an end rests.
            let mut buf = ReadBuf::new(&mut scratch);
            let shows = match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => continue,
                Ok(()) => Shows::Closed,
                Err(_) => Shows::Broken,
            };
            self.shared.ends.shown(shows, || self.stream.unacknowledged_bytes());
        }
        Poll::Ready(())
    }
}
