//! A second reader of requests, as forgiving as servers are met: a bare line feed ends a line, space around names and values is
//! nothing, the last `Content-Length` counts and chunks win over it. Where it reads a message otherwise than a strict reader
//! does, the message has two readings.

/// One request as somebody behind us might read it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// The requests of a connection up to the first that is not whole.
pub(super) fn messages(mut stream: &[u8]) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some((message, length)) = message(stream) {
        all.push(message);
        stream = &stream[length..];
    }
    all
}

fn message(stream: &[u8]) -> Option<(Message, usize)> {
    let mut at = 0;
    let mut request = next_line(stream, &mut at)?;
    while request.is_empty() {
        request = next_line(stream, &mut at)?;
    }
    let mut words = request.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    let (method, target) = (words.next()?.to_vec(), words.next()?.to_vec());
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let line = next_line(stream, &mut at)?;
        if line.is_empty() {
            break;
        }
        match (line.first(), fields.last_mut()) {
            // A folded line goes on with the one before it.
            (Some(b' ' | b'\t'), Some((_, value))) => value.extend_from_slice(line),
            _ => {
                let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
                let value = line.get(colon + 1..).unwrap_or_default();
                fields.push((line[..colon].trim_ascii().to_ascii_lowercase(), value.trim_ascii().to_vec()));
            }
        }
    }
    let (body, length) = body(&fields, &stream[at..])?;
    Some((Message { method, target, fields, body }, at + length))
}

fn next_line<'s>(stream: &'s [u8], at: &mut usize) -> Option<&'s [u8]> {
    let rest = stream.get(*at..)?;
    let end = rest.iter().position(|b| *b == b'\n')?;
    *at += end + 1;
    Some(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]))
}

fn body(fields: &[(Vec<u8>, Vec<u8>)], rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let of = |name: &[u8]| fields.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value);
    if of(b"transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().windows(7).any(|w| w == b"chunked")) {
        return chunks(rest);
    }
    let length = of(b"content-length").map_or(Some(0), |value| str::from_utf8(value).ok()?.trim().parse().ok())?;
    Some((rest.get(..length)?.to_vec(), length))
}

fn chunks(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = next_line(rest, &mut at)?;
        let size = line.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let size = usize::from_str_radix(str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            while !next_line(rest, &mut at)?.is_empty() {}
            return Some((body, at));
        }
        body.extend_from_slice(rest.get(at..at.checked_add(size)?)?);
        at += size;
        next_line(rest, &mut at)?;
    }
}
