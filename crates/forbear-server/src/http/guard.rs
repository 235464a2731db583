//! The watch at the listener: follows the framing of every HTTP/1 message an agent sends, before hyper reads it.
//!
//! hyper makes some ambiguous messages unambiguous in silence: it drops a `Content-Length` beside `Transfer-Encoding`,
//! takes a bare line feed for a line end, cuts `#…` off a target. A server behind us might have read the original
//! differently, and a caller who sent it is confused or hostile. So it is refused here, on every request of a connection.
//!
//! It promises that each head which passes has exactly one reading, and that of a refused one not a byte passes. It knows
//! bytes and nothing else: no socket, no clock, no buffer of its own.

use std::mem::MaybeUninit;

use http::StatusCode;

use super::framing::decimal;

/// Bytes of a request line and its fields together.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Fields of one request.
pub const HEADERS_MAX: usize = 100;
/// Bytes of the trailers behind a chunked body, and of all its chunk extensions together.
const TRAILER_BYTES_MAX: u32 = 16 * 1024;
const EXTENSION_BYTES_MAX: u32 = 16 * 1024;
/// Empty lines before a request line that are skipped (RFC 9112 section 2.2).
const LEADING_LINES_MAX: u8 = 4;
/// Digits of a chunk size: what fits 64 bits.
const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// A head that may not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// The last segment of the problem type.
    pub slug: &'static str,
    pub title: &'static str,
    pub detail: &'static str,
}

/// What may be done with bytes that were looked at.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// This many may pass; what is left is the beginning of a head, to be shown again with more behind it.
    Pass(usize),
    /// This many may pass, then comes a head that may not, and nothing after it.
    Refuse(usize, Refusal),
    /// This many may pass, then the body is no body. Its request has passed already, so only the connection can end.
    Broken(usize, &'static str),
}

/// Where in a message the connection is.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    /// Heads that passed.
    heads: u64,
    /// How much of an incomplete head was searched for line ends already.
    searched: usize,
    leading_lines: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Head,
    Fixed(u64),
    Chunked {
        at: Chunk,
        extension_bytes: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size { bytes: u64, digits: u8 },
    Extension { bytes: u64 },
    SizeLf { bytes: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    LineStart { seen: u32 },
    Line { seen: u32 },
    LineLf { seen: u32 },
    EndLf,
}

impl Framing {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many heads have passed.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether the agent is not done sending what it began.
    pub(super) fn is_mid_body(&self) -> bool {
        self.state != State::Head
    }

    /// Looks at the next bytes of the connection.
    pub fn follow(&mut self, bytes: &[u8]) -> Step {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self.state {
                State::Head => match self.head(rest) {
                    Ok(Some(passed)) => passed,
                    Ok(None) => return Step::Pass(at),
                    Err(refusal) => return Step::Refuse(at, refusal),
                },
                State::Fixed(left) => {
                    let passed = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - passed as u64;
                    self.state = if left == 0 { State::Head } else { State::Fixed(left) };
                    passed
                }
                State::Chunked { at: chunk, extension_bytes } => match self.chunk(chunk, extension_bytes, rest) {
                    Ok(passed) => passed,
                    Err(why) => return Step::Broken(at, why),
                },
            };
        }
        Step::Pass(at)
    }

    /// The length of the head at the start of `bytes`, nothing while it is incomplete.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        match bytes {
            [b'\r', b'\n', ..] if self.leading_lines < LEADING_LINES_MAX => {
                self.leading_lines += 1;
                return Ok(Some(2));
            }
            [b'\r'] => return Ok(None),
            [b'\r' | b'\n', ..] => return Err(BARE_LINE_END),
            _ => {}
        }
        // Seen before and incomplete then: parsing again is worth it only if its end is there now.
        if self.searched > 0 && !self.search(bytes)? {
            return within_bounds(bytes).map(|()| None);
        }
        let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let length = match request.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => {
                self.search(bytes)?;
                return within_bounds(bytes).map(|()| None);
            }
            Err(e) => return Err(of_parse_error(e)),
        };
        within_bounds(&bytes[..length])?;
        self.state = inspect(&bytes[..length], &request)?;
        self.heads += 1;
        self.searched = 0;
        self.leading_lines = 0;
        Ok(Some(length))
    }

    /// Looks for the end of a head, and at every line end on the way; what stands behind it is no head's.
    fn search(&mut self, bytes: &[u8]) -> Result<bool, Refusal> {
        let from = self.searched;
        self.searched = bytes.len();
        for (at, _) in bytes.iter().enumerate().skip(from).filter(|(_, b)| **b == b'\n') {
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(BARE_LINE_END);
            }
            if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One step inside a chunked body (RFC 9112 section 7.1, without its tolerances).
    fn chunk(&mut self, chunk: Chunk, mut extension_bytes: u32, rest: &[u8]) -> Result<usize, &'static str> {
        let Some(&byte) = rest.first() else { return Ok(0) };
        let mut passed = 1;
        let next = match (chunk, byte) {
            (Chunk::Data { left }, _) => {
                passed = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - passed as u64;
                if left == 0 { Chunk::DataCr } else { Chunk::Data { left } }
            }
            (Chunk::Size { bytes, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == CHUNK_SIZE_DIGITS_MAX {
                    return Err("a chunk size has too many digits");
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Chunk::Size { bytes: bytes << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Chunk::Size { digits: 0, .. }, _) => return Err("a chunk has no size"),
            (Chunk::Size { bytes, .. }, b';') => Chunk::Extension { bytes },
            (Chunk::Size { bytes, .. } | Chunk::Extension { bytes }, b'\r') => Chunk::SizeLf { bytes },
            (Chunk::Size { .. }, _) => return Err("a chunk size has a byte that is no digit"),
            (Chunk::Extension { .. }, b'\n') => return Err("a chunk extension ends in a bare line feed"),
            (Chunk::Extension { bytes }, _) => {
                extension_bytes += 1;
                if extension_bytes > EXTENSION_BYTES_MAX {
                    return Err("the chunk extensions are too long");
                }
                Chunk::Extension { bytes }
            }
            (Chunk::SizeLf { bytes: 0 }, b'\n') => Chunk::LineStart { seen: 0 },
            (Chunk::SizeLf { bytes }, b'\n') => Chunk::Data { left: bytes },
            (Chunk::DataCr, b'\r') => Chunk::DataLf,
            (Chunk::DataCr, _) => return Err("a chunk is longer than its size"),
            (Chunk::DataLf, b'\n') => Chunk::Size { bytes: 0, digits: 0 },
            (Chunk::LineStart { .. }, b'\r') => Chunk::EndLf,
            (Chunk::LineStart { .. }, b' ' | b'\t') => return Err("a trailer line is folded"),
            (Chunk::LineStart { .. } | Chunk::Line { .. }, b'\n') => return Err("a trailer ends in a bare line feed"),
            (Chunk::Line { seen }, b'\r') => Chunk::LineLf { seen },
            (Chunk::LineStart { seen } | Chunk::Line { seen }, _) => {
                if seen == TRAILER_BYTES_MAX {
                    return Err("the trailers are too long");
                }
                Chunk::Line { seen: seen + 1 }
            }
            (Chunk::LineLf { seen }, b'\n') => Chunk::LineStart { seen },
            (Chunk::EndLf, b'\n') => {
                self.state = State::Head;
                return Ok(1);
            }
            (Chunk::SizeLf { .. } | Chunk::DataLf | Chunk::LineLf { .. } | Chunk::EndLf, _) => {
                return Err("a carriage return stands alone");
            }
        };
        self.state = State::Chunked { at: next, extension_bytes };
        Ok(passed)
    }
}

fn within_bounds(head: &[u8]) -> Result<(), Refusal> {
    if head.len() > HEAD_BYTES_MAX { Err(HEAD_TOO_LARGE) } else { Ok(()) }
}

/// Everything that a complete, parsed head can still be wrong in. Gives the framing of its body.
fn inspect(head: &[u8], request: &httparse::Request<'_, '_>) -> Result<State, Refusal> {
    if !head.ends_with(b"\r\n\r\n") {
        return Err(BARE_LINE_END);
    }
    let (mut hosts, mut length, mut is_chunked) = (0u8, None, false);
    for field in request.headers.iter() {
        // The parser takes a bare line feed for a line end; what stands before each name shows which it was.
        let start = field.name.as_ptr() as usize - head.as_ptr() as usize;
        if start < 2 || head[start - 2..start] != *b"\r\n" {
            return Err(BARE_LINE_END);
        }
        match field.name.len() {
            4 if field.name.eq_ignore_ascii_case("host") => {
                hosts = hosts.saturating_add(1);
                if !field.value.iter().all(|b| is_host_byte(*b)) {
                    return Err(BAD_HOST);
                }
            }
            14 if field.name.eq_ignore_ascii_case("content-length") => {
                let this = decimal(field.value).ok_or(BAD_LENGTH)?;
                if length.is_some_and(|other| other != this) {
                    return Err(TWO_LENGTHS);
                }
                length = Some(this);
            }
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                if is_chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(BAD_TRANSFER_ENCODING);
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    let is_http11 = request.version == Some(1);
    if hosts > 1 || (is_http11 && hosts == 0) {
        return Err(BAD_HOST);
    }
    inspect_target(request.path.unwrap_or(""))?;
    match (is_chunked, length) {
        (true, Some(_)) => Err(LENGTH_AND_CHUNKS),
        (true, None) if !is_http11 => Err(BAD_TRANSFER_ENCODING),
        (true, None) => Ok(State::Chunked { at: Chunk::Size { bytes: 0, digits: 0 }, extension_bytes: 0 }),
        (false, Some(0) | None) => Ok(State::Head),
        (false, Some(bytes)) => Ok(State::Fixed(bytes)),
    }
}

fn inspect_target(target: &str) -> Result<(), Refusal> {
    let mut is_plain = target.starts_with('/');
    for byte in target.bytes() {
        if byte == b'#' {
            return Err(FRAGMENT);
        }
        is_plain &= matches!(byte, b'!' | b'$'..=b';' | b'=' | b'?'..=b'_' | b'a'..=b'z' | b'|' | b'~');
    }
    // Whatever is out of the ordinary is asked of the type that will carry it.
    if is_plain || http::Uri::try_from(target).is_ok() { Ok(()) } else { Err(BAD_TARGET) }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(&byte)
}

fn of_parse_error(e: httparse::Error) -> Refusal {
    match e {
        httparse::Error::TooManyHeaders => TOO_MANY_HEADERS,
        httparse::Error::HeaderName => BAD_FIELD_NAME,
        httparse::Error::HeaderValue => BAD_FIELD_VALUE,
        httparse::Error::NewLine => BARE_LINE_END,
        httparse::Error::Version => BAD_VERSION,
        httparse::Error::Token | httparse::Error::Status => BAD_REQUEST_LINE,
    }
}

const fn malformed(detail: &'static str) -> Refusal {
    Refusal { status: StatusCode::BAD_REQUEST, slug: "malformed-request", title: "The request is malformed", detail }
}

const fn too_large(detail: &'static str) -> Refusal {
    Refusal {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        slug: "head-too-large",
        title: "The request's header fields are too large",
        detail,
    }
}

const HEAD_TOO_LARGE: Refusal = too_large("Request line and header fields together are limited to 64 KiB.");
pub(super) const TOO_MANY_HEADERS: Refusal = too_large("A request is limited to 100 header fields.");
const BARE_LINE_END: Refusal = malformed("A line ends in a bare carriage return or line feed instead of both.");
const BAD_REQUEST_LINE: Refusal = malformed(
    "The request line is not `method target version`, or its target has a byte that must be percent-encoded. TLS is not \
     spoken here: an https:// base URL for this address ends here too.",
);
const BAD_VERSION: Refusal = malformed("The version is neither HTTP/1.1 nor HTTP/1.0.");
const BAD_TARGET: Refusal = malformed("The target has a byte that must be percent-encoded, or is no URL.");
const FRAGMENT: Refusal = malformed("The target has a `#`: a fragment is never sent, and a literal one is %23.");
const BAD_FIELD_NAME: Refusal = malformed(
    "A header line is no `name: value`: it is folded, or has a space before the colon or a byte no name has.",
);
const BAD_FIELD_VALUE: Refusal = malformed("A header value has a control byte.");
const BAD_HOST: Refusal = malformed("An HTTP/1.1 request carries exactly one Host field with a host in it.");
const BAD_LENGTH: Refusal = malformed("Content-Length is not a plain decimal number.");
const TWO_LENGTHS: Refusal = malformed("There are two Content-Length fields with different values.");
const LENGTH_AND_CHUNKS: Refusal = malformed("Content-Length and Transfer-Encoding are both there.");
const BAD_TRANSFER_ENCODING: Refusal =
    malformed("Transfer-Encoding is something else than one `chunked`, or is used with HTTP/1.0.");

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
