//! The watch at the listener: the input is what an agent sends over one connection. What passes is read the same by a strict
//! reader and a forgiving one, however it was cut into pieces.

use forbear_server::http::guard::{Framing, HEADERS_MAX, Step};

use super::lenient::{Message, messages};

const PIECES: [usize; 4] = [1, 2, 7, 64];
/// Each piece shows an incomplete head again.
const STREAM_BYTES_MAX: usize = 4 * 1024;

pub(super) fn check(data: &[u8]) {
    let data = &data[..data.len().min(STREAM_BYTES_MAX)];
    let (passed, refused) = follow(data, data.len());
    assert!(data.starts_with(&passed));
    for size in PIECES {
        let (in_pieces, refused_later) = follow(data, size);
        assert_eq!(passed.len(), in_pieces.len(), "in pieces of {size}");
        // A head that came in pieces is judged once it is whole; until then nothing of it passes.
        let is_whole = data[passed.len()..].windows(4).any(|w| w == b"\r\n\r\n");
        assert!(refused == refused_later || (refused && !is_whole), "in pieces of {size}: {refused_later}");
    }
    let (strict, lenient) = (strict(&passed), messages(&passed));
    for (strict, lenient) in strict.iter().zip(&lenient) {
        assert_eq!(strict, lenient, "two readings");
        let of = |name: &[u8]| strict.fields.iter().filter(|(n, _)| n == name).count();
        assert!(of(b"host") <= 1 && of(b"transfer-encoding") <= 1);
        assert!(of(b"transfer-encoding") == 0 || of(b"content-length") == 0);
    }
    assert_eq!(strict.len(), lenient.len(), "{strict:?} and {lenient:?}");
}

/// What passes of a connection whose bytes come in pieces, and whether it was ended.
fn follow(data: &[u8], size: usize) -> (Vec<u8>, bool) {
    let (mut framing, mut held, mut passed) = (Framing::new(), Vec::new(), Vec::new());
    for piece in data.chunks(size.max(1)) {
        held.extend_from_slice(piece);
        let (length, ended) = match framing.follow(&held) {
            Step::Pass(length) => (length, false),
            Step::Refuse(length, refusal) => {
                assert!(refusal.status.is_client_error() && !refusal.detail.is_empty());
                (length, true)
            }
            Step::Broken(length, _) => (length, true),
        };
        passed.extend(held.drain(..length));
        if ended {
            return (passed, true);
        }
    }
    (passed, false)
}

/// The requests as the parser of the server reads them, and bodies by the letter.
fn strict(mut stream: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        while let Some(rest) = stream.strip_prefix(b"\r\n") {
            stream = rest;
        }
        let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(length)) = request.parse(stream) else { return all };
        assert!(ends_lines_in_both(&stream[..length]), "a line ends in one of the two bytes alone");
        let fields: Vec<(Vec<u8>, Vec<u8>)> =
            request.headers.iter().map(|f| (f.name.to_ascii_lowercase().into_bytes(), f.value.to_vec())).collect();
        let Some((body, end)) = strict_body(&fields, &stream[length..]) else { return all };
        all.push(Message {
            method: request.method.unwrap().into(),
            target: request.path.unwrap().into(),
            fields,
            body,
        });
        stream = &stream[length + end..];
    }
}

/// A reader that knows no other line end reads a head with a bare one otherwise.
fn ends_lines_in_both(head: &[u8]) -> bool {
    let follows = |at: usize, byte: u8| head.get(at) == Some(&byte);
    head.iter().enumerate().all(|(at, byte)| match byte {
        b'\n' => at > 0 && follows(at - 1, b'\r'),
        b'\r' => follows(at + 1, b'\n'),
        _ => true,
    })
}

fn strict_body(fields: &[(Vec<u8>, Vec<u8>)], rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let of = |name: &[u8]| fields.iter().find(|(n, _)| n == name).map(|(_, value)| value);
    if of(b"transfer-encoding").is_none() {
        let length = of(b"content-length").map_or(0, |value| str::from_utf8(value).unwrap().parse().unwrap());
        return Some((rest.get(..length)?.to_vec(), length));
    }
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(&rest[at..]).unwrap() else {
            return None;
        };
        at += line;
        if size == 0 {
            let end = if rest[at..].starts_with(b"\r\n") {
                2
            } else {
                rest[at..].windows(4).position(|w| w == b"\r\n\r\n")? + 4
            };
            return Some((body, at + end));
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        body.extend_from_slice(rest.get(at..end)?);
        if rest.get(end..end + 2)? != b"\r\n" {
            panic!("a chunk that does not end where it says passed");
        }
        at = end + 2;
    }
}
