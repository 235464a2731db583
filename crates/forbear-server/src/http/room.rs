//! Places for agents' connections, and the room beside them: who comes when all places are taken waits there for one, and is
//! heard at once if it speaks to Forbear itself, so that a crowd of agents never shuts out the person who looks after them.
//!
//! It promises that what waits was read no further than its request line, and that whoever does not say what it wants makes
//! room soon. It refuses nobody with words: a connection that gets no place is closed.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::socket::Socket;

/// Connections that wait for a place.
const WAITING_MAX: usize = 256;
/// How long a waiting connection may take to say what it wants, and to send the rest of its head if that is `/-/`.
pub(super) const SAYS_WITHIN: Duration = Duration::from_secs(1);
/// A request line is looked at up to here; method and the beginning of the target are short.
const LINE_BYTES_MAX: usize = 64;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) struct Room {
    pub(super) places: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The right to be accepted.
pub(super) enum Ticket {
    Place { _place: OwnedSemaphorePermit },
    Waits { _room: OwnedSemaphorePermit, places: Arc<Semaphore> },
}

/// A connection that is served.
pub(super) struct Entered {
    /// What was read of it.
    pub(super) read: Vec<u8>,
    pub(super) is_http2: bool,
    /// It has no place: its one request is for Forbear itself.
    pub(super) is_own: bool,
    _ticket: Ticket,
}

impl Room {
    pub(super) fn new(places: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(places)), waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    pub(super) async fn ticket(&self) -> Option<Ticket> {
        tokio::select! {
            biased;
            place = Arc::clone(&self.places).acquire_owned() => place.ok().map(Ticket::place),
            room = Arc::clone(&self.waiting).acquire_owned() => {
                Some(Ticket::Waits { _room: room.ok()?, places: Arc::clone(&self.places) })
            }
        }
    }
}

impl Ticket {
    pub(super) const fn place(place: OwnedSemaphorePermit) -> Self {
        Self::Place { _place: place }
    }

    /// Reads just enough to tell HTTP/2 from HTTP/1, once there is a place or the request needs none. None: it is to be
    /// closed.
    pub(super) async fn enter(mut self, stream: &mut Socket) -> io::Result<Option<Entered>> {
        let mut read = Vec::with_capacity(1024);
        let mut is_own = false;
        if let Self::Waits { places, .. } = &self {
            let places = Arc::clone(places);
            match wait(&places, stream, &mut read).await? {
                Waited::Place(place) => self = Self::place(place),
                Waited::IsOwn => is_own = true,
                Waited::Silent => return Ok(None),
            }
        }
        let is_http2 = !is_own && is_http2(stream, &mut read).await?;
        Ok(Some(Entered { read, is_http2, is_own, _ticket: self }))
    }
}

enum Waited {
    Place(OwnedSemaphorePermit),
    IsOwn,
    Silent,
}

async fn wait(places: &Arc<Semaphore>, stream: &mut Socket, read: &mut Vec<u8>) -> io::Result<Waited> {
    let mut place = Box::pin(Arc::clone(places).acquire_owned());
    let says_by = Instant::now() + SAYS_WITHIN;
    loop {
        let wants = wants_own(read);
        if wants == Some(true) {
            return Ok(Waited::IsOwn);
        }
        tokio::select! {
            biased;
            place = &mut place => return place.map(Waited::Place).map_err(io::Error::other),
            more = stream.read_buf(read), if wants.is_none() => if more? == 0 { return Ok(Waited::Silent) },
            () = said_nothing(wants, says_by) => return Ok(Waited::Silent),
        }
    }
}

async fn said_nothing(wants: Option<bool>, says_by: Instant) {
    match wants {
        None => sleep_until(says_by).await,
        Some(_) => pending().await,
    }
}

/// Whether a request is for Forbear itself, once that much of its line has come.
fn wants_own(read: &[u8]) -> Option<bool> {
    let line = &read[..read.len().min(LINE_BYTES_MAX)];
    let Some(space) = line.iter().position(|b| *b == b' ') else {
        return (line.len() == LINE_BYTES_MAX).then_some(false);
    };
    const OWN: &[u8] = b"/-/";
    let target = &line[space + 1..];
    let seen = target.len().min(OWN.len());
    match target[..seen] == OWN[..seen] {
        true if seen == OWN.len() => Some(true),
        true => None,
        false => Some(false),
    }
}

async fn is_http2(stream: &mut Socket, read: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let seen = read.len().min(HTTP2_PREFACE.len());
        if read[..seen] != HTTP2_PREFACE[..seen] {
            return Ok(false);
        }
        if seen == HTTP2_PREFACE.len() {
            return Ok(true);
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wants_own;

    #[test]
    fn what_a_request_wants_is_told_by_its_line() {
        for (read, wants) in [
            ("", None),
            ("GET", None),
            ("GET /", None),
            ("GET /-", None),
            ("GET /-/", Some(true)),
            ("DELETE /-/v1/tasks/x HTTP/1.1\r\n", Some(true)),
            ("GET /-x", Some(false)),
            ("GET /p/-/", Some(false)),
            ("PRI * HTTP/2.0\r\n", Some(false)),
            (&"x".repeat(70), Some(false)),
        ] {
            assert_eq!(wants_own(read.as_bytes()), wants, "{read:?}");
        }
    }
}
