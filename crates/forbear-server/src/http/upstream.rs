//! One send to a provider, and what the transport proves of it.
//!
//! It promises that evidence is never better than what was seen: `not_sent` only if no byte of the request was taken by
//! the socket (or by the layer above TLS), or the connection gave the request back; `refused` only by HTTP/2 proof; all
//! else is `unknown`; so is an answer on a connection that was open before, if it came before the request had left whole: it
//! may be a last word about something else. `not_after` is checked, and `confirm` asked, immediately before
//! the first byte. It refuses to retry and to follow redirects:
//! the one thing it does twice is to dial, when a kept connection turned out dead and gave the request back untouched.

use std::time::Duration;

use forbear_core::effect::Evidence;
use http::{Request, StatusCode, Version, response};
use tokio::time::{Instant, timeout};

use super::answer::AnswerBody;
use super::body::{BodyError, UpstreamBody};
use super::dial::DialError;
use super::framing;
use super::http1::{self, ExchangeError};
use super::http2;
use super::origin::Origin;
use super::pool::{Pool, Taken};

/// How one send is bounded.
#[derive(Debug, Clone, Copy)]
pub struct SendOptions {
    /// No first byte leaves after this.
    pub not_after: Instant,
    /// Use no connection of HTTP/1.1 that has carried a request: its next bytes may be a late word about something else.
    pub fresh: bool,
    /// For name, address and TLS together.
    pub connect_timeout: Duration,
    /// From the first byte of the request to the head of the answer.
    pub head_timeout: Duration,
}

/// An answer whose head has arrived.
#[derive(Debug)]
pub struct Answer {
    pub head: response::Parts,
    pub body: AnswerBody,
    /// The connection had been open before: its answer may be a late word about something else (a stale 408).
    pub reused: bool,
    pub protocol: Version,
}

/// How far a send got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Connect,
    Tls,
    Send,
    AwaitHead,
}

/// A send without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct SendError {
    pub evidence: Evidence,
    pub stage: Stage,
    /// In words, and without anything of the request's content.
    pub what: String,
    /// The body could not be read from the agent, and that is why.
    pub body_error: Option<BodyError>,
    /// The body, where it was not touched: a body that can be sent only once can be sent after all.
    pub unsent_body: Option<Box<UpstreamBody>>,
    /// The caller did not confirm the send.
    pub held_back: bool,
}

/// Sends a request. Its URI has path and query only, its fields are those of `headers::for_provider`.
///
/// # Errors
/// When no head of an answer arrived, with what is proven of the request.
pub async fn send(
    pool: &Pool,
    origin: &Origin,
    request: Request<UpstreamBody>,
    options: SendOptions,
    confirm: impl Fn() -> bool,
) -> Result<Answer, SendError> {
    let place = pool.place(origin);
    let mut request = Box::new(request);
    let mut fresh = options.fresh;
    if place.warm.is_wanted() {
        place.warm.called(Instant::now());
    }
    let mut taken = place.take(Instant::now(), fresh).map(|taken| (taken, true));
    loop {
        let (connection, reused) = match taken.take() {
            Some(taken) => taken,
            // Boxed: dialling is rare, and its state larger than all the rest.
            None => match Box::pin(pool.dial(origin, &place, options.connect_timeout, fresh)).await {
                Ok(dialed) => dialed,
                Err(DialError { stage, what }) => return Err(SendError::not_sent(stage, what, request)),
            },
        };
        if Instant::now() > options.not_after {
            if let Taken::Http1(http1) = connection {
                place.give_back(http1);
            }
            let what = "the time to send had passed before the first byte";
            return Err(SendError::not_sent(Stage::Connect, what.into(), request));
        }
        // The decision may be old by now: it waited in a mailbox, or dialling took its time.
        if !confirm() {
            if let Taken::Http1(http1) = connection {
                place.give_back(http1);
            }
            let what = "its scope closed before the first byte";
            return Err(SendError { held_back: true, ..SendError::not_sent(Stage::Connect, what.into(), request) });
        }
        match connection {
            Taken::Http1(mut connection) => {
                http1::prepare(&mut request);
                let mark = connection.counts().mark();
                let method = request.method().clone();
                let all_taken = request.body_mut().taken();
                match connection.exchange(*request, options.head_timeout).await {
                    Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                        let what = "the provider switched protocols without being asked";
                        return Err(SendError::new(Evidence::Unknown, Stage::AwaitHead, what.into()));
                    }
                    // It may have been said before there was a request.
                    Ok(_) if reused && !(all_taken.is_so() && connection.counts().was_heard_last()) => {
                        let what =
                            "the connection had been open before, and an answer came before the request had left";
                        return Err(SendError::new(Evidence::Unknown, Stage::AwaitHead, what.into()));
                    }
                    Ok(response) => {
                        let (mut head, incoming) = response.into_parts();
                        let is_plain = framing::settle(&method, &mut head).map_err(SendError::ambiguous)?;
                        // What a head says of bytes that should not be there may still come.
                        let place = (is_plain && !is_last_word(&head, reused)).then_some(place);
                        let body = AnswerBody::http1(&method, &head, incoming, connection, place);
                        return Ok(Answer { head, body, reused, protocol: Version::HTTP_11 });
                    }
                    Err(ExchangeError::Returned(returned, _)) if reused => {
                        request = returned;
                        fresh = true;
                    }
                    Err(ExchangeError::Returned(returned, e)) => {
                        let what = format!("the new connection ended before the request was written: {e}");
                        return Err(SendError::not_sent(Stage::Send, what, returned));
                    }
                    Err(ExchangeError::Failed(e)) => {
                        return Err(SendError::of_http1(&e, connection.counts().nothing_since(mark)));
                    }
                    Err(ExchangeError::NoHead) => {
                        return Err(SendError::no_head(connection.counts().nothing_since(mark)));
                    }
                }
            }
            Taken::Http2(mut connection, slot) => {
                if let Err(e) = http2::prepare(&mut request, origin) {
                    return Err(SendError::not_sent(Stage::Send, format!("no HTTP/2 target: {e}"), request));
                }
                let mark = connection.counts().mark();
                let method = request.method().clone();
                let exchange = connection.exchange(*request, options.not_after);
                match timeout(options.head_timeout, exchange).await {
                    Ok(Ok(exchanged)) => {
                        let (mut head, stream) = exchanged.response.into_parts();
                        framing::settle(&method, &mut head).map_err(SendError::ambiguous)?;
                        let is_bodiless = framing::is_bodiless(&method, head.status);
                        let body = AnswerBody::http2(stream, exchanged.pump, slot, is_bodiless);
                        return Ok(Answer { head, body, reused, protocol: Version::HTTP_2 });
                    }
                    Ok(Err(e)) => {
                        let nothing = connection.counts().nothing_since(mark);
                        let evidence = if nothing { Evidence::NotSent } else { e.evidence };
                        let unsent_body = e.unsent.map(Box::new);
                        return Err(SendError {
                            unsent_body,
                            body_error: e.body_error,
                            ..SendError::new(evidence, Stage::AwaitHead, e.what)
                        });
                    }
                    Err(_) => return Err(SendError::no_head(connection.counts().nothing_since(mark))),
                }
            }
        }
    }
}

/// A server that gave up on an idle connection may say so just when a request comes, and answer that one after all: the
/// late answer would be taken for the next request's.
fn is_last_word(head: &response::Parts, reused: bool) -> bool {
    head.status == StatusCode::REQUEST_TIMEOUT || reused && head.status == StatusCode::BAD_REQUEST
}

impl SendError {
    fn new(evidence: Evidence, stage: Stage, what: String) -> Self {
        Self { evidence, stage, what, body_error: None, unsent_body: None, held_back: false }
    }

    fn not_sent(stage: Stage, what: String, request: Box<Request<UpstreamBody>>) -> Self {
        let unsent_body = Some(Box::new(request.into_body()));
        Self { unsent_body, ..Self::new(Evidence::NotSent, stage, what) }
    }

    /// The answer's head has two readings: nothing that it says is known, and nothing behind it is read.
    fn ambiguous(why: &'static str) -> Self {
        Self::new(Evidence::Unknown, Stage::AwaitHead, format!("the provider's answer is malformed: {why}"))
    }

    fn no_head(nothing_left: bool) -> Self {
        let evidence = if nothing_left { Evidence::NotSent } else { Evidence::Unknown };
        Self::new(evidence, Stage::AwaitHead, "the provider sent no answer in time".into())
    }

    fn of_http1(e: &hyper::Error, nothing_left: bool) -> Self {
        let (evidence, stage) =
            if nothing_left { (Evidence::NotSent, Stage::Send) } else { (Evidence::Unknown, Stage::AwaitHead) };
        let cause = std::error::Error::source(e);
        let body_error = cause.and_then(|c| c.downcast_ref::<BodyError>()).cloned();
        let what = match cause {
            Some(cause) => format!("the connection failed: {e}: {cause}"),
            None => format!("the connection failed: {e}"),
        };
        Self { body_error, ..Self::new(evidence, stage, what) }
    }
}
