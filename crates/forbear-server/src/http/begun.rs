//! An answer whose beginning was read before anybody took it, and that is still fit to be passed on.
//!
//! It promises that what was read comes first, in the pieces in which it came, and the rest after it as it comes. It reads
//! no further than it was asked to.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::answer::{AnswerBody, BodyCut, BodyEnd, BodyEvent, Watcher};

/// The beginning of an answer's body, and what is still to come.
#[derive(Debug)]
pub struct Begun {
    pub(super) frames: VecDeque<Frame<Bytes>>,
    pub(super) rest: Result<Option<AnswerBody>, BodyCut>,
}

/// Reads an answer's body to its end, until more than `bytes_max` are there, or for so long; what is slower comes later.
pub async fn begin(body: AnswerBody, bytes_max: usize, within: Duration) -> Begun {
    begin_until(body, bytes_max, within, |_| false).await
}

/// As [`begin`], and no further than to what is `enough`: the end of the body is then still to come, so that it is told
/// when the agent has it.
pub async fn begin_until(
    mut body: AnswerBody,
    bytes_max: usize,
    within: Duration,
    enough: impl Fn(&Begun) -> bool,
) -> Begun {
    let mut begun = Begun { frames: VecDeque::new(), rest: Ok(None) };
    let (mut bytes, until) = (0, Instant::now() + within);
    while bytes <= bytes_max {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                begun.frames.push_back(frame);
                if enough(&begun) {
                    break;
                }
            }
            Ok(Some(Err(cut))) => return Begun { rest: Err(cut), ..begun },
            Ok(None) => return begun,
            Err(_) => break,
        }
    }
    Begun { rest: Ok(Some(body)), ..begun }
}

impl Begun {
    /// An answer of which nothing was read.
    pub(super) const fn unread(body: AnswerBody) -> Self {
        Self { frames: VecDeque::new(), rest: Ok(Some(body)) }
    }

    /// One that ends here.
    pub(super) const fn cut_off(why: BodyCut) -> Self {
        Self { frames: VecDeque::new(), rest: Err(why) }
    }

    /// What was read, in one piece. Copies only if it came in several.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let mut data = self.frames.iter().filter_map(Frame::data_ref);
        match (data.next(), data.next()) {
            (None, _) => Bytes::new(),
            (Some(only), None) => only.clone(),
            (Some(first), Some(second)) => {
                let mut all = Vec::from(&first[..]);
                all.extend_from_slice(second);
                data.for_each(|piece| all.extend_from_slice(piece));
                all.into()
            }
        }
    }

    /// Whether that was all of it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.rest, Ok(None))
    }

    /// How the body was cut, if it was.
    #[must_use]
    pub fn cut(&self) -> Option<&BodyCut> {
        self.rest.as_ref().err()
    }

    /// Puts a watcher on what is still to come; it hears of an end that has come already.
    #[must_use]
    pub fn watched(mut self, mut watcher: Watcher) -> Self {
        let bytes = self.frames.iter().filter_map(Frame::data_ref).map(|d| d.len() as u64).sum();
        match &mut self.rest {
            Ok(Some(body)) => body.watch(watcher),
            Ok(None) => watcher(BodyEvent::Ended { end: &BodyEnd::Complete, bytes }),
            Err(cut) => watcher(BodyEvent::Ended { end: &BodyEnd::Cut(cut.0.clone()), bytes }),
        }
        self
    }

    /// The next piece: what was read, then the rest as it comes.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        match (self.frames.pop_front(), &mut self.rest) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Ok(Some(body))) => std::pin::Pin::new(body).poll_frame(cx),
            (None, Ok(None)) => Poll::Ready(None),
            (None, Err(cut)) => Poll::Ready(Some(Err(cut.clone()))),
        }
    }

    /// Reads one piece more, and says how many bytes that are; none once all is read.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let Ok(Some(body)) = &mut self.rest else { return Poll::Ready(None) };
        match ready!(std::pin::Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.frames.push_back(frame);
                return Poll::Ready(Some(bytes));
            }
            Some(Err(cut)) => self.rest = Err(cut),
            None => self.rest = Ok(None),
        }
        Poll::Ready(None)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_rest_over = |rest: &Option<AnswerBody>| rest.as_ref().is_none_or(Body::is_end_stream);
        self.frames.is_empty() && self.rest.as_ref().is_ok_and(is_rest_over)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Ok(Some(body)) if self.frames.is_empty() => body.size_hint(),
            // Its length is in the fields if the provider gave one; chunks stay chunks.
            _ => SizeHint::default(),
        }
    }
}
