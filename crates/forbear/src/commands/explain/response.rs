//! A recorded response as text: status line, fields, an empty line, the body. As `curl -i` writes it, whatever ends its lines.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::failure::{Exit, NotSo};

/// Heads before the last one, as of a redirect that was followed or a `100 Continue`.
const HEADS_MAX: usize = 16;
/// Fields of one head.
const FIELDS_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct Response<'a> {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: &'a [u8],
}

pub(super) fn parse(text: &[u8]) -> Result<Response<'_>, NotSo> {
    let mut left = text;
    for _ in 0..HEADS_MAX {
        let (response, is_last) = head(left)?;
        if is_last {
            return Ok(response);
        }
        left = response.body;
    }
    Err(bad(format!("more than {HEADS_MAX} heads follow each other")))
}

/// One head and what is behind it; not the last one if another follows.
fn head(text: &[u8]) -> Result<(Response<'_>, bool), NotSo> {
    let (first, mut left) = line(text);
    let status = status(first).ok_or_else(|| bad(format!("`{}` is no status line", shown(first))))?;
    let mut headers = HeaderMap::new();
    loop {
        let (field, rest) = line(left);
        left = rest;
        if field.is_empty() {
            break;
        }
        if headers.len() >= FIELDS_MAX {
            return Err(bad(format!("more than {FIELDS_MAX} fields")));
        }
        let (name, value) = split(field).ok_or_else(|| bad(format!("`{}` is no field", shown(field))))?;
        headers.append(name, value);
    }
    let follows = (100..200).contains(&status) || status == 101 || status_of_next(left);
    Ok((Response { status, headers, body: left }, !follows))
}

fn status_of_next(body: &[u8]) -> bool {
    body.starts_with(b"HTTP/") && status(line(body).0).is_some()
}

fn line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|b| *b == b'\n') {
        Some(at) => (text[..at].strip_suffix(b"\r").unwrap_or(&text[..at]), &text[at + 1..]),
        None => (text, &[]),
    }
}

/// `HTTP/1.1 429 Too Many Requests`, `HTTP/2 429`.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let code = rest.split(|b| *b == b' ').nth(1).filter(|code| code.len() == 3)?;
    str::from_utf8(code).ok()?.parse().ok().filter(|status| (100..600).contains(status))
}

fn split(field: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = field.iter().position(|b| *b == b':')?;
    let name = HeaderName::from_bytes(field[..colon].trim_ascii()).ok()?;
    Some((name, HeaderValue::from_bytes(field[colon + 1..].trim_ascii()).ok()?))
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(60)]).escape_debug().to_string()
}

fn bad(happened: String) -> NotSo {
    let to_do = "give a whole response: `HTTP/1.1 429 Too Many Requests`, its fields, an empty line, the body, as \
                 `curl -si` prints it";
    NotSo { exit: Exit::Usage, happened, to_do: to_do.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_as_curl_writes_them() {
        for (text, status, field, body) in [
            ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\n\r\n{}", 429, Some("7"), "{}"),
            ("HTTP/2 429 \nretry-after:7\n\nbody\n", 429, Some("7"), "body\n"),
            ("HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\n\nx", 200, None, "x"),
            ("HTTP/1.1 302 Found\nretry-after: 1\n\nHTTP/2 404\n\n", 404, None, ""),
            ("HTTP/1.1 204 No Content", 204, None, ""),
            ("HTTP/1.1 200 OK\n\nHTTP/ is a protocol", 200, None, "HTTP/ is a protocol"),
        ] {
            let response = parse(text.as_bytes()).unwrap();
            let found = response.headers.get("retry-after").map(|v| v.to_str().unwrap());
            assert_eq!((response.status, found, response.body), (status, field, body.as_bytes()), "{text}");
        }
        for text in
            ["", "{}", "HTTP/1.1 99 x\n\n", "HTTP/1.1 4299\n\n", "HTTP/1.1 200 OK\nno field\n\n", "GET / HTTP/1.1\n"]
        {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.to_do.contains("curl -si"), "{text}");
        }
    }
}
