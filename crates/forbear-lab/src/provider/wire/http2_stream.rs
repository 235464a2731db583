//! One HTTP/2 stream: the same walk as an HTTP/1.1 request, with the endings that only HTTP/2 has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::http2::Order;
use super::reader::text;
use super::tap::Wire;
use crate::provider::arrival::Fate;
use crate::provider::control;
use crate::provider::exchange::{Exchange, Shared};
use crate::provider::render::Rendered;
use crate::provider::request::Request;
use crate::provider::scenario::step::{At, End, Expect, Framing, LastStream, Then};

/// Fields that have no place in HTTP/2 (RFC 9113, section 8.2.2).
const CONNECTION_FIELDS: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

pub(crate) struct StreamTask {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: u64,
    pub(crate) client_port: u16,
    pub(crate) stream: u32,
    pub(crate) at_ns: u64,
    pub(crate) request: http::Request<RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
    pub(crate) wire: Wire,
    pub(crate) orders: mpsc::Sender<Order>,
}

/// What is left of a stream after a fault: `None` when it is over.
type GoesOn = Option<(Exchange, SendResponse<Bytes>)>;

impl StreamTask {
    pub(crate) async fn serve(self) {
        let request = self.to_request();
        let Self { shared, stream, request: incoming, mut respond, wire, orders, .. } = self;
        let (_, mut recv) = incoming.into_parts();
        if control::is_control(&request.target) {
            return control(&shared, &request, &mut recv, respond).await;
        }
        let mut exchange = Exchange::arrive(&shared, request);
        let ending = Endings { stream, wire: &wire, orders: &orders };
        if let Some(fault) = exchange.fault_at(At::AfterHead) {
            match ending.end(exchange, respond, None, &fault.end, Fate::DroppedAfterHead).await {
                Some(on) => (exchange, respond) = on,
                None => return,
            }
        }
        let (early, expect, read_delay_ms) =
            exchange.step().map_or((false, Expect::Auto, 0), |step| (step.early, step.expect, step.read_delay_ms));
        if !early {
            sleep(Duration::from_millis(read_delay_ms)).await;
            if expect == Expect::Auto && exchange.request().has_token("expect", "100-continue") {
                let _ = respond.send_informational(head(100, &[]));
            }
            if let Err(code) = read_body(&mut exchange, &mut recv).await {
                exchange.body_is_read();
                exchange.peer_closed(code);
                return exchange.finish(Fate::PeerClosed);
            }
        }
        exchange.body_is_read();
        let (process_ms, abandon) = exchange.step().map_or((0, false), |step| (step.process_ms, step.abandon_on_close));
        let left = wait(&mut exchange, &mut respond, Duration::from_millis(process_ms)).await;
        if left && abandon {
            return exchange.finish(Fate::PeerClosed);
        }
        if let Some(fault) = exchange.fault_at(At::AfterBody) {
            match ending.end(exchange, respond, None, &fault.end, Fate::DroppedAfterBody).await {
                Some(on) => (exchange, respond) = on,
                None => return,
            }
        }
        let mut answer = exchange.commit();
        if let Some(fault) = exchange.fault_at(At::AfterCommit) {
            match ending.end(exchange, respond, None, &fault.end, Fate::DroppedAfterCommit).await {
                Some(on) => (exchange, respond) = on,
                None => return,
            }
        }
        if let Some(step) = exchange.step() {
            Arc::make_mut(&mut answer).cut_by(step);
        }
        wait(&mut exchange, &mut respond, answer.delay).await;
        send(&shared, exchange, respond, &answer, &ending, &mut recv).await;
    }

    fn to_request(&self) -> Request {
        let head = &self.request;
        let target = head.uri().path_and_query().map_or("/", |target| target.as_str());
        let fields = head.headers().iter();
        let mut headers: Vec<(String, String)> =
            fields.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();
        if let Some(authority) = head.uri().authority() {
            headers.insert(0, (":authority".to_owned(), authority.to_string()));
        }
        Request {
            at_ns: self.at_ns,
            version: "HTTP/2",
            method: head.method().to_string(),
            target: target.to_owned(),
            headers,
            path_values: BTreeMap::new(),
            credential: String::new(),
            connection: self.connection,
            client_port: self.client_port,
            stream: Some(self.stream),
        }
    }
}

struct Endings<'a> {
    stream: u32,
    wire: &'a Wire,
    orders: &'a mpsc::Sender<Order>,
}

impl Endings<'_> {
    async fn end(
        &self,
        mut exchange: Exchange,
        mut respond: SendResponse<Bytes>,
        body: Option<SendStream<Bytes>>,
        end: &End,
        fate: Fate,
    ) -> GoesOn {
        match end {
            End::Stall => {
                exchange.body_is_read();
                let code = match body {
                    Some(mut body) => std::future::poll_fn(|cx| body.poll_reset(cx)).await,
                    None => std::future::poll_fn(|cx| respond.poll_reset(cx)).await,
                };
                exchange.peer_closed(code.ok().map(u32::from));
                exchange.finish(Fate::Stalled);
            }
            End::ResetStream(code) => {
                match body {
                    Some(mut body) => body.send_reset(Reason::from(code.0)),
                    None => respond.send_reset(Reason::from(code.0)),
                }
                exchange.finish(if body_was_under_way(fate) { fate } else { Fate::StreamReset });
            }
            End::Fin | End::Rst => {
                exchange.finish(fate);
                let order = if *end == End::Fin { Order::Fin } else { Order::Rst };
                let _ = self.orders.send(order).await;
                hold(body).await;
            }
            End::Goaway(goaway) => {
                let last_stream = match goaway.last_stream {
                    LastStream::Below => self.stream.saturating_sub(2),
                    LastStream::This => self.stream,
                    LastStream::Max => u32::MAX >> 1,
                    LastStream::Number(number) => number,
                };
                let answers = goaway.then == Then::Answer;
                let closes = matches!(goaway.then, Then::Close | Then::Rst);
                let goaway = goaway.clone();
                if answers {
                    let _ = self.orders.send(Order::Goaway { goaway, last_stream, held: None }).await;
                    return Some((exchange, respond));
                }
                exchange.finish(Fate::Goaway);
                let _ = self.orders.send(Order::Goaway { goaway, last_stream, held: Some(respond) }).await;
                if closes {
                    hold(body).await;
                }
            }
        }
        None
    }
}

/// Keeps a stream open until its connection ends and takes this task with it.
async fn hold(body: Option<SendStream<Bytes>>) {
    let _held = body;
    std::future::pending::<()>().await;
}

fn body_was_under_way(fate: Fate) -> bool {
    matches!(fate, Fate::DroppedMidBody | Fate::DroppedMidStream)
}

/// `Err` has the code of the peer's reset, if that is what it was.
async fn read_body(exchange: &mut Exchange, recv: &mut RecvStream) -> Result<(), Option<u32>> {
    let code = |error: h2::Error| error.reason().map(u32::from);
    while let Some(chunk) = recv.data().await {
        let chunk = chunk.map_err(code)?;
        let _ = recv.flow_control().release_capacity(chunk.len());
        exchange.body_mut().add(&chunk);
    }
    let trailers = recv.trailers().await.map_err(code)?.unwrap_or_default();
    let pairs = trailers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())));
    exchange.body_mut().end(pairs.collect());
    Ok(())
}

/// Waits, noting a peer that leaves meanwhile. Returns whether it left.
async fn wait(exchange: &mut Exchange, respond: &mut SendResponse<Bytes>, duration: Duration) -> bool {
    let wait = sleep(duration);
    tokio::pin!(wait);
    tokio::select! {
        biased;
        code = std::future::poll_fn(|cx| respond.poll_reset(cx)) => {
            exchange.peer_closed(code.ok().map(u32::from));
            if !exchange.step().is_some_and(|step| step.abandon_on_close) {
                wait.await;
            }
            true
        }
        () = &mut wait => false,
    }
}

async fn send(
    shared: &Shared,
    mut exchange: Exchange,
    mut respond: SendResponse<Bytes>,
    answer: &Rendered,
    ending: &Endings<'_>,
    recv: &mut RecvStream,
) {
    if answer.raw.is_some() {
        // Raw bytes are HTTP/1.1's; here they can only be a failure.
        respond.send_reset(Reason::INTERNAL_ERROR);
        return exchange.finish(Fate::StreamReset);
    }
    for (status, headers, delay) in &answer.informational {
        wait(&mut exchange, &mut respond, *delay).await;
        let _ = respond.send_informational(head(*status, headers));
    }
    if let Some(cut) = answer.cut.as_ref().filter(|cut| cut.head_bytes.is_some()) {
        ending.end(exchange, respond, None, &cut.end, cut.fate).await;
        return;
    }
    let bodiless = matches!(answer.status, 204 | 304);
    let silent = bodiless || exchange.request().method == "HEAD";
    let mut headers = answer.headers.clone();
    if !bodiless && answer.framing == Framing::Length && answer.header("content-length").is_none() {
        let bytes = answer.declared_bytes.unwrap_or_else(|| answer.content_bytes());
        headers.push(("content-length".to_owned(), bytes.to_string()));
    }
    let empty = silent || (answer.pieces.is_empty() && answer.trailers.is_empty());
    exchange.head_written(shared.clock.ns(), answer.status);
    let ends_with_head = empty && answer.cut.is_none();
    let Ok(mut body) = respond.send_response(head(answer.status, &headers), ends_with_head) else {
        exchange.peer_closed(None);
        return exchange.finish(Fate::PeerClosed);
    };
    let mut sent_bytes = 0;
    if !empty {
        for (i, piece) in answer.pieces.iter().enumerate() {
            let last = i + 1 == answer.pieces.len() && answer.trailers.is_empty() && answer.cut.is_none();
            let sent = match pause(&mut body, piece.gap).await {
                Ok(()) => send_piece(&mut body, piece.bytes.clone(), last).await,
                gone => gone,
            };
            if let Err(code) = sent {
                exchange.peer_closed(code);
                return exchange.finish(Fate::PeerClosed);
            }
            sent_bytes += piece.bytes.len() as u64;
        }
        if !answer.trailers.is_empty() {
            let _ = body.send_trailers(header_map(&answer.trailers));
        }
    }
    if let Some(cut) = &answer.cut {
        ending.wire.until_written(ending.stream, true, sent_bytes).await;
        ending.end(exchange, respond, Some(body), &cut.end, cut.fate).await;
        return;
    }
    ending.wire.until_written(ending.stream, true, sent_bytes).await;
    let fate = exchange.answered_fate();
    if let Some(fault) = exchange.fault_at(At::AfterAnswer) {
        let Some((exchange, _)) = ending.end(exchange, respond, Some(body), &fault.end, fate).await else { return };
        return exchange.finish(fate);
    }
    if !recv.is_end_stream() && read_body(&mut exchange, recv).await.is_ok() {
        exchange.log_body();
    }
    exchange.finish(fate);
}

async fn pause(body: &mut SendStream<Bytes>, gap: Duration) -> Result<(), Option<u32>> {
    if gap.is_zero() {
        return Ok(());
    }
    tokio::select! {
        biased;
        code = std::future::poll_fn(|cx| body.poll_reset(cx)) => Err(code.ok().map(u32::from)),
        () = sleep(gap) => Ok(()),
    }
}

/// Sends within the peer's window; `Err` when the peer is gone.
async fn send_piece(body: &mut SendStream<Bytes>, mut bytes: Bytes, last: bool) -> Result<(), Option<u32>> {
    loop {
        body.reserve_capacity(bytes.len());
        let len = if bytes.is_empty() {
            0
        } else {
            match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                Some(Ok(capacity)) => capacity.min(bytes.len()),
                Some(Err(error)) => return Err(error.reason().map(u32::from)),
                None => return Err(None),
            }
        };
        let part = bytes.split_to(len);
        body.send_data(part, last && bytes.is_empty()).map_err(|error| error.reason().map(u32::from))?;
        if bytes.is_empty() {
            return Ok(());
        }
    }
}

fn head(status: u16, headers: &[(String, String)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    *response.headers_mut() = header_map(headers);
    response
}

fn header_map(fields: &[(String, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let known = HeaderName::from_bytes(name.as_bytes()).ok();
        let value = HeaderValue::from_bytes(value.as_bytes()).ok();
        if let (Some(name), Some(value)) = (known, value)
            && !CONNECTION_FIELDS.contains(&name.as_str())
        {
            map.append(name, value);
        }
    }
    map
}

async fn control(shared: &Arc<Shared>, request: &Request, recv: &mut RecvStream, mut respond: SendResponse<Bytes>) {
    let mut body = Vec::new();
    while let Some(Ok(chunk)) = recv.data().await {
        let _ = recv.flow_control().release_capacity(chunk.len());
        if body.len() + chunk.len() > control::BODY_BYTES_MAX {
            return respond.send_reset(Reason::CANCEL);
        }
        body.extend_from_slice(&chunk);
    }
    let answer = control::answer(shared, &request.method, &request.target, &body);
    let kind = [("content-type".to_owned(), answer.kind.to_owned())];
    if let Ok(mut stream) = respond.send_response(head(answer.status, &kind), false) {
        let _ = send_piece(&mut stream, answer.body, true).await;
    }
}
