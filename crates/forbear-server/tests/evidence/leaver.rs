//! An agent that leaves, and a peer that notes when it hears of it. Both write their bytes by hand, over HTTP/1.1 or HTTP/2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, data, frame, head, reset, settings};
use crate::peer::{Conn, Counts, Play, Reads, play};

/// How an agent leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    Fin,
    Rst,
    /// Only its stream; HTTP/2.
    Stream,
}

pub(crate) struct Leaver {
    conn: Conn,
    is_http2: bool,
}

impl Leaver {
    pub(crate) async fn connect(address: SocketAddr, is_http2: bool) -> Self {
        let io = TcpStream::connect(address).await.unwrap();
        io.set_nodelay(true).unwrap();
        let head_was_read = Arc::new(Semaphore::new(0));
        let mut conn = Conn { io, n: 0, counts: Arc::<Counts>::default(), head_was_read, read: Vec::new() };
        if is_http2 {
            conn.io.write_all(&[PREFACE, &settings(&[])].concat()).await.unwrap();
        }
        Self { conn, is_http2 }
    }

    /// A POST with a body of which all, or half, is sent, and bytes behind it.
    pub(crate) async fn ask(&mut self, path: &str, declared: usize, sent: usize, behind: &str) {
        let bytes = if self.is_http2 {
            let literal =
                |index: &[u8], value: &str| [index, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
            // RFC 7541 appendix A: POST is 3, http 6, `:path` 4, `:authority` 1, `content-length` 28.
            let block = [
                vec![0x83, 0x86],
                literal(&[0x04], path),
                literal(&[0x01], "a"),
                literal(&[0x0f, 28 - 15], &declared.to_string()),
            ]
            .concat();
            let end = if sent == declared { END_STREAM } else { 0 };
            [frame(HEADERS, END_HEADERS, 1, &block), data(1, &vec![b'x'; sent], end)].concat()
        } else {
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {declared}\r\n\r\n");
            [head.into_bytes(), vec![b'x'; sent], behind.as_bytes().to_vec()].concat()
        };
        self.conn.io.write_all(&bytes).await.unwrap();
    }

    /// Reads up to the first piece of the answer's body.
    pub(crate) async fn first_piece(&mut self) {
        if self.is_http2 {
            while self.conn.frame().await.expect("a frame").0 != DATA {}
        } else {
            let has_piece = |read: &[u8]| read.windows(PIECE.len()).any(|w| w == PIECE.as_bytes());
            while !has_piece(&self.conn.read) {
                assert!(self.conn.fill().await, "closed: {}", String::from_utf8_lossy(&self.conn.read));
            }
        }
    }

    /// All that comes until the connection is closed.
    pub(crate) async fn rest(&mut self) -> String {
        while self.conn.fill().await {}
        String::from_utf8_lossy(&self.conn.read).into_owned()
    }

    /// Leaves, and says when.
    pub(crate) async fn leave(mut self, how: Leaves) -> (Instant, Option<Conn>) {
        let at = Instant::now();
        match how {
            Leaves::Fin => drop(self),
            Leaves::Rst => self.conn.reset(),
            Leaves::Stream => {
                self.conn.io.write_all(&reset(1, 8)).await.unwrap();
                return (at, Some(self.conn));
            }
        }
        (at, None)
    }
}

/// A chunk, as it stands.
const PIECE: &str = "1\r\na\r\n";

/// What the peer has seen and may do.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    /// A request, or as much of it as will come, is there.
    pub(crate) arrived: Arc<Semaphore>,
    /// The rest of an answer may be written.
    pub(crate) finish: Arc<Semaphore>,
    /// When the other side was seen to leave an unfinished answer.
    pub(crate) left_at: Arc<Mutex<Option<Instant>>>,
}

impl Default for Watched {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { arrived: none(), finish: none(), left_at: Arc::default() }
    }
}

/// A peer that begins its answer, or not, and waits: for leave to finish it, or for the other side to leave.
pub(crate) fn watching(watched: &Watched, is_http2: bool, reads: Reads, begins: bool) -> Play {
    let watched = watched.clone();
    play(move |conn| {
        let watched = watched.clone();
        async move {
            conn.io.set_nodelay(true).unwrap();
            let left = if is_http2 {
                http2(conn, &watched, reads, begins).await
            } else {
                http1(conn, &watched, reads, begins).await
            };
            if left.is_none() {
                *watched.left_at.lock().unwrap() = Some(Instant::now());
            }
        }
    })
}

/// Nothing if the other side left.
async fn http1(mut conn: Conn, watched: &Watched, reads: Reads, begins: bool) -> Option<()> {
    loop {
        let Some(request) = conn.head().await else { return Some(()) };
        if reads == Reads::Whole {
            conn.body(&request).await;
        }
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        if begins {
            conn.io.write_all(format!("{head}{PIECE}").as_bytes()).await.ok()?;
        }
        watched.arrived.add_permits(1);
        loop {
            tokio::select! {
                more = conn.fill() => if !more { return None },
                permit = watched.finish.acquire() => break permit.unwrap().forget(),
            }
        }
        let rest = if begins { "0\r\n\r\n".to_owned() } else { format!("{head}{PIECE}0\r\n\r\n") };
        conn.io.write_all(rest.as_bytes()).await.ok()?;
    }
}

async fn http2(mut conn: Conn, watched: &Watched, reads: Reads, begins: bool) -> Option<()> {
    conn.io.write_all(&settings(&[])).await.ok()?;
    if !conn.take(PREFACE.len()).await {
        return None;
    }
    loop {
        let Some(stream) = conn.request(reads).await else { return Some(()) };
        let beginning = [head(stream, "200", 0), data(stream, b"a", 0)].concat();
        if begins {
            conn.io.write_all(&beginning).await.ok()?;
        }
        watched.arrived.add_permits(1);
        loop {
            tokio::select! {
                frame = conn.frame() => match frame {
                    Some((RST_STREAM, _, of)) if of == stream => return None,
                    Some(_) => {}
                    None => return None,
                },
                permit = watched.finish.acquire() => break permit.unwrap().forget(),
            }
        }
        if !begins {
            conn.io.write_all(&beginning).await.ok()?;
        }
        conn.io.write_all(&data(stream, b"", END_STREAM)).await.ok()?;
    }
}
