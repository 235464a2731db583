//! The TCP socket below TLS and HTTP, with the one power the others need: to end with a reset instead of a FIN.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// After a FIN of ours the peer has so long to close as well.
pub(crate) const DRAIN_MS: u64 = 1_000;

/// Asks for the socket to be reset when it is dropped, from however many layers above.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResetOnDrop(Arc<AtomicBool>);

impl ResetOnDrop {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Socket {
    stream: TcpStream,
    reset: ResetOnDrop,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> (Self, ResetOnDrop) {
        // Held-back segments would put times into the measurements that are not the scenario's.
        let _ = stream.set_nodelay(true);
        let reset = ResetOnDrop::default();
        (Self { stream, reset: reset.clone() }, reset)
    }

    /// Closes in order: what the peer still sends is read, because closing over it would be a reset.
    pub(crate) async fn fin(&mut self) {
        let _ = self.stream.shutdown().await;
        let mut nowhere = tokio::io::sink();
        let drain = tokio::io::copy(&mut self.stream, &mut nowhere);
        let _ = timeout(Duration::from_millis(DRAIN_MS), drain).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.0.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
