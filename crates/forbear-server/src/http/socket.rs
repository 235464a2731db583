//! What carries a connection's bytes: a TCP socket, or a pipe inside the process. Which one is asked once a call, and
//! costs nothing that could be measured.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::pipe::{Network, Pipe, PipeListener};

/// Where agents come from.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Pipes(PipeListener),
}

/// How providers are reached.
#[derive(Debug, Clone, Default)]
pub enum Dialler {
    #[default]
    Tcp,
    Pipes(Network),
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Pipe(Pipe),
}

/// What a peer in the same process is called.
const IN_PROCESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Pipes(_) => Ok(IN_PROCESS),
        }
    }

    pub(super) async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, from)| (Socket::Tcp(stream), from)),
            Self::Pipes(listener) => loop {
                let Some(knock) = listener.knock().await else { std::future::pending().await };
                if let Some(pipe) = knock.accept() {
                    return Ok((Socket::Pipe(pipe), IN_PROCESS));
                }
            },
        }
    }
}

impl Socket {
    /// Small pieces must not wait for the acknowledgement of earlier ones.
    pub(super) fn set_nodelay(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
        }
    }

    /// Whether the peer has closed or reset the connection by now, as the kernel knows it.
    pub(super) fn has_left(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
                let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
                poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
                    && asked[0].revents().intersects(gone)
            }
            Self::Pipe(pipe) => pipe.is_read_closed(),
        }
    }

    /// What was written and the peer has not acknowledged; of a pipe, what the peer has not read.
    pub(super) fn unacknowledged_bytes(&self) -> Option<u64> {
        match self {
            Self::Tcp(stream) => forbear_kernel::unacknowledged_bytes(stream),
            Self::Pipe(pipe) => Some(pipe.unread_bytes() as u64),
        }
    }

    /// What is there now, though the runtime may not have heard of it. A pipe's runtime is the peer's own.
    pub(super) fn read_now(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self::Tcp(stream) = self else { return Poll::Pending };
        match rustix::net::recv(stream, buf.initialize_unfilled(), RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => {
                buf.advance(bytes);
                Poll::Ready(Ok(()))
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => Poll::Pending,
            Err(e) => Poll::Ready(Err(e.into())),
        }
    }

    /// Whether the peer sends no more, also behind bytes that were not read yet.
    pub(super) fn is_read_closed(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => {
                let ready = pin!(stream.ready(Interest::READABLE)).poll(cx);
                matches!(ready, Poll::Ready(Ok(r)) if r.is_read_closed())
            }
            Self::Pipe(pipe) => pipe.is_read_closed(),
        }
    }
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Socket::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Socket::Pipe(pipe) => {
                let $stream = Pin::new(pipe);
                $call
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, s => s.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => s.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Pipe(pipe) => pipe.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_shutdown(cx))
    }
}
