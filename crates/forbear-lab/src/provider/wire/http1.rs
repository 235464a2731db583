//! An HTTP/1.1 connection: request after request, each read, decided, answered or broken as scripted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::http1_write::{self, Sent};
use super::reader::{BodyLeft, BodyPart, Head, HeadRead, Reader};
use super::socket::{DRAIN_MS, ResetOnDrop};
use crate::provider::arrival::Fate;
use crate::provider::control;
use crate::provider::exchange::{Exchange, Shared, peer_closed_line};
use crate::provider::request::Request;
use crate::provider::scenario::step::{Afterwards, At, End, Expect, IdleEnd, SocketEnd};

/// What is left of a body after an early answer is read up to this much before the connection is given up.
const LEFTOVER_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    pub(crate) client_port: u16,
    pub(crate) reader: Reader<ReadHalf<Box<dyn Stream>>>,
    pub(crate) writer: WriteHalf<Box<dyn Stream>>,
    pub(crate) reset: ResetOnDrop,
    pub(crate) answered: u64,
    /// Subscribed from the start, so that an order given while a request is under way is not missed.
    pub(crate) close_idle: watch::Receiver<bool>,
}

/// Whether the connection lives on, and how it ends if not.
pub(crate) enum Next {
    Keep(Afterwards),
    Fin,
    Rst,
    /// The peer is gone, or the answer was delimited by closing.
    Gone,
}

impl Connection {
    pub(crate) async fn serve(mut self) {
        let mut afterwards = Afterwards::Keep;
        loop {
            let next = match self.idle(afterwards).await {
                Some(next) => next,
                None => self.request().await,
            };
            match next {
                Next::Keep(chosen) => afterwards = chosen,
                Next::Fin => return self.fin().await,
                Next::Rst => return self.reset.set(),
                Next::Gone => return,
            }
        }
    }

    /// Between two requests. `None` when the next one begins.
    async fn idle(&mut self, afterwards: Afterwards) -> Option<Next> {
        let idle_close_ms = self.shared.world().document.connections.idle_close_ms.filter(|_| self.answered > 0);
        let (after_ms, then) = match afterwards {
            Afterwards::Idle { after_ms, then } => (Some(after_ms), then),
            _ => (idle_close_ms, IdleEnd::Fin),
        };
        let clock = &self.shared.clock;
        if self.reader.is_empty() {
            let wait = async {
                match after_ms {
                    Some(ms) => sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                more = self.reader.fill(clock) => if !more {
                    let at_ns = clock.ns();
                    peer_closed_line(&self.shared, at_ns, self.number, None, None);
                    return Some(Next::Gone);
                },
                () = wait => return Some(self.idle_end(then).await),
                _ = self.close_idle.changed() => {
                    let reset = *self.close_idle.borrow();
                    return Some(if reset { Next::Rst } else { Next::Fin });
                }
            }
        }
        match afterwards {
            Afterwards::OnNextRequest(SocketEnd::Fin) => Some(Next::Fin),
            Afterwards::OnNextRequest(SocketEnd::Rst) => Some(Next::Rst),
            _ => None,
        }
    }

    async fn idle_end(&mut self, then: IdleEnd) -> Next {
        match then {
            IdleEnd::Fin => Next::Fin,
            IdleEnd::Rst => Next::Rst,
            IdleEnd::Stale408 => {
                let stale = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = self.writer.write_all(stale).await;
                Next::Fin
            }
        }
    }

    async fn request(&mut self) -> Next {
        match self.reader.head(&self.shared.clock).await {
            HeadRead::Head(head) if control::is_control(&head.target) => self.control(&head).await,
            HeadRead::Head(head) => self.exchange(head).await,
            HeadRead::Ended => Next::Gone,
            HeadRead::TooLarge { at_ns } => self.refuse(at_ns, 431, "head too large").await,
            HeadRead::Malformed { at_ns, why } => self.refuse(at_ns, 400, &why).await,
        }
    }

    async fn exchange(&mut self, head: Head) -> Next {
        let request = self.to_request(&head);
        let left = body_left(&head);
        let mut exchange = Exchange::arrive(&self.shared, request);
        let Ok(mut left) = left else {
            let status = 400;
            exchange.head_written(self.shared.clock.ns(), status);
            exchange.finish(Fate::BadRequest);
            http1_write::plain(&mut self.writer, status, "body framing that cannot be trusted").await;
            return Next::Fin;
        };
        if let Some(fault) = exchange.fault_at(At::AfterHead) {
            return self.end(exchange, &fault.end, Fate::DroppedAfterHead).await;
        }
        let (early, expect, read_delay_ms) =
            exchange.step().map_or((false, Expect::Auto, 0), |step| (step.early, step.expect, step.read_delay_ms));
        if !early {
            sleep(Duration::from_millis(read_delay_ms)).await;
            let waits = expect == Expect::Auto && exchange.request().has_token("expect", "100-continue");
            if waits && self.reader.is_empty() && !matches!(left, BodyLeft::Nothing | BodyLeft::Length(0)) {
                let _ = self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            }
            if let Err(error) = self.read_body(&mut exchange, &mut left).await {
                return self.body_broken(exchange, &error).await;
            }
        }
        exchange.body_is_read();
        self.act(exchange, &head, left).await
    }

    async fn act(&mut self, mut exchange: Exchange, head: &Head, mut left: BodyLeft) -> Next {
        let (process_ms, abandon) = exchange.step().map_or((0, false), |step| (step.process_ms, step.abandon_on_close));
        if self.wait(&mut exchange, Duration::from_millis(process_ms)).await && abandon {
            exchange.finish(Fate::PeerClosed);
            return Next::Gone;
        }
        if let Some(fault) = exchange.fault_at(At::AfterBody) {
            return self.end(exchange, &fault.end, Fate::DroppedAfterBody).await;
        }
        let mut answer = exchange.commit();
        if let Some(fault) = exchange.fault_at(At::AfterCommit) {
            return self.end(exchange, &fault.end, Fate::DroppedAfterCommit).await;
        }
        if let Some(step) = exchange.step() {
            Arc::make_mut(&mut answer).cut_by(step);
        }
        self.wait(&mut exchange, answer.delay).await;

        let afterwards = exchange.step().map_or(Afterwards::Keep, |step| step.connection);
        let max = self.shared.world().document.connections.max_requests;
        let last = max.is_some_and(|max| self.answered + 1 >= max);
        let http10 = head.http10 && !exchange.request().has_token("connection", "keep-alive");
        let close =
            afterwards == Afterwards::Close || http10 || last || exchange.request().has_token("connection", "close");
        let how = http1_write::How { close, is_head: head.method == "HEAD", http10: head.http10 };
        let sent = {
            let Self { reader, writer, shared, .. } = self;
            http1_write::answer(writer, reader, shared, &mut exchange, &answer, how).await
        };
        self.answered += 1;
        let closed_by_framing = match sent {
            Sent::Whole { must_close } => must_close,
            Sent::Cut(end, fate) => return self.end(exchange, &end, fate).await,
            Sent::PeerGone => {
                exchange.peer_closed(None);
                exchange.finish(Fate::PeerClosed);
                return Next::Gone;
            }
        };
        if let Some(fault) = exchange.fault_at(At::AfterAnswer) {
            let fate = exchange.answered_fate();
            return self.end(exchange, &fault.end, fate).await;
        }
        let drained = close || self.read_leftover(&mut exchange, &mut left).await;
        let fate = exchange.answered_fate();
        exchange.finish(fate);
        match afterwards {
            Afterwards::Rst => Next::Rst,
            _ if close || closed_by_framing || !drained => Next::Fin,
            Afterwards::Close | Afterwards::CloseSilently => Next::Fin,
            kept => Next::Keep(kept),
        }
    }

    async fn body_broken(&mut self, mut exchange: Exchange, error: &io::Error) -> Next {
        exchange.body_is_read();
        if error.kind() == io::ErrorKind::InvalidData {
            exchange.head_written(self.shared.clock.ns(), 400);
            http1_write::plain(&mut self.writer, 400, &error.to_string()).await;
            exchange.finish(Fate::BadRequest);
            return Next::Fin;
        }
        exchange.peer_closed(None);
        exchange.finish(Fate::PeerClosed);
        Next::Gone
    }

    async fn read_body(&mut self, exchange: &mut Exchange, left: &mut BodyLeft) -> io::Result<()> {
        loop {
            match self.reader.body(left, &self.shared.clock).await? {
                BodyPart::Data(chunk) => exchange.body_mut().add(&chunk),
                BodyPart::End(trailers) => {
                    exchange.body_mut().end(trailers);
                    return Ok(());
                }
            }
        }
    }

    /// After an early answer: whether the rest of the body came, so that the connection can go on.
    async fn read_leftover(&mut self, exchange: &mut Exchange, left: &mut BodyLeft) -> bool {
        if matches!(left, BodyLeft::Nothing) {
            return true;
        }
        let mut bytes = 0;
        while bytes < LEFTOVER_BYTES_MAX {
            match self.reader.body(left, &self.shared.clock).await {
                Ok(BodyPart::Data(chunk)) => {
                    bytes += chunk.len() as u64;
                    exchange.body_mut().add(&chunk);
                }
                Ok(BodyPart::End(trailers)) => {
                    exchange.body_mut().end(trailers);
                    exchange.log_body();
                    return true;
                }
                Err(_) => break,
            }
        }
        exchange.log_body();
        false
    }

    /// Waits, noting a peer that leaves meanwhile. Returns whether it left.
    async fn wait(&mut self, exchange: &mut Exchange, duration: Duration) -> bool {
        if duration.is_zero() {
            return self.reader.ended;
        }
        let clock = &self.shared.clock;
        let wait = sleep(duration);
        tokio::pin!(wait);
        tokio::select! {
            biased;
            () = &mut wait => {}
            () = self.reader.until_ended(clock), if !self.reader.ended => {
                exchange.peer_closed(None);
                if !exchange.step().is_some_and(|step| step.abandon_on_close) {
                    wait.await;
                }
            }
        }
        self.reader.ended
    }

    /// Ends the connection as a fault says.
    async fn end(&mut self, mut exchange: Exchange, end: &End, fate: Fate) -> Next {
        match end {
            End::Stall => {
                exchange.body_is_read();
                if !self.reader.ended {
                    self.reader.until_ended(&self.shared.clock).await;
                    exchange.peer_closed(None);
                }
                exchange.finish(Fate::Stalled);
                Next::Gone
            }
            // HTTP/1.1 has no streams to reset and no GOAWAY: the nearest is the connection's end.
            End::Rst | End::ResetStream(_) => {
                exchange.finish(fate);
                Next::Rst
            }
            End::Fin | End::Goaway(_) => {
                exchange.finish(fate);
                Next::Fin
            }
        }
    }

    async fn fin(mut self) {
        let _ = self.writer.shutdown().await;
        let _ = timeout(Duration::from_millis(DRAIN_MS), self.reader.drain(&self.shared.clock)).await;
    }

    async fn control(&mut self, head: &Head) -> Next {
        let mut body = BytesMut::new();
        let Ok(mut left) = body_left(head) else { return Next::Fin };
        loop {
            match self.reader.body(&mut left, &self.shared.clock).await {
                Ok(BodyPart::Data(chunk)) if body.len() + chunk.len() <= control::BODY_BYTES_MAX => {
                    body.extend_from_slice(&chunk);
                }
                Ok(BodyPart::End(_)) => break,
                _ => return Next::Fin,
            }
        }
        let answer = control::answer(&self.shared, &head.method, &head.target, &body);
        match http1_write::control(&mut self.writer, &answer).await {
            Ok(()) => Next::Keep(Afterwards::Keep),
            Err(_) => Next::Gone,
        }
    }

    /// Not a request that could be read: logged as an arrival all the same.
    async fn refuse(&mut self, at_ns: u64, status: u16, why: &str) -> Next {
        let head = Head { at_ns, http10: false, method: String::new(), target: String::new(), headers: Vec::new() };
        let mut exchange = Exchange::arrive(&self.shared, self.to_request(&head));
        exchange.head_written(self.shared.clock.ns(), status);
        exchange.finish(Fate::BadRequest);
        http1_write::plain(&mut self.writer, status, why).await;
        Next::Fin
    }

    fn to_request(&self, head: &Head) -> Request {
        Request {
            at_ns: head.at_ns,
            version: if head.http10 { "HTTP/1.0" } else { "HTTP/1.1" },
            method: head.method.clone(),
            target: head.target.clone(),
            headers: head.headers.clone(),
            path_values: std::collections::BTreeMap::new(),
            credential: String::new(),
            connection: self.number,
            client_port: self.client_port,
            stream: None,
        }
    }
}

/// How long the body is; `Err` where two readers could disagree about it.
fn body_left(head: &Head) -> Result<BodyLeft, ()> {
    let values = |wanted: &str| -> Vec<&str> {
        let named = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.as_str()).collect()
    };
    let (codings, lengths) = (values("transfer-encoding"), values("content-length"));
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(BodyLeft::Nothing),
        ([], [length, rest @ ..]) if rest.iter().all(|other| other == length) => {
            let digits = length.bytes().all(|byte| byte.is_ascii_digit());
            length.parse().ok().filter(|_| digits).map(BodyLeft::Length).ok_or(())
        }
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyLeft::ChunkHead),
        _ => Err(()),
    }
}
