//! Provider bytes made fit for a record: cut, printable, never interpreted.

use http::{HeaderMap, HeaderValue};

/// Bytes of a raw value that a record keeps.
pub(super) const RAW_BYTES_MAX: usize = 128;
/// Lines of one field that are read; more than that is noise, and the rest is ignored.
pub(super) const FIELD_LINES_MAX: usize = 16;
/// Malformed signals that one answer's record keeps.
pub(super) const MALFORMED_MAX: usize = 16;

/// The bytes as text: the first [`RAW_BYTES_MAX`], anything but printable ASCII escaped.
pub(super) fn shown(bytes: &[u8]) -> String {
    let kept = bytes.get(..RAW_BYTES_MAX).unwrap_or(bytes);
    let mut text = String::with_capacity(kept.len());
    for &byte in kept {
        if matches!(byte, b' '..=b'~') {
            text.push(char::from(byte));
        } else {
            text.extend(byte.escape_ascii().map(char::from));
        }
    }
    text
}

/// All lines of a field as one text, for a record.
pub(super) fn shown_lines(headers: &HeaderMap, name: &str) -> String {
    shown(&joined(headers, name))
}

/// All lines of a field as one value, the way RFC 9110 section 5.2 joins them.
pub(super) fn joined(headers: &HeaderMap, name: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for (at, line) in headers.get_all(name).iter().take(FIELD_LINES_MAX).enumerate() {
        if at > 0 {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(line.as_bytes());
    }
    all
}

/// The value as text without surrounding whitespace; `None` unless it is all ASCII.
pub(super) fn text(value: &HeaderValue) -> Option<&str> {
    str::from_utf8(value.as_bytes()).ok().filter(|text| text.is_ascii()).map(|text| text.trim_matches([' ', '\t']))
}

/// Signals that were there and could not be read.
#[derive(Debug, Default)]
pub(super) struct Malformed(pub(super) Vec<String>);

impl Malformed {
    pub(super) fn note(&mut self, name: &str, raw: &[u8]) {
        if self.0.len() < MALFORMED_MAX {
            self.0.push(format!("{name}: {}", shown(raw)));
        }
    }

    pub(super) fn note_field(&mut self, headers: &HeaderMap, name: &str) {
        self.note(name, &joined(headers, name));
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn records_hold_printable_text_of_bounded_length() {
        assert_eq!(shown(b"120junk"), "120junk");
        assert_eq!(shown("12\u{660}\t".as_bytes()), r"12\xd9\xa0\t");
        assert_eq!(shown(&[b'7'; 4_000]).len(), 128);
    }
}
