//! Multipart bodies by their parts (RFC 2046 section 5.1): clients draw a new boundary each time they send the same.
//!
//! Reads a body in whatever pieces it is kept in and keeps none of it. It refuses what is not well formed, has something
//! before its first or behind its last part, or is of no known boundary: that is compared by its bytes.

use sha2::{Digest as _, Sha256};

/// RFC 2046 section 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

/// Digests what passes.
#[derive(Debug)]
pub struct Multipart {
    /// The line break before it belongs to it. It has no second carriage return, so that what only began as one is content up
    /// to where it differs.
    delimiter: Vec<u8>,
    /// Bytes of it that were just seen.
    seen: usize,
    at: At,
    part: Sha256,
    parts: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the first delimiter.
    Start,
    Part,
    /// Right behind a delimiter, and in the space that may follow it.
    Delimited,
    Padding,
    LineEnd,
    LastDash,
    Over,
    Broken,
}

impl Multipart {
    /// For a body of this type, if it is multipart and says by what it is cut.
    #[must_use]
    pub fn new(content_type: Option<&str>) -> Option<Self> {
        let mut members = content_type?.split(';').map(str::trim);
        let kind = members.next()?.to_ascii_lowercase();
        let mut boundaries = members.filter_map(|member| {
            let (name, value) = member.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then_some(value.trim())
        });
        let given = boundaries.next()?;
        let boundary = given.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(given);
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&b);
        let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.bytes().all(is_plain);
        if !kind.starts_with("multipart/") || !fits || boundaries.next().is_some() {
            return None;
        }
        let mut parts = Sha256::new();
        // No body read as bytes has this digest.
        parts.update(b"forbear multipart\0");
        parts.update(kind.as_bytes());
        parts.update(b"\0");
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // Before the first one there may be no line break.
        Some(Self { delimiter, seen: 2, at: At::Start, part: Sha256::new(), parts })
    }

    pub fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.at == At::Broken {
                return;
            }
            if self.at == At::Part && self.seen == 0 {
                let plain = bytes.iter().position(|b| *b == b'\r').unwrap_or(bytes.len());
                self.part.update(&bytes[..plain]);
                bytes = &bytes[plain..];
                if plain > 0 {
                    continue;
                }
            }
            self.step(*first);
            bytes = rest;
        }
    }

    fn step(&mut self, byte: u8) {
        self.at = match (self.at, byte) {
            (At::Start | At::Part, byte) => return self.within(byte),
            (At::Delimited, b'-') => At::LastDash,
            (At::Delimited | At::Padding, b' ' | b'\t') => At::Padding,
            (At::Delimited | At::Padding, b'\r') => At::LineEnd,
            (At::LineEnd, b'\n') => At::Part,
            (At::LastDash, b'-') | (At::Over, b' ' | b'\t' | b'\r' | b'\n') => At::Over,
            _ => At::Broken,
        };
    }

    fn within(&mut self, byte: u8) {
        if byte == self.delimiter[self.seen] {
            self.seen += 1;
            if self.seen == self.delimiter.len() {
                self.end_part();
                self.at = At::Delimited;
            }
            return;
        }
        if self.at == At::Start {
            self.at = At::Broken;
            return;
        }
        self.part.update(&self.delimiter[..self.seen]);
        self.seen = usize::from(byte == b'\r');
        if self.seen == 0 {
            self.part.update([byte]);
        }
    }

    fn end_part(&mut self) {
        self.seen = 0;
        if self.at == At::Part {
            let part = std::mem::take(&mut self.part).finalize();
            self.parts.update(part);
        }
    }

    /// The digest of a body that has passed whole.
    #[must_use]
    pub fn whole(self) -> Option<[u8; 32]> {
        (self.at == At::Over).then(|| self.parts.finalize().into())
    }

    /// The digest of a body of which only this much is known: of its whole parts, and of the one that it breaks off in.
    #[must_use]
    pub fn beginning(mut self) -> Option<[u8; 32]> {
        if matches!(self.at, At::Start | At::Broken) {
            return None;
        }
        self.parts.update(b"and then\0");
        self.parts.update(self.part.finalize());
        Some(self.parts.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(kind: &str, body: &str, piece: usize) -> Option<[u8; 32]> {
        let mut parts = Multipart::new(Some(kind))?;
        body.as_bytes().chunks(piece).for_each(|piece| parts.pass(piece));
        parts.whole()
    }

    fn form(boundary: &str, contents: &[&str]) -> String {
        let mut body = String::new();
        for content in contents {
            body += &format!("--{boundary}\r\n\r\n{content}\r\n");
        }
        body + &format!("--{boundary}--\r\n")
    }

    #[test]
    fn the_boundary_does_not_count_and_the_parts_do() {
        let a = of("multipart/form-data; boundary=aaaa", &form("aaaa", &["x", "y\r\n--z"]), 1_000);
        assert!(a.is_some());
        for (kind, boundary) in [
            ("Multipart/Form-Data;charset=utf-8;boundary=\"b b:9\"", "b b:9"),
            ("multipart/form-data; boundary=c", "c"),
        ] {
            assert_eq!(of(kind, &form(boundary, &["x", "y\r\n--z"]), 1_000), a);
        }
        for other in [&["x"][..], &["x", "y\r\n--"], &["xy\r\n--z"], &["y\r\n--z", "x"], &["x", "y\r\n--z", ""]] {
            assert_ne!(of("multipart/form-data; boundary=aaaa", &form("aaaa", other), 1_000), a, "{other:?}");
        }
        assert_ne!(of("multipart/mixed; boundary=aaaa", &form("aaaa", &["x", "y\r\n--z"]), 1_000), a);
    }

    #[test]
    fn what_is_not_well_formed_has_no_parts() {
        let kind = "multipart/form-data; boundary=a";
        for body in [
            "",
            "--a",
            "--a\r\n\r\nx\r\n--a",
            "--a\r\n\r\nx\r\n--a-\r\n",
            "before\r\n--a\r\n\r\nx\r\n--a--",
            "--a\r\n\r\nx\r\n--a--\r\nbehind",
            "--a\r\n\r\nx\r\n--ab\r\n\r\ny\r\n--a--",
            "--b\r\n\r\nx\r\n--b--",
        ] {
            assert_eq!(of(kind, body, 3), None, "{body:?}");
        }
        for kind in [
            "multipart/form-data",
            "text/plain; boundary=a",
            "multipart/mixed; boundary=",
            "multipart/mixed; boundary=a; boundary=b",
            "multipart/mixed; boundary=\u{e4}",
        ] {
            assert!(Multipart::new(Some(kind)).is_none(), "{kind}");
        }
        assert!(Multipart::new(None).is_none());
        assert!(Multipart::new(Some(&format!("multipart/mixed; boundary={}", "a".repeat(71)))).is_none());
    }

    #[test]
    fn of_a_beginning_the_parts_so_far_count() {
        let of = |boundary: &str, body: &str, bytes: usize| {
            let mut parts = Multipart::new(Some(&format!("multipart/form-data; boundary={boundary}")))?;
            parts.pass(&body.as_bytes()[..bytes]);
            parts.beginning()
        };
        let (a, b, c) = (form("aa", &["x", "yyyy"]), form("bb", &["x", "yyyy"]), form("aa", &["x", "zyyy"]));
        let mut seen = Vec::new();
        for bytes in 4..a.len() {
            assert_eq!(of("aa", &a, bytes), of("bb", &b, bytes), "{bytes}");
            seen.push(of("aa", &a, bytes) == of("aa", &c, bytes));
        }
        let differs = a.find("yyyy").unwrap() - 4;
        assert!(seen[..=differs].iter().all(|equal| *equal) && !seen[differs + 1..].contains(&true), "{seen:?}");
        assert_eq!(of("aa", &a, 3), None);
    }

    proptest! {
        #[test]
        fn how_it_is_cut_into_pieces_does_not_count(body in "(--a|\r\n|-|x|a){0,30}", piece in 1_usize..9) {
            let whole = format!("--a\r\n{body}\r\n--a--");
            prop_assert_eq!(of("multipart/mixed; boundary=a", &whole, piece), of("multipart/mixed; boundary=a", &whole, 1_000));
        }
    }
}
