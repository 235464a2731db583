//! The body of a request: read once up to the replay cap and kept for resending, or, above it, streamed once.
//!
//! It promises the digest of the bytes in either case, the framing the agent chose (a declared length stays one, chunks
//! stay chunks, no body is not an empty one) and its trailers. It refuses bodies above `body_bytes_max`: a declared length
//! before reading a byte, an undeclared one as soon as it passes. The agent's `100-continue` is answered by the first poll of
//! the body, so nothing is asked of an agent before [`receive`] is called.

mod upstream;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Version, header, request};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use tokio::time::{Sleep, sleep, timeout};

mod error;

pub use error::BodyError;
pub use upstream::UpstreamBody;

/// How much of a body is kept, and how much is let through.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Up to this, a body can be sent again.
    pub replay_bytes_max: u64,
    /// Above this, a body is refused.
    pub body_bytes_max: u64,
    /// How long an agent may send nothing of a body that it began.
    pub silence_max: Duration,
}

/// Most calls have no body.
const SHA256_OF_NOTHING: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// How the agent delimited the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No body at all; `Content-Length: 0` may have said so.
    None,
    /// A length that was declared, or that HTTP/2 framing made known.
    Length(u64),
    /// Chunks, or an HTTP/2 stream without a length.
    Chunked,
}

/// A request body as received.
#[derive(Debug)]
pub enum RequestBody {
    /// Complete, and sendable any number of times.
    Replayable(Arc<Replay>),
    /// Larger than the replay cap: what was read so far and the rest, once.
    Once(Box<Once>),
}

/// A complete body.
#[derive(Debug)]
pub struct Replay {
    chunks: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    framing: Framing,
    bytes: u64,
}

/// A body that can be sent once.
#[derive(Debug)]
pub struct Once {
    prefix: VecDeque<Bytes>,
    rest: Incoming,
    framing: Framing,
    bytes_max: u64,
    silence_max: Duration,
    silent_until: Option<Pin<Box<Sleep>>>,
    bytes: u64,
    hasher: Sha256,
    progress: Arc<Progress>,
}

/// What became of a body that is streamed once, readable while and after it is sent.
#[derive(Debug, Default)]
pub struct Progress {
    digest: OnceLock<[u8; 32]>,
    fault: OnceLock<BodyError>,
}

impl Progress {
    /// The digest, once the whole body has passed.
    #[must_use]
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.digest.get().copied()
    }

    /// Why the body could not be read to its end, if that happened.
    #[must_use]
    pub fn fault(&self) -> Option<&BodyError> {
        self.fault.get()
    }
}

/// Reads a body up to the replay cap, as far as `keep` has room for each piece. The first poll is what sends
/// `100 Continue`.
///
/// # Errors
/// When the body is larger than allowed, or cannot be read.
pub async fn receive(
    head: &request::Parts,
    mut incoming: Incoming,
    limits: BodyLimits,
    mut keep: impl FnMut(u64) -> bool,
) -> Result<RequestBody, BodyError> {
    let too_large = BodyError::TooLarge { bytes_max: limits.body_bytes_max };
    let declared = incoming.size_hint().exact();
    if declared.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(too_large);
    }
    if incoming.is_end_stream() {
        let framing =
            if head.headers.contains_key(header::CONTENT_LENGTH) { Framing::Length(0) } else { Framing::None };
        return Ok(RequestBody::Replayable(Arc::new(Replay::new(Vec::new(), None, framing))));
    }
    let mut framing = declared.map_or(Framing::Chunked, Framing::Length);
    let mut chunks = Vec::new();
    let mut trailers = None;
    let mut bytes = 0u64;
    let silent = |_| BodyError::silent(limits.silence_max);
    while let Some(frame) = timeout(limits.silence_max, incoming.frame()).await.map_err(silent)? {
        match frame.map_err(|e| BodyError::of(&e))?.into_data() {
            Ok(data) => {
                bytes += data.len() as u64;
                let has_place = keep(data.len() as u64);
                chunks.push(data);
                if bytes > limits.body_bytes_max {
                    return Err(too_large);
                }
                if bytes > limits.replay_bytes_max || !has_place {
                    return Ok(RequestBody::Once(Box::new(Once::new(chunks, bytes, incoming, framing, limits))));
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    // An HTTP/2 stream has no chunks to be faithful to, and now its length is known.
    if head.version >= Version::HTTP_2 && framing == Framing::Chunked && trailers.is_none() {
        framing = Framing::Length(bytes);
    }
    Ok(RequestBody::Replayable(Arc::new(Replay::new(chunks, trailers, framing))))
}

impl Replay {
    /// A body from bytes at hand.
    #[must_use]
    pub fn new(chunks: Vec<Bytes>, trailers: Option<HeaderMap>, framing: Framing) -> Self {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self { chunks, trailers, framing, bytes }
    }

    /// The body's bytes, in the pieces they arrived in.
    #[must_use]
    pub fn chunks(&self) -> &[Bytes] {
        &self.chunks
    }

    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Computed when it is asked for: most bodies are told apart by their JSON, or by nothing.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        if self.chunks.is_empty() {
            return SHA256_OF_NOTHING;
        }
        let mut hasher = Sha256::new();
        self.chunks.iter().for_each(|chunk| hasher.update(chunk));
        hasher.finalize().into()
    }
}

impl Once {
    fn new(chunks: Vec<Bytes>, bytes: u64, rest: Incoming, framing: Framing, limits: BodyLimits) -> Self {
        let mut hasher = Sha256::new();
        for chunk in &chunks {
            hasher.update(chunk);
        }
        Self {
            prefix: chunks.into(),
            rest,
            framing,
            bytes_max: limits.body_bytes_max,
            silence_max: limits.silence_max,
            silent_until: None,
            bytes,
            hasher,
            progress: Arc::default(),
        }
    }

    /// Bytes that the agent declared, where it did.
    #[must_use]
    pub fn declared(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::None | Framing::Chunked => None,
        }
    }

    /// The first bytes, which have been read: what tells one body from another before it is sent, with the length where one
    /// was declared.
    pub fn prefix(&self, bytes_max: u64) -> impl Iterator<Item = &[u8]> {
        let mut left = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        self.prefix.iter().map(move |chunk| {
            let piece = &chunk[..chunk.len().min(left)];
            left -= piece.len();
            piece
        })
    }

    /// Where digest and faults are told, for after the body has been given away.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(chunk) = self.prefix.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.rest).poll_frame(cx) else {
            // Who falls silent in the middle of a body would hold a provider's slot for as long as it likes.
            let until = self.silent_until.get_or_insert_with(|| Box::pin(sleep(self.silence_max)));
            ready!(until.as_mut().poll(cx));
            return Poll::Ready(Some(Err(self.fail(BodyError::silent(self.silence_max)))));
        };
        self.silent_until = None;
        let frame = match frame {
            None => {
                self.progress.digest.get_or_init(|| self.hasher.clone().finalize().into());
                return Poll::Ready(None);
            }
            Some(Err(e)) => return Poll::Ready(Some(Err(self.fail(BodyError::of(&e))))),
            Some(Ok(frame)) => frame,
        };
        if let Some(data) = frame.data_ref() {
            self.bytes += data.len() as u64;
            if self.bytes > self.bytes_max {
                return Poll::Ready(Some(Err(self.fail(BodyError::TooLarge { bytes_max: self.bytes_max }))));
            }
            self.hasher.update(data);
        }
        if self.rest.is_end_stream() {
            self.progress.digest.get_or_init(|| self.hasher.clone().finalize().into());
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn fail(&self, error: BodyError) -> BodyError {
        self.progress.fault.get_or_init(|| error).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_replayable_body_is_the_same_every_time() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "1".parse().unwrap());
        let chunks = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        let body = Arc::new(Replay::new(chunks, Some(trailers.clone()), Framing::Chunked));
        for _ in 0..2 {
            let got = UpstreamBody::replay(&body).collect().await.unwrap();
            assert_eq!(got.trailers(), Some(&trailers));
            assert_eq!(got.to_bytes(), "abc");
        }
        assert_eq!(body.sha256()[..4], [0xba, 0x78, 0x16, 0xbf]);
        let hashed: [u8; 32] = Sha256::digest([]).into();
        assert_eq!(Replay::new(Vec::new(), None, Framing::None).sha256(), hashed);
    }

    #[test]
    fn an_empty_chunked_body_is_not_at_its_end_before_it_was_read() {
        let chunked = Arc::new(Replay::new(Vec::new(), None, Framing::Chunked));
        assert!(!UpstreamBody::replay(&chunked).is_end_stream());
        let none = Arc::new(Replay::new(Vec::new(), None, Framing::None));
        assert!(UpstreamBody::replay(&none).is_end_stream());
    }
}
