//! Writing HTTP/1.1 answers by hand: exact heads, chosen framing, gaps, trailers, and ends in the middle.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep;

use super::reader::Reader;
use crate::provider::arrival::Fate;
use crate::provider::control::ControlAnswer;
use crate::provider::exchange::{Exchange, Shared};
use crate::provider::render::Rendered;
use crate::provider::scenario::step::{End, Framing};

#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) close: bool,
    pub(crate) is_head: bool,
    pub(crate) http10: bool,
}

pub(crate) enum Sent {
    Whole { must_close: bool },
    Cut(End, Fate),
    PeerGone,
}

/// Sends the answer, noting in the exchange a peer that leaves meanwhile.
pub(crate) async fn answer<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    writer: &mut W,
    reader: &mut Reader<R>,
    shared: &Shared,
    exchange: &mut Exchange,
    answer: &Rendered,
    how: How,
) -> Sent {
    let plan = Plan::new(answer, how);
    for (status, headers, delay) in &answer.informational {
        if !how.http10 {
            sleep(*delay).await;
            let head = head_bytes(*status, None, headers);
            if writer.write_all(&head).await.is_err() {
                return Sent::PeerGone;
            }
        }
    }
    exchange.head_written(shared.clock.ns(), answer.status);
    let mut peer_closed = false;
    let outcome = {
        let writing = write(writer, answer, &plan);
        tokio::pin!(writing);
        loop {
            tokio::select! {
                biased;
                outcome = &mut writing => break outcome,
                () = reader.until_ended(&shared.clock), if !reader.ended => {
                    peer_closed = true;
                    exchange.peer_closed(None);
                }
            }
        }
    };
    match (outcome, &answer.cut) {
        (Err(_), _) => Sent::PeerGone,
        (Ok(()), Some(cut)) => Sent::Cut(cut.end.clone(), cut.fate),
        (Ok(()), None) if peer_closed && reader.ended => Sent::Whole { must_close: true },
        (Ok(()), None) => Sent::Whole { must_close: plan.must_close },
    }
}

struct Plan {
    head: Bytes,
    chunked: bool,
    content: bool,
    must_close: bool,
}

impl Plan {
    fn new(answer: &Rendered, how: How) -> Self {
        if let Some(raw) = &answer.raw {
            let must_close = answer_must_close(raw) || how.close;
            return Self { head: raw.clone(), chunked: false, content: false, must_close };
        }
        let bodiless = matches!(answer.status, 204 | 304);
        let framing = match answer.framing {
            Framing::Chunked if how.http10 => Framing::Close,
            framing => framing,
        };
        let mut headers = answer.headers.clone();
        let own = |name: &str| answer.header(name).is_some();
        let framed = own("content-length") || own("transfer-encoding");
        let mut chunked = framing == Framing::Chunked;
        if !bodiless && !framed {
            match framing {
                Framing::Length | Framing::Auto => {
                    let bytes = answer.declared_bytes.unwrap_or_else(|| answer.content_bytes());
                    headers.push(("Content-Length".to_owned(), bytes.to_string()));
                }
                Framing::Chunked => headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned())),
                Framing::Close => {}
            }
        } else if own("content-length") {
            chunked = false;
        }
        if (how.close || framing == Framing::Close) && !own("connection") {
            headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        Self {
            head: head_bytes(answer.status, answer.reason.as_deref(), &headers),
            chunked,
            content: !bodiless && !how.is_head,
            must_close: how.close || framing == Framing::Close,
        }
    }
}

/// A raw answer whose end only the connection's end can tell.
fn answer_must_close(raw: &[u8]) -> bool {
    let text = raw.to_ascii_lowercase();
    let has = |wanted: &[u8]| text.windows(wanted.len()).any(|window| window == wanted);
    !has(b"content-length:") && !text.ends_with(b"0\r\n\r\n")
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut W, answer: &Rendered, plan: &Plan) -> io::Result<()> {
    if let Some(head_bytes) = answer.cut.as_ref().and_then(|cut| cut.head_bytes) {
        let len = plan.head.len().min(usize::try_from(head_bytes).unwrap_or(usize::MAX));
        writer.write_all(&plan.head[..len]).await?;
        return writer.flush().await;
    }
    let mut pending = BytesMut::from(&plan.head[..]);
    if plan.content {
        for piece in &answer.pieces {
            if piece.gap > Duration::ZERO {
                send(writer, &mut pending).await?;
                sleep(piece.gap).await;
            }
            if plan.chunked {
                pending.extend_from_slice(format!("{:x}\r\n", piece.bytes.len()).as_bytes());
            }
            pending.extend_from_slice(&piece.bytes);
            if plan.chunked {
                pending.put_slice(b"\r\n");
            }
            send(writer, &mut pending).await?;
        }
        if plan.chunked && answer.cut.is_none() {
            pending.put_slice(b"0\r\n");
            push_fields(&mut pending, &answer.trailers);
            pending.put_slice(b"\r\n");
        }
    }
    send(writer, &mut pending).await
}

async fn send<W: AsyncWrite + Unpin>(writer: &mut W, pending: &mut BytesMut) -> io::Result<()> {
    writer.write_all(pending).await?;
    pending.clear();
    writer.flush().await
}

fn head_bytes(status: u16, reason: Option<&str>, headers: &[(String, String)]) -> Bytes {
    let known = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut head = BytesMut::new();
    head.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason.or(known).unwrap_or_default()).as_bytes());
    push_fields(&mut head, headers);
    head.put_slice(b"\r\n");
    head.freeze()
}

fn push_fields(out: &mut BytesMut, fields: &[(String, String)]) {
    for (name, value) in fields {
        out.extend_from_slice(name.as_bytes());
        out.put_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
}

/// A short answer of the provider's own, after which the connection closes.
pub(crate) async fn plain<W: AsyncWrite + Unpin>(writer: &mut W, status: u16, why: &str) {
    let headers = [
        ("Content-Type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        ("Content-Length".to_owned(), why.len().to_string()),
        ("Connection".to_owned(), "close".to_owned()),
    ];
    let mut out = BytesMut::from(&head_bytes(status, None, &headers)[..]);
    out.extend_from_slice(why.as_bytes());
    let _ = send(writer, &mut out).await;
}

pub(crate) async fn control<W: AsyncWrite + Unpin>(writer: &mut W, answer: &ControlAnswer) -> io::Result<()> {
    let headers = [
        ("Content-Type".to_owned(), answer.kind.to_owned()),
        ("Content-Length".to_owned(), answer.body.len().to_string()),
    ];
    let mut out = BytesMut::from(&head_bytes(answer.status, None, &headers)[..]);
    out.extend_from_slice(&answer.body);
    send(writer, &mut out).await
}
