//! What goes back to an agent: a provider's answer as it came, or a few words of our own.
//!
//! It promises that status, reason, fields and bytes of an answer are the provider's, but for the fields of the hop and
//! those the caller adds, and that a body which was cut upstream is cut here too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Response, Version, response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Sleep;

use forbear_core::command::Command;

use super::ahead::Ahead;
use super::answer::{AnswerBody, BodyCut, Teller};
use super::begun::Begun;
use super::headers;
use super::incoming::{InCall, Shared};
use super::told::{Piece, Receipt};
use crate::mailbox::Mailbox;

mod own;

pub(super) use own::head_only;
pub use own::refusal;

/// How long the news of a cut is kept back. Whoever hears of it throws away what is still to be written, and the agent is
/// to have every byte that came before.
const CUT_GRACE: Duration = Duration::from_millis(20);

/// How long a write is followed after its agent left: to its answer's head, and then to the end of its body. What it has not
/// said by then is left unknown.
pub(crate) const FOLLOW_MAX: Duration = Duration::from_secs(60);

/// The body of what an agent gets.
#[derive(Debug)]
pub struct AgentBody {
    inner: Inner,
    cut: Option<(BodyCut, Pin<Box<Sleep>>)>,
    keeper: Keeper,
    /// The agent's connection is watched until this is dropped.
    in_call: Option<InCall>,
    /// Over HTTP/2, for a write: held by its pieces, and by itself until all of it is queued.
    receipt: Option<Arc<Receipt>>,
}

/// Who else than its reader ends an answer's body.
#[derive(Debug)]
enum Keeper {
    None,
    /// Nobody: it is read to its end also when the agent leaves, because what a write became must be known.
    Follow,
    /// The core, by word that the attempt is cancelled.
    Cut(Arc<Mailbox>),
    /// The core alone: until it says so, it is read on when the agent leaves, because another call may want it.
    FollowUntilCut(Arc<Mailbox>),
}

#[derive(Debug)]
enum Inner {
    Whole(Option<Bytes>),
    /// Of another part of the server.
    Other(UnsyncBoxBody<Bytes, BodyCut>),
    Answer(AnswerBody),
    /// An answer whose beginning was read before it was decided to pass it on.
    Begun(Begun),
    /// Over HTTP/2, where its stream reads on for an agent that takes nothing.
    Ahead(Arc<Ahead>),
}

impl AgentBody {
    #[must_use]
    pub fn empty() -> Self {
        Inner::Whole(None).into()
    }

    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Inner::Whole((!bytes.is_empty()).then_some(bytes)).into()
    }

    /// The same body, read to its end even if the agent does not want it any more.
    #[must_use]
    pub fn followed(self) -> Self {
        let mut body = self;
        body.keeper = Keeper::Follow;
        body
    }

    /// The same body, whose end, if it is followed, is told only after its last byte has left over HTTP/1.
    #[must_use]
    pub(super) fn told_by(mut self, shared: Arc<Shared>) -> Self {
        if let Some(body) = self.followed_answer() {
            body.told_by(Teller::Flush(shared));
        }
        self
    }

    /// As [`AgentBody::told_by`], over HTTP/2.
    #[must_use]
    pub(super) fn told_by_receipt(mut self, shared: &Arc<Shared>) -> Self {
        if let Some(body) = self.followed_answer() {
            let receipt = Receipt::new(Arc::clone(shared));
            body.told_by(Teller::Receipt(Arc::clone(&receipt)));
            self.receipt = Some(receipt);
        }
        self.inner = match std::mem::replace(&mut self.inner, Inner::Whole(None)) {
            Inner::Answer(body) => Inner::Ahead(Ahead::new(Begun::unread(body))),
            Inner::Begun(begun) => Inner::Ahead(Ahead::new(begun)),
            inner => inner,
        };
        self
    }

    fn followed_answer(&mut self) -> Option<&mut AnswerBody> {
        match &mut self.inner {
            Inner::Answer(body) | Inner::Begun(Begun { rest: Ok(Some(body)), .. })
                if matches!(self.keeper, Keeper::Follow) =>
            {
                Some(body)
            }
            _ => None,
        }
    }

    /// The same body, cut when the mailbox brings word that the attempt is cancelled.
    #[must_use]
    pub fn cut_by(self, mailbox: Arc<Mailbox>) -> Self {
        let mut body = self;
        body.keeper = Keeper::Cut(mailbox);
        body
    }

    /// The same body, which only the mailbox's word cuts, and not that the agent leaves.
    #[must_use]
    pub fn followed_until_cut(self, mailbox: Arc<Mailbox>) -> Self {
        let mut body = self;
        body.keeper = Keeper::FollowUntilCut(mailbox);
        body
    }

    /// The same body, whose call is under way until it is dropped.
    #[must_use]
    pub(super) fn during(self, call: InCall) -> Self {
        let mut body = self;
        body.in_call = Some(call);
        body
    }

    /// Any other body, as of the control API.
    #[must_use]
    pub fn other<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        Inner::Other(body.map_err(|e| BodyCut(e.to_string())).boxed_unsync()).into()
    }

    #[must_use]
    pub fn answer(body: AnswerBody) -> Self {
        Inner::Answer(body).into()
    }

    /// What was read of an answer, then the rest as it comes.
    #[must_use]
    pub fn begun(begun: Begun) -> Self {
        Inner::Begun(begun).into()
    }
}

impl From<Inner> for AgentBody {
    fn from(inner: Inner) -> Self {
        Self { inner, cut: None, keeper: Keeper::None, in_call: None, receipt: None }
    }
}

/// A provider's answer for an agent, with `extra` fields appended.
#[must_use]
pub fn answer(
    head: response::Parts,
    body: AgentBody,
    extra: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
) -> Response<AgentBody> {
    let mut headers = headers::for_agent(head.headers);
    headers.extend(extra.into_iter().map(|(name, value)| (Some(name), value)));
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    // Reason phrase and the spelling of the fields travel here. The version is that of the agent's connection.
    *response.extensions_mut() = head.extensions;
    *response.version_mut() = Version::HTTP_11;
    response
}

impl Body for AgentBody {
    type Data = Piece;
    type Error = BodyCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyCut>>> {
        let this = &mut *self;
        if let Keeper::Cut(mailbox) | Keeper::FollowUntilCut(mailbox) = &this.keeper
            && let Poll::Ready(Command::CancelUpstream { .. }) = mailbox.poll(cx)
        {
            // Letting go of the answer closes its connection and reports its end.
            this.inner = Inner::Begun(Begun::cut_off(BodyCut("it was cancelled".into())));
        }
        let (cut, grace) = match &mut this.cut {
            Some(kept_back) => kept_back,
            None => match ready!(this.inner.poll_frame(cx)) {
                Some(Err(cut)) => this.cut.insert((cut, Box::pin(tokio::time::sleep(CUT_GRACE)))),
                Some(Ok(frame)) => {
                    let receipt = this.receipt.as_ref();
                    return Poll::Ready(Some(Ok(frame.map_data(|data| Piece::new(data, receipt)))));
                }
                None => return Poll::Ready(None),
            },
        };
        ready!(grace.as_mut().poll(cx));
        Poll::Ready(Some(Err(cut.clone())))
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => bytes.is_none(),
            Inner::Other(body) => self.cut.is_none() && body.is_end_stream(),
            Inner::Answer(body) => self.cut.is_none() && body.is_end_stream(),
            Inner::Begun(begun) => self.cut.is_none() && begun.is_end_stream(),
            Inner::Ahead(ahead) => self.cut.is_none() && ahead.with(|begun| begun.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Inner::Other(body) => body.size_hint(),
            Inner::Answer(body) => body.size_hint(),
            Inner::Begun(begun) => begun.size_hint(),
            Inner::Ahead(ahead) => ahead.with(|begun| begun.size_hint()),
        }
    }
}

impl Inner {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        match self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Other(body) => Pin::new(body).poll_frame(cx),
            Self::Answer(body) => Pin::new(body).poll_frame(cx),
            Self::Begun(begun) => begun.poll_frame(cx),
            Self::Ahead(ahead) => ahead.poll_frame(cx),
        }
    }
}

impl Drop for AgentBody {
    fn drop(&mut self) {
        let inner = std::mem::replace(&mut self.inner, Inner::Whole(None));
        let begun = match inner {
            Inner::Answer(body) => Begun::unread(body),
            Inner::Begun(begun) => begun,
            Inner::Ahead(ahead) => ahead.with(|begun| std::mem::replace(begun, Begun::cut_off(BodyCut(String::new())))),
            Inner::Whole(_) | Inner::Other(_) => return,
        };
        if let Some(receipt) = self.receipt.as_ref().filter(|_| !begun.frames.is_empty()) {
            receipt.lose();
        }
        let mailbox = match std::mem::replace(&mut self.keeper, Keeper::None) {
            Keeper::None | Keeper::Cut(_) => return,
            Keeper::Follow => None,
            Keeper::FollowUntilCut(mailbox) => Some(mailbox),
        };
        let Ok(Some(mut rest)) = begun.rest else { return };
        if rest.is_end_stream() {
            return;
        }
        rest.reader_left();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let read = async { while let Some(Ok(_)) = rest.frame().await {} };
                match mailbox {
                    // What it does not say in this time is left unknown.
                    None => drop(tokio::time::timeout(FOLLOW_MAX, read).await),
                    // Those who wait for it have their deadlines.
                    Some(mailbox) => tokio::select! {
                        () = read => {}
                        () = mailbox.cancelled() => {}
                    },
                }
            });
        }
    }
}
