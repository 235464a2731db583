//! A provider that writes HTTP/2 frames by hand. It reads only as much of the other side's frames as it takes to count
//! requests and bodies.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;

use crate::peer::{Conn, Ends, Play, Reads, Socket, play};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD_BYTES: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// The highest stream there can be.
pub(crate) const STREAM_MAX: u32 = (1 << 31) - 1;

pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect();
    frame(SETTINGS, 0, 0, &payload)
}

pub(crate) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(crate) fn goaway(last_stream: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last_stream.to_be_bytes(), code.to_be_bytes()].concat())
}

/// A block of fields: a status, and a length where one is given.
pub(crate) fn fields(status: &str, length: Option<&str>) -> Vec<u8> {
    // RFC 7541 section 6.2.2, with the names of the static table: 8 is `:status`, 28 `content-length`.
    let literal = |index: &[u8], value: &str| [index, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let mut block = literal(&[0x08], status);
    if let Some(length) = length {
        block.extend(literal(&[0x0f, 28 - 15], length));
    }
    block
}

pub(crate) fn head(stream: u32, status: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &fields(status, None))
}

pub(crate) fn data(stream: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(DATA, flags, stream, bytes)
}

/// A whole answer.
pub(crate) fn ok(stream: u32) -> Vec<u8> {
    [head(stream, "200", 0), data(stream, b"ok", END_STREAM)].concat()
}

/// Plays what `answers` makes of each request's stream.
pub(crate) fn http2(
    first: Vec<u8>,
    reads: Reads,
    answers: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
    ends: Ends,
) -> Play {
    let (first, answers) = (Arc::new(first), Arc::new(answers));
    play(move |conn| {
        let (first, answers) = (Arc::clone(&first), Arc::clone(&answers));
        async move { http2_answer(conn, &first, reads, &*answers, ends).await }
    })
}

pub(crate) async fn http2_answer<S: Socket>(
    mut conn: Conn<S>,
    first: &[u8],
    reads: Reads,
    answers: &(dyn Fn(u32) -> Vec<u8> + Send + Sync),
    ends: Ends,
) {
    let _ = conn.io.write_all(first).await;
    let _ = conn.io.flush().await;
    if !conn.take(PREFACE.len()).await {
        return;
    }
    loop {
        let Some(stream) = conn.request(reads).await else { return };
        let _ = conn.io.write_all(&answers(stream)).await;
        let _ = conn.io.flush().await;
        if ends != Ends::Keep {
            break;
        }
    }
    conn.end(reads, ends).await;
}

impl<S: Socket> Conn<S> {
    pub(crate) async fn take(&mut self, bytes: usize) -> bool {
        while self.read.len() < bytes {
            if !self.fill().await {
                return false;
            }
        }
        self.read.drain(..bytes);
        true
    }

    /// Kind, flags and stream of the next frame. SETTINGS are acknowledged on the way.
    pub(crate) async fn frame(&mut self) -> Option<(u8, u8, u32)> {
        while self.read.len() < FRAME_HEAD_BYTES {
            if !self.fill().await {
                return None;
            }
        }
        let length = u32::from_be_bytes([0, self.read[0], self.read[1], self.read[2]]) as usize;
        let (kind, flags) = (self.read[3], self.read[4]);
        let stream = u32::from_be_bytes([self.read[5], self.read[6], self.read[7], self.read[8]]);
        if !self.take(FRAME_HEAD_BYTES + length).await {
            return None;
        }
        if kind == SETTINGS && flags & ACK == 0 {
            let _ = self.io.write_all(&frame(SETTINGS, ACK, 0, &[])).await;
            let _ = self.io.flush().await;
        }
        Some((kind, flags, stream))
    }

    /// The stream of the next request, once its head, or all of it, has come.
    pub(crate) async fn request(&mut self, reads: Reads) -> Option<u32> {
        loop {
            let (kind, flags, stream) = self.frame().await?;
            let is_end = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if kind == HEADERS {
                self.counts.head();
            }
            if is_end {
                self.counts.body();
            }
            if is_end || (kind == HEADERS && reads == Reads::Head) {
                return Some(stream);
            }
        }
    }
}
