//! Reading HTTP/1.1 by hand, so that what is logged is what was on the wire, and so that a peer's leaving is seen
//! while an answer is still being made.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::provider::exchange::Clock;
use crate::provider::request::Pairs;

pub(crate) const HEAD_BYTES_MAX: usize = 256 * 1024;
pub(crate) const HEADERS_MAX: usize = 512;
const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
const TRAILER_BYTES_MAX: usize = 64 * 1024;
/// Beyond this much unasked-for input nothing is read ahead, and a peer's leaving is not seen.
const AHEAD_BYTES_MAX: usize = 512 * 1024;
const READ_BYTES: usize = 16 * 1024;

pub(crate) struct Reader<R> {
    half: R,
    buffer: BytesMut,
    /// When the first of the buffered bytes came, as near as reads tell.
    first_ns: u64,
    last_read_ns: u64,
    pub(crate) ended: bool,
}

pub(crate) struct Head {
    pub(crate) at_ns: u64,
    pub(crate) http10: bool,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Pairs,
}

pub(crate) enum HeadRead {
    Head(Head),
    /// The peer left between requests, or within a head.
    Ended,
    TooLarge {
        at_ns: u64,
    },
    Malformed {
        at_ns: u64,
        why: String,
    },
}

pub(crate) enum BodyLeft {
    Nothing,
    Length(u64),
    ChunkHead,
    Chunk(u64),
}

pub(crate) enum BodyPart {
    Data(Bytes),
    End(Pairs),
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(half: R, buffer: BytesMut, first_ns: u64) -> Self {
        Self { half, buffer, first_ns, last_read_ns: first_ns, ended: false }
    }

    /// Reads once. `false` when the peer has ended.
    pub(crate) async fn fill(&mut self, clock: &Clock) -> bool {
        if self.ended {
            return false;
        }
        self.buffer.reserve(READ_BYTES);
        let got = self.half.read_buf(&mut self.buffer).await;
        let (len, before) = (*got.as_ref().unwrap_or(&0), self.buffer.len());
        self.last_read_ns = clock.ns();
        if before == len {
            self.first_ns = self.last_read_ns;
        }
        self.ended = len == 0;
        !self.ended
    }

    /// Returns when the peer has ended; what it sends meanwhile is kept for later.
    pub(crate) async fn until_ended(&mut self, clock: &Clock) {
        while !self.ended {
            if self.buffer.len() > AHEAD_BYTES_MAX {
                std::future::pending::<()>().await;
            }
            self.fill(clock).await;
        }
    }

    /// Reads and forgets until the peer has ended.
    pub(crate) async fn drain(&mut self, clock: &Clock) {
        while self.fill(clock).await {
            self.buffer.clear();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(crate) fn starts_with_preface(&self) -> Option<bool> {
        let len = self.buffer.len().min(H2_PREFACE.len());
        if self.buffer[..len] != H2_PREFACE[..len] {
            return Some(false);
        }
        (len == H2_PREFACE.len()).then_some(true)
    }

    pub(crate) fn into_parts(self) -> (R, BytesMut, u64) {
        (self.half, self.buffer, self.first_ns)
    }

    pub(crate) async fn head(&mut self, clock: &Clock) -> HeadRead {
        loop {
            // Robust servers skip empty lines before a request line.
            while self.buffer.starts_with(b"\r\n") {
                self.consume(2);
            }
            let at_ns = self.first_ns;
            if !self.buffer.is_empty() {
                match parse_head(&self.buffer, at_ns) {
                    Ok(Some((head, len))) => {
                        self.consume(len);
                        return HeadRead::Head(head);
                    }
                    Ok(None) if self.buffer.len() > HEAD_BYTES_MAX => return HeadRead::TooLarge { at_ns },
                    Ok(None) => {}
                    Err(httparse::Error::TooManyHeaders) => return HeadRead::TooLarge { at_ns },
                    Err(error) => return HeadRead::Malformed { at_ns, why: error.to_string() },
                }
            }
            if !self.fill(clock).await {
                return HeadRead::Ended;
            }
        }
    }

    /// The next part of the body, or how it was broken.
    pub(crate) async fn body(&mut self, left: &mut BodyLeft, clock: &Clock) -> io::Result<BodyPart> {
        loop {
            match left {
                BodyLeft::Nothing | BodyLeft::Length(0) => {
                    *left = BodyLeft::Nothing;
                    return Ok(BodyPart::End(Vec::new()));
                }
                BodyLeft::Length(bytes) | BodyLeft::Chunk(bytes) if *bytes > 0 && !self.buffer.is_empty() => {
                    let len = self.buffer.len().min(usize::try_from(*bytes).unwrap_or(usize::MAX));
                    *bytes -= len as u64;
                    let data = self.buffer.split_to(len).freeze();
                    self.first_ns = self.last_read_ns;
                    return Ok(BodyPart::Data(data));
                }
                BodyLeft::Chunk(0) => {
                    if self.buffer.len() >= 2 {
                        if !self.buffer.starts_with(b"\r\n") {
                            return Err(malformed("no line end after a chunk"));
                        }
                        self.consume(2);
                        *left = BodyLeft::ChunkHead;
                        continue;
                    }
                }
                BodyLeft::ChunkHead => match httparse::parse_chunk_size(&self.buffer) {
                    Ok(httparse::Status::Complete((len, 0))) => {
                        if let Some((trailers, end)) = parse_trailers(&self.buffer[len..])? {
                            self.consume(len + end);
                            *left = BodyLeft::Nothing;
                            return Ok(BodyPart::End(trailers));
                        }
                        if self.buffer.len() > TRAILER_BYTES_MAX {
                            return Err(malformed("trailers too large"));
                        }
                    }
                    Ok(httparse::Status::Complete((len, size))) => {
                        self.consume(len);
                        *left = BodyLeft::Chunk(size);
                        continue;
                    }
                    Ok(httparse::Status::Partial) if self.buffer.len() <= CHUNK_LINE_BYTES_MAX => {}
                    _ => return Err(malformed("a chunk size that cannot be read")),
                },
                BodyLeft::Length(_) | BodyLeft::Chunk(_) => {}
            }
            if !self.fill(clock).await {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn consume(&mut self, len: usize) {
        self.buffer.advance(len);
        self.first_ns = self.last_read_ns;
    }
}

pub(crate) const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn parse_head(bytes: &[u8], at_ns: u64) -> Result<Option<(Head, usize)>, httparse::Error> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(len) = request.parse(bytes)? else { return Ok(None) };
    let head = Head {
        at_ns,
        http10: request.version == Some(0),
        method: request.method.unwrap_or_default().to_owned(),
        target: request.path.unwrap_or_default().to_owned(),
        headers: request.headers.iter().map(pair).collect(),
    };
    Ok(Some((head, len)))
}

fn parse_trailers(bytes: &[u8]) -> io::Result<Option<(Pairs, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete((len, fields))) => Ok(Some((fields.iter().map(pair).collect(), len))),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(malformed("trailers that cannot be read")),
    }
}

fn pair(field: &httparse::Header<'_>) -> (String, String) {
    (field.name.to_owned(), text(field.value))
}

/// A field value as text: UTF-8 where it is, otherwise byte by byte, so that nothing is lost.
pub(crate) fn text(value: &[u8]) -> String {
    std::str::from_utf8(value).map_or_else(|_| value.iter().map(|byte| char::from(*byte)).collect(), str::to_owned)
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
