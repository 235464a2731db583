//! Whether an event stream came to its own end. Reads what passes, keeps one line, changes nothing.
//!
//! Spaces count for nothing in a mark: the one behind the colon is optional, and JSON is written with and without.

use forbear_core::contract::StreamRule;
use forbear_core::input::BodyEnd;

/// A line is looked at up to here; what marks a stream's end is short.
const LINE_BYTES_MAX: usize = 512;

/// Follows an event stream line by line.
#[derive(Debug)]
pub(super) struct Marks {
    rule: StreamRule,
    line: Vec<u8>,
    ended: bool,
    error: Option<String>,
}

impl Marks {
    #[must_use]
    pub(super) fn new(mut rule: StreamRule) -> Self {
        rule.ends.iter_mut().chain(&mut rule.errors).for_each(|mark| mark.retain(|c| c != ' '));
        Self { rule, line: Vec::new(), ended: false, error: None }
    }

    pub(super) fn pass(&mut self, data: &[u8]) {
        // Either half of a line end ends a line, and both together only add an empty one.
        for piece in data.split_inclusive(|b| matches!(b, b'\n' | b'\r')) {
            let is_whole = piece.ends_with(b"\n") || piece.ends_with(b"\r");
            let text = &piece[..piece.len() - usize::from(is_whole)];
            let room = LINE_BYTES_MAX - self.line.len();
            self.line.extend(text.iter().filter(|b| **b != b' ').take(room));
            if is_whole {
                self.look();
                self.line.clear();
            }
        }
    }

    /// What the stream's end means, when its body came whole.
    #[must_use]
    pub(super) fn verdict(mut self) -> BodyEnd {
        self.look();
        match self.error {
            Some(error) => BodyEnd::ErrorInside(format!("the stream carried an error: {error}")),
            None if self.ended || self.rule.ends.is_empty() => BodyEnd::Complete,
            None => BodyEnd::ErrorInside("the stream ended without its end mark".into()),
        }
    }

    fn look(&mut self) {
        let starts = |marks: &[String]| marks.iter().find(|m| self.line.starts_with(m.as_bytes())).cloned();
        if let Some(mark) = starts(&self.rule.errors) {
            self.error.get_or_insert(mark);
        }
        self.ended |= starts(&self.rule.ends).is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pieces: &[&[u8]]) -> BodyEnd {
        let rule = StreamRule {
            ends: vec!["data: [DONE]".into(), "event: message_stop".into()],
            errors: vec!["event: error".into()],
            ..StreamRule::default()
        };
        let mut marks = Marks::new(rule);
        for piece in pieces {
            marks.pass(piece);
        }
        marks.verdict()
    }

    #[test]
    fn ends_and_errors_are_seen_over_any_split() {
        assert_eq!(verdict(&[b"data: 1\n\nda", b"ta: [DO", b"NE]\n\n"]), BodyEnd::Complete);
        assert_eq!(verdict(&[b"event: message_stop\r\ndata: {}\r\n\r\n"]), BodyEnd::Complete);
        assert_eq!(verdict(&[b"data: [DONE]"]), BodyEnd::Complete);
        assert!(matches!(verdict(&[b"data: 1\n\n"]), BodyEnd::ErrorInside(_)));
        assert!(matches!(verdict(&[b"event: err", b"or\ndata: x\n\ndata: [DONE]\n"]), BodyEnd::ErrorInside(_)));
        let long = vec![b'x'; 100_000];
        assert_eq!(verdict(&[&long, b"\ndata: [DONE]\n"]), BodyEnd::Complete);
    }
}
