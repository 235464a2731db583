//! A body as it is handed to a provider's connection, piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{BodyError, Framing, Once, Replay};

/// A body on its way to a provider.
#[derive(Debug)]
pub struct UpstreamBody {
    inner: Inner,
    is_taken: Option<Arc<AtomicBool>>,
}

/// Tells whether a body was handed out to its end, after it has been given away.
#[derive(Debug)]
pub(in crate::http) struct Taken(Option<Arc<AtomicBool>>);

impl Taken {
    pub(in crate::http) fn is_so(&self) -> bool {
        self.0.as_ref().is_none_or(|taken| taken.load(Ordering::Acquire))
    }
}

#[derive(Debug)]
enum Inner {
    Replay { body: Arc<Replay>, next: usize },
    Once(Box<Once>),
}

impl UpstreamBody {
    /// One sending of a body that can be sent again.
    #[must_use]
    pub fn replay(body: &Arc<Replay>) -> Self {
        Self { inner: Inner::Replay { body: Arc::clone(body), next: 0 }, is_taken: None }
    }

    /// The one sending of a body that cannot.
    #[must_use]
    pub fn once(body: Box<Once>) -> Self {
        Self { inner: Inner::Once(body), is_taken: None }
    }

    pub(in crate::http) fn taken(&mut self) -> Taken {
        let taken = (self.framing() != Framing::None).then(|| Arc::clone(self.is_taken.get_or_insert_default()));
        Taken(taken)
    }

    #[must_use]
    pub fn framing(&self) -> Framing {
        match &self.inner {
            Inner::Replay { body, .. } => body.framing,
            Inner::Once(body) => body.framing,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.inner {
            Inner::Once(body) => body.poll_frame(cx),
            Inner::Replay { body, next } => {
                let at = *next;
                *next += 1;
                let data = body.chunks.get(at).cloned().map(Frame::data);
                let trailers = || body.trailers.clone().filter(|_| at == body.chunks.len()).map(Frame::trailers);
                Poll::Ready(data.or_else(trailers).map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Chunks end with their own last chunk, which the sender writes only for a body that was not at its end yet.
        match &self.inner {
            Inner::Replay { body, next } => match body.framing {
                Framing::None => true,
                Framing::Length(_) => *next >= body.chunks.len() && body.trailers.is_none(),
                Framing::Chunked => *next > body.chunks.len(),
            },
            Inner::Once(body) => body.prefix.is_empty() && body.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (self.framing(), &self.inner) {
            (Framing::None, _) => SizeHint::with_exact(0),
            (Framing::Length(bytes), _) => SizeHint::with_exact(bytes),
            (Framing::Chunked, _) => SizeHint::default(),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if let Some(taken) = &self.is_taken {
            taken.store(self.is_end_stream(), Ordering::Release);
        }
    }
}
