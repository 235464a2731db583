//! A provider that is a listener and a function called once a connection. It counts what comes in and parses only what it
//! must to count: heads, and bodies that came whole.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// What came in.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicUsize,
    pub(crate) heads: AtomicUsize,
    pub(crate) bodies: AtomicUsize,
}

impl Counts {
    pub(crate) fn seen(&self) -> (usize, usize, usize) {
        let of = |n: &AtomicUsize| n.load(Ordering::SeqCst);
        (of(&self.connections), of(&self.heads), of(&self.bodies))
    }

    pub(crate) fn head(&self) {
        self.heads.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn body(&self) {
        self.bodies.fetch_add(1, Ordering::SeqCst);
    }
}

/// One accepted connection.
pub(crate) struct Conn<S = TcpStream> {
    pub(crate) io: S,
    /// Which of the peer's connections it is, from 0.
    pub(crate) n: usize,
    pub(crate) counts: Arc<Counts>,
    /// Has a permit once the agent has read an answer's head.
    pub(crate) head_was_read: Arc<Semaphore>,
    pub(crate) read: Vec<u8>,
}

pub(crate) type Play = Arc<dyn Fn(Conn) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

pub(crate) fn play<F>(peer: impl Fn(Conn) -> F + Send + Sync + 'static) -> Play
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |conn| Box::pin(peer(conn)))
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    pub(crate) head_was_read: Arc<Semaphore>,
    /// A port that is taken, so that nobody else gets it, and not listened on.
    _reserved: Option<TcpSocket>,
}

impl Peer {
    pub(crate) async fn start(play: Play) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, head_was_read) = (Arc::<Counts>::default(), Arc::new(Semaphore::new(0)));
        let peer =
            Self { address, counts: Arc::clone(&counts), head_was_read: Arc::clone(&head_was_read), _reserved: None };
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let n = counts.connections.fetch_add(1, Ordering::SeqCst);
                let (counts, head_was_read) = (Arc::clone(&counts), Arc::clone(&head_was_read));
                tokio::spawn(play(Conn { io, n, counts, head_was_read, read: Vec::new() }));
            }
        });
        peer
    }

    /// An address at which nobody listens.
    pub(crate) fn nobody() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let head_was_read = Arc::new(Semaphore::new(0));
        Self { address, counts: Arc::default(), head_was_read, _reserved: Some(socket) }
    }
}

/// How much is read before the peer does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Bytes have come, and none was taken.
    Nothing,
    Head,
    Whole,
}

/// What becomes of the connection then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Fin,
    Rst,
    /// Reset once the agent has read the head: what was written before is not lost to it.
    RstOnceRead,
    /// The next request is served like this one.
    Keep,
    /// Nothing more, until the other side closes.
    Silence,
}

/// Plays one answer over HTTP/1.1.
pub(crate) fn http1(reads: Reads, writes: impl AsRef<[u8]> + Send + Sync + 'static, ends: Ends) -> Play {
    let writes: Arc<[u8]> = writes.as_ref().into();
    play(move |conn| http1_answer(conn, reads, Arc::clone(&writes), ends))
}

pub(crate) async fn http1_answer<S>(mut conn: Conn<S>, reads: Reads, writes: Arc<[u8]>, ends: Ends)
where
    S: Socket,
{
    loop {
        match reads {
            Reads::Nothing => conn.io.tcp().readable().await.unwrap(),
            Reads::Head => drop(conn.head().await),
            Reads::Whole => {
                let Some(head) = conn.head().await else { return };
                conn.body(&head).await;
            }
        }
        // A peer that closed meanwhile has what it deserves.
        let _ = conn.io.write_all(&writes).await;
        let _ = conn.io.flush().await;
        if ends != Ends::Keep {
            break;
        }
    }
    conn.end(reads, ends).await;
}

/// A stream over a TCP connection.
pub(crate) trait Socket: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl Socket for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl<S: Socket> Conn<S> {
    /// More bytes, or false at the end.
    pub(crate) async fn fill(&mut self) -> bool {
        self.io.read_buf(&mut self.read).await.is_ok_and(|n| n > 0)
    }

    /// The next head, or nothing if the connection ends first.
    pub(crate) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = self.read.drain(..at + 4).collect::<Vec<_>>();
                self.counts.head();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// The body that the head announces.
    pub(crate) async fn body(&mut self, head: &str) -> bool {
        let length = crate::agent::raw_field(head, "content-length").map_or(0, |v| v.parse::<usize>().unwrap());
        while self.read.len() < length {
            if !self.fill().await {
                return false;
            }
        }
        self.read.drain(..length);
        self.counts.body();
        true
    }

    pub(crate) async fn end(mut self, reads: Reads, ends: Ends) {
        match ends {
            Ends::Fin if reads == Reads::Nothing => {}
            Ends::Fin => {
                let _ = self.io.shutdown().await;
                while self.fill().await {}
            }
            Ends::Rst => self.reset(),
            Ends::RstOnceRead => {
                self.head_was_read.acquire().await.unwrap().forget();
                self.reset();
            }
            Ends::Keep | Ends::Silence => while self.fill().await {},
        }
    }

    pub(crate) fn reset(self) {
        self.io.tcp().set_zero_linger().unwrap();
    }
}
