//! One HTTP/1.1 connection to a provider, driven by whoever uses it: no task of its own, no hop between threads.
//!
//! It promises that a connection which was idle is looked at before it is used: one that the provider closed, or that has
//! bytes nobody asked for (a late 408), is never handed a request. A connection is reusable only after a complete answer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::{Framing, UpstreamBody};
use super::dial::{Counts, Dialed, Transport};
use super::inward::Inward;
use super::pool::OpenPermit;

/// Bytes of an answer's head.
pub(super) const ANSWER_HEAD_BYTES_MAX: usize = 128 * 1024;
/// No server gives a connection up so soon after it answered, or was connected to.
const RESTED: Duration = Duration::from_millis(10);
/// Header fields of an answer.
const ANSWER_HEADERS_MAX: usize = 100;

pub(super) struct Http1 {
    sender: SendRequest<UpstreamBody>,
    /// Gone once the connection is over. Boxed, because it moves between the pool and its users.
    connection: Option<Running>,
    counts: Counts,
    opened_at: Instant,
    idle_since: Instant,
    /// The end of the time for a head. One for all exchanges: putting it off is cheap, making it is not.
    head_until: Pin<Box<Sleep>>,
    inward: Inward,
    _permit: OpenPermit,
}

/// Why there is no head.
pub(super) enum ExchangeError {
    /// The connection gave the request back: it never left.
    Returned(Box<Request<UpstreamBody>>, hyper::Error),
    Failed(hyper::Error),
    /// None came in time.
    NoHead,
}

impl Http1 {
    pub(super) async fn handshake(dialed: Dialed, permit: OpenPermit) -> Result<Self, hyper::Error> {
        let (sender, connection) = Builder::new()
            .preserve_header_case(true)
            .max_headers(ANSWER_HEADERS_MAX)
            .max_header_size(ANSWER_HEAD_BYTES_MAX)
            .handshake(TokioIo::new(dialed.transport))
            .await?;
        let now = Instant::now();
        Ok(Self {
            sender,
            connection: Some(Box::new(connection)),
            counts: dialed.counts,
            opened_at: now,
            idle_since: now,
            head_until: Box::pin(sleep_until(now)),
            inward: Inward::default(),
            _permit: permit,
        })
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.opened_at
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Looks at the socket and says whether a request could be sent. Bytes that came unasked end the connection here.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.poll(&mut cx).is_pending() && self.sender.is_ready()
    }

    /// The same, and of a connection that has rested long enough for its server to give it up, the kernel is asked too: the
    /// runtime may not have heard of a last word yet.
    pub(super) fn is_still_usable(&mut self, now: Instant) -> bool {
        if now.duration_since(self.idle_since) < RESTED {
            return self.is_usable();
        }
        let counts = self.counts.clone();
        counts.while_asking(|| self.is_usable())
    }

    pub(super) fn rest(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// Moves the connection along. Ready once it is over; what uses it is told through its own channel.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        advance(&mut self.connection, cx);
        if self.connection.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Moves the connection along until what it feeds is ready, or nothing moves any more.
    pub(super) fn poll_feeding<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut fed: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { connection, inward, .. } = self;
        inward.poll(cx, |cx| {
            if let Poll::Ready(done) = fed(cx) {
                return Poll::Ready(done);
            }
            advance(connection, cx);
            fed(cx)
        })
    }

    /// Sends the request and waits for the head. The first byte leaves in the first poll.
    pub(super) async fn exchange(
        &mut self,
        request: Request<UpstreamBody>,
        head_timeout: Duration,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let Self { sender, connection, head_until, inward, .. } = self;
        let mut reply = pin!(sender.try_send_request(request));
        head_until.as_mut().reset(Instant::now() + head_timeout);
        let mut look = |cx: &mut Context<'_>| {
            advance(connection, cx);
            if let Poll::Ready(outcome) = reply.as_mut().poll(cx) {
                return Poll::Ready(outcome.map_err(|mut e| match e.take_message() {
                    Some(request) => ExchangeError::Returned(Box::new(request), e.into_error()),
                    None => ExchangeError::Failed(e.into_error()),
                }));
            }
            head_until.as_mut().poll(cx).map(|()| Err(ExchangeError::NoHead))
        };
        std::future::poll_fn(|cx| inward.poll(cx, &mut look)).await
    }
}

type Running = Box<Connection<TokioIo<Transport>, UpstreamBody>>;

/// Its end wakes who waits for an answer or for more of a body.
fn advance(connection: &mut Option<Running>, cx: &mut Context<'_>) {
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        *connection = None;
    }
}

/// Adds what HTTP/1.1 wants beside the end-to-end fields: the framing, and `Connection` where `TE` needs it.
pub(super) fn prepare(request: &mut Request<UpstreamBody>) {
    *request.version_mut() = http::Version::HTTP_11;
    let is_chunked = request.body().framing() == Framing::Chunked;
    let headers = request.headers_mut();
    if headers.contains_key(header::TE) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
    if is_chunked {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}
