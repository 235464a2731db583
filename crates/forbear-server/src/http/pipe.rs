//! Connections without a kernel: what two ends of a process's own memory say to each other, by the rules of TCP sockets.
//!
//! A [`Network`] has listeners by host and port. It promises what callers of sockets lean on: a refused or unanswered
//! connect, a bounded buffer that makes writers wait, an end that is seen behind unread bytes, a first write after the
//! peer closed that seems to succeed and the reset that follows it, and a reset instead of an end where bytes were left
//! unread. It has no time of its own, so that under a paused clock nothing happens but what somebody waits for.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

/// Bytes on their way in one direction; a writer waits at it.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Connections that no one accepted yet; one more waits.
const BACKLOG_MAX: usize = 128;

type Address = (String, u16);

/// Who listens where. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Network(Arc<Mutex<BTreeMap<Address, mpsc::Sender<Knock>>>>);

/// One address of a network. Dropped, it refuses who waits and who comes.
#[derive(Debug)]
pub struct PipeListener(mpsc::Receiver<Knock>);

/// Somebody wants to connect. Dropped, it is refused; kept, it waits.
#[derive(Debug)]
pub struct Knock(oneshot::Sender<Pipe>);

impl Network {
    /// Begins to listen, in the place of whoever did at this address.
    #[must_use]
    pub fn listen(&self, host: &str, port: u16) -> PipeListener {
        let (knocks, listener) = mpsc::channel(BACKLOG_MAX);
        locked(&self.0).insert((host.to_owned(), port), knocks);
        PipeListener(listener)
    }

    /// Waits until it is let in.
    ///
    /// # Errors
    /// When nobody listens there, or it is refused.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Pipe> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = locked(&self.0).get(&(host.to_owned(), port)).cloned().ok_or_else(refused)?;
        let (knock, let_in) = oneshot::channel();
        listener.send(Knock(knock)).await.map_err(|_| refused())?;
        let_in.await.map_err(|_| refused())
    }
}

impl PipeListener {
    /// The next who knocks; none once no one can any more.
    pub async fn knock(&mut self) -> Option<Knock> {
        self.0.recv().await
    }
}

impl Knock {
    /// Lets it in. None where it has gone.
    #[must_use]
    pub fn accept(self) -> Option<Pipe> {
        let (ours, theirs) = pair();
        self.0.send(theirs).ok().map(|()| ours)
    }
}

/// One end of a connection. Dropped, it closes.
#[derive(Debug)]
pub struct Pipe {
    read: Arc<Mutex<Way>>,
    write: Arc<Mutex<Way>>,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    bytes: VecDeque<u8>,
    /// No more is written.
    ended: bool,
    /// No more is read; the first write after it seems to succeed.
    unread: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[must_use]
pub fn pair() -> (Pipe, Pipe) {
    let (there, back) = (Arc::default(), Arc::default());
    (Pipe { read: Arc::clone(&back), write: Arc::clone(&there) }, Pipe { read: there, write: back })
}

impl Way {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn reset(&mut self) {
        self.reset = true;
        self.bytes.clear();
        self.wake();
    }
}

impl Pipe {
    /// Ends both ways at once; what is on its way is lost.
    pub fn reset(self) {
        locked(&self.read).reset();
        locked(&self.write).reset();
    }

    /// What was written and the peer has not read.
    pub(super) fn unread_bytes(&self) -> usize {
        locked(&self.write).bytes.len()
    }

    /// Whether the peer sends no more, though there may be bytes of it to read.
    pub(super) fn is_read_closed(&self) -> bool {
        let way = locked(&self.read);
        way.ended || way.reset
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut way = locked(&self.read);
        if way.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if way.bytes.is_empty() && !way.ended {
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (front, _) = way.bytes.as_slices();
        let bytes = front.len().min(buf.remaining());
        buf.put_slice(&front[..bytes]);
        way.bytes.drain(..bytes);
        if let Some(writer) = way.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut way = locked(&self.write);
        if way.reset || way.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if way.unread {
            way.reset();
            let bytes = bufs.iter().map(|b| b.len()).sum();
            drop(way);
            locked(&self.read).reset();
            return Poll::Ready(Ok(bytes));
        }
        let mut room = BUFFER_BYTES_MAX - way.bytes.len();
        if room == 0 {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut written = 0;
        for buf in bufs {
            let bytes = buf.len().min(room);
            way.bytes.extend(&buf[..bytes]);
            (room, written) = (room - bytes, written + bytes);
        }
        if let Some(reader) = way.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut way = locked(&self.write);
        way.ended = true;
        way.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut read = locked(&self.read);
        let left_unread = !read.bytes.is_empty();
        read.unread = true;
        read.bytes.clear();
        read.wake();
        drop(read);
        let mut write = locked(&self.write);
        if left_unread {
            write.reset();
        } else {
            write.ended = true;
            write.wake();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn connected() -> (Pipe, Pipe) {
        let network = Network::default();
        let mut listener = network.listen("p", 1);
        let accept = async { listener.knock().await.unwrap().accept().unwrap() };
        let (theirs, ours) = tokio::join!(network.connect("p", 1), accept);
        (theirs.unwrap(), ours)
    }

    #[tokio::test]
    async fn bytes_and_ends_arrive_in_order() {
        let (mut a, mut b) = connected().await;
        a.write_all(b"hello").await.unwrap();
        a.shutdown().await.unwrap();
        let mut read = Vec::new();
        b.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"hello");
        b.write_all(b"back").await.unwrap();
        drop(b);
        read.clear();
        a.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, b"back");
    }

    #[tokio::test]
    async fn a_writer_waits_for_its_reader() {
        let (mut a, mut b) = connected().await;
        let sent = vec![7; 3 * BUFFER_BYTES_MAX];
        let (mut read, wanted) = (Vec::new(), sent.len());
        let write = async {
            a.write_all(&sent).await.unwrap();
            drop(a);
        };
        tokio::join!(write, async { b.read_to_end(&mut read).await.unwrap() });
        assert_eq!(read.len(), wanted);
    }

    #[tokio::test]
    async fn after_the_peer_closed_one_write_seems_to_succeed() {
        let (mut a, b) = connected().await;
        drop(b);
        assert!(a.write(b"x").await.is_ok());
        assert_eq!(a.write(b"y").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(a.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn closing_with_unread_bytes_resets() {
        let (mut a, mut b) = connected().await;
        a.write_all(b"unread").await.unwrap();
        b.write_all(b"answer").await.unwrap();
        drop(b);
        assert_eq!(a.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn who_is_not_let_in_is_refused() {
        let network = Network::default();
        let refused = network.connect("p", 1).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let mut listener = network.listen("p", 1);
        let (refused, ()) = tokio::join!(network.connect("p", 1), async { drop(listener.knock().await) });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
