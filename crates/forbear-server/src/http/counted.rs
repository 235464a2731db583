//! A byte stream that counts what passes: the ground of every claim that a request did not leave.
//!
//! Written bytes are counted when the layer below has taken them, so a counter that did not move proves that nothing went.
//! With TLS there is one counter above it (what the connection gave to rustls) and one below (what the socket took).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes written through one layer.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<AtomicU64>);

impl Written {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Release);
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
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.written.add(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.written.add(bytes);
        Poll::Ready(Ok(bytes))
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
