//! The body of a provider's answer, relayed frame by frame as it comes, and how it ended.
//!
//! It promises that a cut body is an error to whoever reads it, never an early end, and that the end is reported once:
//! complete, cut, or abandoned by the reader. It refuses to buffer: the reader's pace is the provider's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::{Method, header, response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::ends::Word;
use super::framing;
use super::headers;

use super::http1::Http1;
use super::http2::{Pump, StreamSlot};
use super::incoming::Shared;
use super::pool::Place;
use super::told::Receipt;

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEnd {
    /// To its last byte, as its framing says.
    Complete,
    /// The connection's end was the body's end, and nothing tells whether that was meant.
    UntilClose,
    /// The provider or the network ended it early.
    Cut(String),
    /// The reader did not want the rest.
    Abandoned,
}

/// What a watcher of a body is told.
#[derive(Debug)]
pub enum BodyEvent<'a> {
    Data(&'a Bytes),
    /// The provider's part is over, and ended so; the agent has not taken all of it yet, and so the end is still to come.
    Read(&'a BodyEnd),
    /// The agent left before the end; the rest is still read.
    ReaderLeft,
    Ended {
        end: &'a BodyEnd,
        bytes: u64,
    },
}

/// Called for every piece before it is passed on, and once for the end.
pub type Watcher = Box<dyn FnMut(BodyEvent<'_>) + Send>;

/// The rest of the body will not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the provider's answer was cut: {0}")]
pub struct BodyCut(pub String);

/// A body as it arrives.
pub struct AnswerBody {
    source: Source,
    is_until_close: bool,
    bytes: u64,
    watcher: Option<Watcher>,
    /// Who tells the watcher of a whole body's end, once its bytes have left.
    teller: Option<Teller>,
}

#[derive(Debug)]
pub(super) enum Teller {
    /// The next flush of an HTTP/1 connection.
    Flush(Arc<Shared>),
    /// The last holder of an HTTP/2 answer's receipt.
    Receipt(Arc<Receipt>),
}

enum Source {
    /// Without a place its connection is not kept.
    Http1 {
        incoming: Incoming,
        connection: Option<Box<Http1>>,
        place: Option<Arc<Place>>,
    },
    Http2 {
        stream: Box<RecvStream>,
        pump: Option<Box<Pump>>,
        /// Data would be no content of this answer (RFC 9110 section 6.4.1).
        is_bodiless: bool,
        _slot: StreamSlot,
    },
    Ended,
}

impl AnswerBody {
    pub(super) fn http1(
        method: &Method,
        head: &response::Parts,
        incoming: Incoming,
        connection: Box<Http1>,
        place: Option<Arc<Place>>,
    ) -> Self {
        let has_body = !framing::is_bodiless(method, head.status) && !incoming.is_end_stream();
        let is_framed = incoming.size_hint().exact().is_some() || head.headers.contains_key(header::TRANSFER_ENCODING);
        let source = Source::Http1 { incoming, connection: Some(connection), place };
        let mut body = Self { source, is_until_close: has_body && !is_framed, bytes: 0, watcher: None, teller: None };
        if !has_body {
            // Nobody polls a body that is empty from the start; its connection is free now.
            body.finish(&BodyEnd::Complete);
        }
        body
    }

    pub(super) fn http2(stream: RecvStream, pump: Option<Box<Pump>>, slot: StreamSlot, is_bodiless: bool) -> Self {
        let mut body = Self {
            source: Source::Http2 { stream: Box::new(stream), pump, is_bodiless, _slot: slot },
            is_until_close: false,
            bytes: 0,
            watcher: None,
            teller: None,
        };
        if matches!(&body.source, Source::Http2 { stream, pump: None, .. } if stream.is_end_stream()) {
            body.finish(&BodyEnd::Complete);
        }
        body
    }

    /// Watches the body from here on. Of one that has ended already it hears when that is passed on, or not wanted.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    pub(super) fn told_by(&mut self, teller: Teller) {
        self.teller = Some(teller);
        if matches!(self.source, Source::Ended) {
            self.tell(&BodyEnd::Complete);
        }
    }

    /// Nobody but the watcher hears what is still to come.
    pub fn reader_left(&mut self) {
        self.teller = None;
        if let Some(watcher) = &mut self.watcher {
            watcher(BodyEvent::ReaderLeft);
        }
    }

    fn finish(&mut self, end: &BodyEnd) {
        if let Source::Http1 { connection: Some(connection), place: Some(place), .. } =
            std::mem::replace(&mut self.source, Source::Ended)
            && *end == BodyEnd::Complete
        {
            place.give_back(connection);
        }
        self.tell(end);
    }

    fn tell(&mut self, end: &BodyEnd) {
        let Some(mut watcher) = self.watcher.take() else { return };
        let is_whole = matches!(end, BodyEnd::Complete | BodyEnd::UntilClose);
        let (end, bytes) = (end.clone(), self.bytes);
        let mut tell = move |word: Word| {
            match word {
                Word::Waits => return watcher(BodyEvent::Read(&end)),
                Word::Over(false) => watcher(BodyEvent::ReaderLeft),
                Word::Over(true) => {}
            }
            watcher(BodyEvent::Ended { end: &end, bytes });
        };
        match self.teller.take().filter(|_| is_whole) {
            Some(Teller::Flush(shared)) => shared.ends.after_flush(Box::new(tell)),
            Some(Teller::Receipt(receipt)) => receipt.after(Box::new(tell)),
            None => tell(Word::Over(true)),
        }
    }

    fn completed(&self) -> BodyEnd {
        if self.is_until_close { BodyEnd::UntilClose } else { BodyEnd::Complete }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        let this = self.get_mut();
        match ready!(this.source.poll_frame(cx)) {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    headers::clean_trailers(trailers);
                }
                if let Some(data) = frame.data_ref() {
                    this.bytes += data.len() as u64;
                    if let Some(watcher) = &mut this.watcher {
                        watcher(BodyEvent::Data(data));
                    }
                }
                // A reader that knows the length does not ask again after the last byte.
                if frame.is_trailers() || this.source.is_at_end() {
                    this.finish(&this.completed());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(what)) => {
                this.finish(&BodyEnd::Cut(what.clone()));
                Poll::Ready(Some(Err(BodyCut(what))))
            }
            None => {
                if !matches!(this.source, Source::Ended) {
                    this.finish(&this.completed());
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Ended => true,
            Source::Http1 { incoming, .. } => incoming.is_end_stream(),
            Source::Http2 { stream, .. } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Ended => SizeHint::with_exact(0),
            Source::Http1 { incoming, .. } => incoming.size_hint(),
            Source::Http2 { .. } => SizeHint::default(),
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        match self {
            Self::Ended => Poll::Ready(None),
            Self::Http1 { incoming, connection, .. } => {
                // The body is fed by the connection, which nobody else drives.
                let mut fed = |cx: &mut Context<'_>| Pin::new(&mut *incoming).poll_frame(cx);
                let frame = match connection {
                    Some(running) => running.poll_feeding(cx, fed),
                    None => fed(cx),
                };
                frame.map(|frame| frame.map(|f| f.map_err(|e| words(&e))))
            }
            Self::Http2 { stream, pump, is_bodiless, .. } => {
                if let Some(running) = pump.as_mut()
                    && running.poll(cx).is_ready()
                {
                    *pump = None;
                }
                match ready!(stream.poll_data(cx)) {
                    Some(Ok(data)) => {
                        // What is handed on is the reader's; the window follows the reader's pace.
                        let _ = stream.flow_control().release_capacity(data.len());
                        let data = if *is_bodiless { Bytes::new() } else { data };
                        Poll::Ready(Some(Ok(Frame::data(data))))
                    }
                    Some(Err(e)) => Poll::Ready(Some(Err(format!("HTTP/2: {e}")))),
                    None => match ready!(stream.poll_trailers(cx)) {
                        Ok(trailers) => Poll::Ready(trailers.map(|t| Ok(Frame::trailers(t)))),
                        Err(e) => Poll::Ready(Some(Err(format!("HTTP/2: {e}")))),
                    },
                }
            }
        }
    }

    fn is_at_end(&self) -> bool {
        match self {
            Self::Ended => true,
            Self::Http1 { incoming, .. } => incoming.is_end_stream(),
            Self::Http2 { stream, pump, .. } => pump.is_none() && stream.is_end_stream(),
        }
    }
}

fn words(e: &hyper::Error) -> String {
    std::error::Error::source(e).map_or_else(|| e.to_string(), |cause| format!("{e}: {cause}"))
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if !matches!(self.source, Source::Ended) {
            let end = if self.is_end_stream() { self.completed() } else { BodyEnd::Abandoned };
            self.finish(&end);
        } else {
            self.tell(&BodyEnd::Complete);
        }
    }
}

impl std::fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnswerBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
