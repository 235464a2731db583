//! One HTTP/2 connection to a provider, shared by its streams, over `h2` itself because only that gives the proofs.
//!
//! It promises that streams are handed out only under the peer's limit, that a connection which said GOAWAY gets none, and
//! that `refused` is said only of a stream that the peer itself refused (REFUSED_STREAM) or left out of its GOAWAY.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use forbear_core::effect::Evidence;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::uri::Scheme;
use http::{HeaderMap, Request, Uri, header};
use http_body::Body;
use tokio::time::{Instant, timeout_at};

use super::body::{BodyError, UpstreamBody};
use super::dial::{Counts, Dialed};
use super::headers;
use super::http1::ANSWER_HEAD_BYTES_MAX;
use super::origin::Origin;
use super::pool::OpenPermit;

/// Bytes a provider may send ahead on one stream, and on all of a connection.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// Streams before the peer has said its limit: what RFC 9113 section 6.5.2 tells peers to allow at least.
const STREAMS_BEFORE_SETTINGS: usize = 100;
/// Request bytes that wait in one stream for the peer's window.
const SEND_BUFFER_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone)]
pub(super) struct Http2 {
    sender: SendRequest<Bytes>,
    shared: Arc<Shared>,
}

struct Shared {
    active: AtomicUsize,
    is_over: AtomicBool,
    idle_since: Mutex<Instant>,
    opened_at: Instant,
    counts: Counts,
    _permit: OpenPermit,
}

/// The place of one stream under the peer's limit, given back when dropped.
pub(super) struct StreamSlot(Arc<Shared>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A failed exchange, and what is proven of it.
pub(super) struct StreamError {
    pub(super) evidence: Evidence,
    pub(super) what: String,
    /// The body, where it was not touched.
    pub(super) unsent: Option<UpstreamBody>,
    /// The body could not be read, and that is why.
    pub(super) body_error: Option<BodyError>,
}

/// An answer's head with the two halves of its stream.
pub(super) struct Exchanged {
    pub(super) response: http::Response<RecvStream>,
    /// The rest of the request body, while the provider answers before it has all.
    pub(super) pump: Option<Box<Pump>>,
}

impl Http2 {
    pub(super) async fn handshake(dialed: Dialed, permit: OpenPermit) -> Result<Self, h2::Error> {
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .max_send_buffer_size(SEND_BUFFER_BYTES_MAX)
            .max_header_list_size(u32::try_from(ANSWER_HEAD_BYTES_MAX).unwrap_or(u32::MAX))
            .handshake(dialed.transport)
            .await?;
        let now = Instant::now();
        let shared = Arc::new(Shared {
            active: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            idle_since: Mutex::new(now),
            opened_at: now,
            counts: dialed.counts,
            _permit: permit,
        });
        let over = Arc::clone(&shared);
        // Ends when every sender and stream is gone, or when the peer ends it.
        tokio::spawn(async move {
            let ended = connection.await;
            over.is_over.store(true, Ordering::Release);
            if let Err(e) = ended {
                tracing::debug!(error = %e, "an HTTP/2 connection to a provider ended");
            }
        });
        Ok(Self { sender, shared })
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub(super) fn opened_at(&self) -> Instant {
        self.shared.opened_at
    }

    /// Since when no stream is open; none while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.shared.active.load(Ordering::Acquire) == 0;
        is_idle.then(|| *self.shared.idle_since.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether new streams may still be opened. A GOAWAY shows here, while `is_ready` of higher layers stays true.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        !self.shared.is_over.load(Ordering::Acquire) && !matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// A place under the peer's limit, if there is one.
    pub(super) fn take_slot(&self) -> Option<StreamSlot> {
        let streams_max = self.sender.current_max_send_streams();
        let taken = self
            .shared
            .active
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| if n < streams_max { Some(n + 1) } else { None });
        taken.ok().map(|_| StreamSlot(Arc::clone(&self.shared)))
    }

    /// Opens a stream, sends the request and waits for the head.
    pub(super) async fn exchange(
        &mut self,
        request: Request<UpstreamBody>,
        not_after: Instant,
    ) -> Result<Exchanged, StreamError> {
        let (parts, body) = request.into_parts();
        let is_end = body.is_end_stream();
        let (mut response, stream) = match self.sender.send_request(Request::from_parts(parts, ()), is_end) {
            Ok(opened) => opened,
            Err(e) => return Err(StreamError::unsent(format!("the connection takes no new stream: {e}"), body)),
        };
        // Above the peer's limit the stream waits inside, unsent: past its time it is taken back instead.
        match timeout_at(not_after, std::future::poll_fn(|cx| self.sender.poll_ready(cx))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {} // The stream's own error says more.
            Err(_) => {
                return Err(StreamError::unsent("no stream was free on the connection in time".into(), body));
            }
        }
        let mut pump = (!is_end).then(|| Box::new(Pump::new(stream, body)));
        let head = std::future::poll_fn(|cx| {
            if let Some(Poll::Ready(pumped)) = pump.as_mut().map(|running| running.poll(cx)) {
                pump = None;
                if let Err(e) = pumped {
                    return Poll::Ready(Err(StreamError::of_body(e)));
                }
            }
            Pin::new(&mut response).poll(cx).map_err(|e| StreamError::of(&e))
        })
        .await;
        head.map(|response| Exchanged { response, pump })
    }
}

impl StreamError {
    fn of(e: &h2::Error) -> Self {
        let refused = e.is_remote() && (e.reason() == Some(Reason::REFUSED_STREAM) && e.is_reset() || e.is_go_away());
        let evidence = if refused { Evidence::Refused } else { Evidence::Unknown };
        Self { evidence, what: format!("HTTP/2: {e}"), unsent: None, body_error: None }
    }

    fn of_body(e: BodyError) -> Self {
        Self { evidence: Evidence::Unknown, what: e.to_string(), unsent: None, body_error: Some(e) }
    }

    fn unsent(what: String, body: UpstreamBody) -> Self {
        Self { evidence: Evidence::NotSent, what, unsent: Some(body), body_error: None }
    }
}

/// Moves a request body into its stream as the peer's window allows.
pub(super) struct Pump {
    stream: SendStream<Bytes>,
    body: UpstreamBody,
    pending: Bytes,
}

impl Pump {
    fn new(stream: SendStream<Bytes>, body: UpstreamBody) -> Self {
        Self { stream, body, pending: Bytes::new() }
    }

    /// Ready when nothing is left to do. A failure of the stream shows on its answer's side, one of the body only here.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        loop {
            // The peer may end the stream with an answer and no interest in the rest.
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if !self.pending.is_empty() {
                if self.stream.capacity() == 0 {
                    self.stream.reserve_capacity(self.pending.len());
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(0)) => continue,
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return Poll::Ready(Ok(())),
                    }
                }
                let bytes = self.stream.capacity().min(self.pending.len());
                let is_last = bytes == self.pending.len() && self.body.is_end_stream();
                if self.stream.send_data(self.pending.split_to(bytes), is_last).is_err() || is_last {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.pending = data,
                    Err(frame) => {
                        if let Ok(mut trailers) = frame.into_trailers() {
                            headers::clean_trailers(&mut trailers);
                            let _ = self.stream.send_trailers(trailers);
                        }
                        return Poll::Ready(Ok(()));
                    }
                },
                Some(Err(e)) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(e));
                }
                None => {
                    let _ = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Turns the end-to-end fields into what HTTP/2 wants: the authority in the target, nothing of the connection's.
///
/// # Errors
/// When target and origin do not make a URI together.
pub(super) fn prepare(request: &mut Request<UpstreamBody>, origin: &Origin) -> Result<(), http::Error> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if origin.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(origin.authority().clone());
    *request.uri_mut() = Uri::from_parts(parts)?;
    *request.version_mut() = http::Version::HTTP_2;
    // The spelling of HTTP/1.1 names has no meaning here, and h2 reads extensions of its own.
    request.extensions_mut().clear();
    let from = std::mem::take(request.headers_mut());
    let mut to = HeaderMap::with_capacity(from.len());
    let mut last = None;
    for (name, value) in from {
        if name.is_some() {
            last = name;
        }
        let Some(name) = &last else { continue };
        if *name != header::HOST && *name != header::CONNECTION && *name != header::TRANSFER_ENCODING {
            to.append(name.clone(), value);
        }
    }
    *request.headers_mut() = to;
    Ok(())
}
