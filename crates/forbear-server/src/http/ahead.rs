//! Reading on while an HTTP/2 agent's window is shut: what a provider has said to its end gives its slot back, whether or
//! not the agent takes it.
//!
//! hyper asks for a body's next piece only once there is room for the last. The task of a stream looks after each of its
//! turns whether the stream waits for such room, and if so reads the answer itself. It promises to be ahead by no more than
//! a bound, of an answer and of a connection: what is longer is taken as fast as the agent takes it, and keeps its slot. It
//! refuses to read while hyper waits for the provider: then hyper's own look is the one that is woken.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

use super::answer::BodyCut;
use super::begun::Begun;

/// Of one answer; longer ones wait for their agents.
const AHEAD_BYTES_MAX: usize = 64 * 1024;
/// Of all answers on one connection.
const CONNECTION_BYTES_MAX: usize = 1024 * 1024;
/// What a piece counts for beside its bytes, so that many small ones are bounded too.
const PIECE_BYTES: usize = 128;

tokio::task_local! {
    /// The stream whose task this is.
    static STREAM: Stream;
}

/// What one stream's task and its answer know of each other.
#[derive(Clone)]
struct Stream {
    answer: Arc<OnceLock<Weak<Ahead>>>,
    connection_bytes: Arc<AtomicUsize>,
}

/// Runs the streams of one HTTP/2 connection, each in a task of its own.
#[derive(Clone, Default)]
pub(super) struct Streams {
    bytes: Arc<AtomicUsize>,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let about = Stream { answer: Arc::default(), connection_bytes: Arc::clone(&self.bytes) };
        let answer = Arc::clone(&about.answer);
        tokio::spawn(async move {
            let mut stream = pin!(STREAM.scope(about, stream));
            poll_fn(|cx| {
                let polled = stream.as_mut().poll(cx);
                if polled.is_pending()
                    && let Some(ahead) = answer.get().and_then(Weak::upgrade)
                {
                    ahead.read_on(cx);
                }
                polled
            })
            .await;
        });
    }
}

/// An answer's body that its stream's task reads ahead of its agent.
#[derive(Debug)]
pub(super) struct Ahead {
    state: Mutex<State>,
    connection_bytes: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct State {
    body: Begun,
    /// Bytes that were read ahead, as they count, and are still here.
    bytes: usize,
    /// hyper asked in this turn, and there was nothing yet.
    is_asked: bool,
}

impl Ahead {
    /// Read ahead by the stream whose task this is; by nobody elsewhere.
    pub(super) fn new(body: Begun) -> Arc<Self> {
        let stream = STREAM.try_with(Stream::clone).ok();
        let connection_bytes = stream.as_ref().map(|s| Arc::clone(&s.connection_bytes)).unwrap_or_default();
        let state = Mutex::new(State { body, bytes: 0, is_asked: false });
        let ahead = Arc::new(Self { state, connection_bytes });
        if let Some(stream) = stream {
            let _ = stream.answer.set(Arc::downgrade(&ahead));
        }
        ahead
    }

    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        let mut state = self.lock();
        let polled = state.body.poll_frame(cx);
        state.is_asked = polled.is_pending();
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = cost(frame).min(state.bytes);
            state.bytes -= bytes;
            self.connection_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        polled
    }

    /// At the end of a turn in which nothing more could be done for the agent.
    fn read_on(&self, cx: &mut Context<'_>) {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_asked) {
            return;
        }
        while state.bytes < AHEAD_BYTES_MAX && self.connection_bytes.load(Ordering::Relaxed) < CONNECTION_BYTES_MAX {
            let Poll::Ready(Some(bytes)) = state.body.poll_more(cx) else { return };
            state.bytes += bytes + PIECE_BYTES;
            self.connection_bytes.fetch_add(bytes + PIECE_BYTES, Ordering::Relaxed);
        }
    }

    /// The body, for what else there is to do with it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Begun) -> T) -> T {
        look(&mut self.lock().body)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len) + PIECE_BYTES
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.connection_bytes.fetch_sub(self.lock().bytes, Ordering::Relaxed);
    }
}
