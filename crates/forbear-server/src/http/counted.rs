//! A byte stream that counts what passes: the ground of every claim that a request did not leave.
//!
//! Written bytes are counted when the layer below has taken them, so a counter that did not move proves that nothing went.
//! With TLS there is one counter above it (what the connection gave to rustls) and one below (what the socket took).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes written through one layer, and when the peer spoke.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Layer>);

#[derive(Debug, Default)]
struct Layer {
    bytes: AtomicU64,
    /// The last write was not taken whole.
    is_short: AtomicBool,
    /// So many bytes were written when the peer first spoke, or more than ever are.
    heard_at_bytes: AtomicU64,
}

const UNHEARD: u64 = u64::MAX;

impl Written {
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Forgets that the peer spoke.
    pub(super) fn listen(&self) {
        self.0.heard_at_bytes.store(UNHEARD, Ordering::Relaxed);
    }

    /// Nothing was written after the peer first spoke, and nothing was left over then.
    pub(super) fn was_heard_last(&self) -> bool {
        self.0.heard_at_bytes.load(Ordering::Relaxed) == self.bytes() && !self.0.is_short.load(Ordering::Relaxed)
    }

    fn hear(&self) {
        if self.0.heard_at_bytes.load(Ordering::Relaxed) == UNHEARD {
            self.0.heard_at_bytes.store(self.bytes(), Ordering::Relaxed);
        }
    }

    fn add(&self, written: &Poll<io::Result<usize>>, offered: usize) {
        let taken = if let Poll::Ready(Ok(bytes)) = written { *bytes } else { 0 };
        self.0.bytes.fetch_add(taken as u64, Ordering::Release);
        self.0.is_short.store(taken < offered, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Counted<S> {
    inner: S,
    written: Written,
}

impl<S> Counted<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, written: Written::default() }
    }

    pub(super) fn written(&self) -> Written {
        self.written.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.written.hear();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written.add(&written, buf.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written.add(&written, bufs.iter().map(|buf| buf.len()).sum());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
