//! A tap on an HTTP/2 connection's bytes, below the `h2` crate: it knows when a request's HEADERS frame began to
//! arrive and what was really written, and it can put a frame of ours between two of `h2`'s, such as a GOAWAY whose
//! last stream lies below one that is open.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::reader::H2_PREFACE;
use crate::provider::exchange::Shared;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const GOAWAY: u8 = 7;
const FRAME_HEAD_BYTES: usize = 9;
/// Streams whose frames are remembered; far more than may be open at once.
const STREAMS_MAX: usize = 8_192;
/// So long is waited for something to be written before an ending goes ahead without it.
const WRITTEN_WAIT_MS: u64 = 2_000;

pub(crate) struct Tap<T> {
    io: T,
    /// What was read before it was clear that this is HTTP/2.
    replay: BytesMut,
    wire: Wire,
    shared: Arc<Shared>,
}

/// The side that the connection and its streams hold.
#[derive(Clone, Default)]
pub(crate) struct Wire {
    state: Arc<Mutex<State>>,
    written: Arc<Notify>,
}

#[derive(Default)]
struct State {
    inbound: Scan,
    outbound: Scan,
    heads_in_ns: BTreeMap<u32, u64>,
    out: BTreeMap<u32, Written>,
    inject: BytesMut,
    /// From now on what `h2` writes is thrown away, and after the injected frames comes a FIN.
    muted: bool,
    shut: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Written {
    heads: u64,
    data_bytes: u64,
}

/// Follows frame boundaries through whatever pieces the bytes come in.
#[derive(Default)]
struct Scan {
    skip: usize,
    head: [u8; FRAME_HEAD_BYTES],
    have: usize,
    payload_left: usize,
    began_ns: u64,
}

enum Seen {
    Head { kind: u8, stream: u32, at_ns: u64 },
    Payload { kind: u8, stream: u32, bytes: u64 },
}

impl Scan {
    fn at_boundary(&self) -> bool {
        self.have == 0 && self.payload_left == 0 && self.skip == 0
    }

    fn feed(&mut self, mut bytes: &[u8], now_ns: u64, mut seen: impl FnMut(Seen)) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.have < FRAME_HEAD_BYTES {
                if self.have == 0 {
                    self.began_ns = now_ns;
                }
                let len = bytes.len().min(FRAME_HEAD_BYTES - self.have);
                self.head[self.have..self.have + len].copy_from_slice(&bytes[..len]);
                self.have += len;
                bytes = &bytes[len..];
                if self.have < FRAME_HEAD_BYTES {
                    return;
                }
                let [a, b, c, ..] = self.head;
                self.payload_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                let (kind, stream) = self.kind_and_stream();
                seen(Seen::Head { kind, stream, at_ns: self.began_ns });
            }
            let len = bytes.len().min(self.payload_left);
            self.payload_left -= len;
            bytes = &bytes[len..];
            let (kind, stream) = self.kind_and_stream();
            seen(Seen::Payload { kind, stream, bytes: len as u64 });
            if self.payload_left == 0 {
                self.have = 0;
            }
        }
    }

    fn kind_and_stream(&self) -> (u8, u32) {
        let [.., kind, _flags, a, b, c, d] = self.head;
        (kind, u32::from_be_bytes([a & 0x7f, b, c, d]))
    }
}

impl<T> Tap<T> {
    pub(crate) fn new(io: T, replay: BytesMut, first_ns: u64, shared: Arc<Shared>) -> (Self, Wire) {
        let wire = Wire::default();
        {
            let mut state = wire.lock();
            state.inbound.skip = H2_PREFACE.len();
            state.note_inbound(&replay, first_ns);
        }
        (Self { io, replay, wire: wire.clone(), shared }, wire)
    }
}

impl State {
    fn note_inbound(&mut self, bytes: &[u8], now_ns: u64) {
        let heads = &mut self.heads_in_ns;
        self.inbound.feed(bytes, now_ns, |seen| {
            if let Seen::Head { kind: HEADERS, stream, at_ns } = seen {
                heads.entry(stream).or_insert(at_ns);
                if heads.len() > STREAMS_MAX {
                    heads.pop_first();
                }
            }
        });
    }

    fn note_outbound(&mut self, bytes: &[u8]) {
        let out = &mut self.out;
        self.outbound.feed(bytes, 0, |seen| match seen {
            Seen::Payload { kind: DATA, stream, bytes } => out.entry(stream).or_default().data_bytes += bytes,
            // Counted with its payload, so that a head counts only when it was written whole.
            Seen::Payload { kind: HEADERS, stream, .. } => out.entry(stream).or_default().heads += 1,
            _ => {}
        });
        while out.len() > STREAMS_MAX {
            out.pop_first();
        }
    }
}

impl Wire {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn head_began_ns(&self, stream: u32) -> Option<u64> {
        self.lock().heads_in_ns.remove(&stream)
    }

    /// Writes a GOAWAY at the next frame boundary.
    pub(crate) fn goaway(&self, last_stream: u32, code: u32) {
        let mut state = self.lock();
        state.inject.put_slice(&[0, 0, 8, GOAWAY, 0]);
        state.inject.put_u32(0);
        state.inject.put_u32(last_stream & 0x7fff_ffff);
        state.inject.put_u32(code);
    }

    /// Nothing more is written but what was injected, and then a FIN.
    pub(crate) fn mute_and_shut(&self) {
        self.lock().muted = true;
    }

    /// Whether everything injected has been written, and the FIN if one is due.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        state.inject.is_empty() && (state.shut || !state.muted)
    }

    /// Returns when so much of a stream has been given to the kernel.
    pub(crate) async fn until_written(&self, stream: u32, heads: bool, data_bytes: u64) {
        let wait = async {
            loop {
                let notified = self.written.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                let written = self.lock().out.get(&stream).copied().unwrap_or_default();
                if (!heads || written.heads > 0) && written.data_bytes >= data_bytes {
                    return;
                }
                notified.await;
            }
        };
        let _ = timeout(Duration::from_millis(WRITTEN_WAIT_MS), wait).await;
    }
}

impl<T: AsyncWrite + Unpin> Tap<T> {
    /// Writes what was injected, if the wire is between two frames.
    fn poll_inject(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut state = self.wire.lock();
            // Muted, `h2`'s unfinished frame will never be finished; a GOAWAY cannot follow it.
            if state.inject.is_empty() || !state.outbound.at_boundary() {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &state.inject))?;
            state.inject.advance(written);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Tap<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.replay.is_empty() {
            let len = self.replay.len().min(buf.remaining());
            buf.put_slice(&self.replay[..len]);
            self.replay.advance(len);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let now_ns = self.shared.clock.ns();
        self.wire.lock().note_inbound(&buf.filled()[before..], now_ns);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tap<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_inject(cx))?;
        let (muted, waiting, left) = {
            let state = self.wire.lock();
            (state.muted && state.outbound.at_boundary(), !state.inject.is_empty(), state.outbound.payload_left)
        };
        if muted {
            return Poll::Ready(Ok(buf.len()));
        }
        // A frame is under way and another waits behind it: no further than its end.
        let len = if waiting && left > 0 { buf.len().min(left) } else { buf.len() };
        let len = if waiting && left == 0 { len.min(1) } else { len };
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &buf[..len]))?;
        self.wire.lock().note_outbound(&buf[..written]);
        self.wire.written.notify_waiters();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_inject(cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        let due = {
            let state = self.wire.lock();
            state.muted && !state.shut && state.inject.is_empty()
        };
        if due {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.wire.lock().shut = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_inject(cx))?;
        if self.wire.lock().shut {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
