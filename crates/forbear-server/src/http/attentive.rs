//! A provider's socket that can be asked what has come at this very instant.
//!
//! The runtime hears of bytes in its own time, and until then a read says that there are none: a last word which a server
//! has said into an idle connection would be found only after the next request was written, and be taken for the answer to
//! it. Asked, a read that finds nothing asks the kernel itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::socket::Socket;

/// Set while reads are to ask the kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct Asks(Arc<AtomicBool>);

impl Asks {
    /// Does something with the connection while its reads ask the kernel.
    pub(super) fn while_asking<T>(&self, look: impl FnOnce() -> T) -> T {
        self.0.store(true, Ordering::Relaxed);
        let seen = look();
        self.0.store(false, Ordering::Relaxed);
        seen
    }
}

#[derive(Debug)]
pub(super) struct Attentive {
    socket: Socket,
    asks: Asks,
}

impl Attentive {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, asks: Asks::default() }
    }

    pub(super) fn asks(&self) -> Asks {
        self.asks.clone()
    }
}

impl AsyncRead for Attentive {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if read.is_pending() && self.asks.0.load(Ordering::Relaxed) {
            return self.socket.read_now(buf);
        }
        read
    }
}

impl AsyncWrite for Attentive {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
