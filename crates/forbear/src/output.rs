//! What a command prints: words within 80 columns, with colour on a terminal only, or JSON.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::failure::{Exit, unwritten};

/// What everything fits in.
pub(crate) const COLUMNS: u16 = 80;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    #[must_use]
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    #[must_use]
    pub(crate) const fn json(self) -> bool {
        self.json
    }

    /// A line to stdout. A reader that has gone (`| head`) ends the program quietly, a full disk does not.
    pub(crate) fn line(self, text: &str) {
        let mut out = anstream::stdout().lock();
        if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
            let exit = if e.kind() == ErrorKind::BrokenPipe { Exit::Done } else { unwritten(&e).report(self) };
            std::process::exit(exit as i32);
        }
    }

    /// One JSON document, readable on a terminal and on one line elsewhere.
    pub(crate) fn document(self, value: &impl Serialize) -> anyhow::Result<()> {
        let terminal = std::io::stdout().is_terminal();
        let text = if terminal { serde_json::to_string_pretty(value)? } else { serde_json::to_string(value)? };
        self.line(&text);
        Ok(())
    }

    /// A line to stderr.
    pub(crate) fn error_line(self, text: &str) {
        // Where stderr is closed nobody listens.
        let _ = writeln!(anstream::stderr().lock(), "{text}");
    }

    #[must_use]
    pub(crate) fn error_is_terminal(self) -> bool {
        std::io::stderr().is_terminal()
    }

    pub(crate) fn good(self) -> Style {
        AnsiColor::Green.on_default().bold()
    }

    pub(crate) fn bad(self) -> Style {
        AnsiColor::Red.on_default().bold()
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().dimmed()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().bold()
    }

    /// Ends a style.
    pub(crate) fn plain(self) -> anstyle::Reset {
        anstyle::Reset
    }
}

/// Breaks a text at spaces into lines of 80 columns; those after the first begin with `indent`. Spaces that the text
/// begins with stay.
#[must_use]
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let width = usize::from(COLUMNS);
    let words = text.trim_start_matches(' ');
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(text.len() - words.len());
    let mut columns = line.len();
    let mut begun = false;
    for word in words.split(' ') {
        let word_columns = word.chars().count();
        if begun && columns + 1 + word_columns > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            columns = indent.chars().count();
        } else if begun {
            line.push(' ');
            columns += 1;
        }
        line.push_str(word);
        columns += word_columns;
        begun = true;
    }
    lines.push(line);
    lines.join("\n")
}

/// A text of somebody else's without what would steer a terminal.
#[must_use]
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A span of time as people say it.
#[must_use]
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_to_their_width() {
        let text = wrapped(&"word ".repeat(60), "    ");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.lines().skip(1).all(|l| l.starts_with("    word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 60);
    }

    #[test]
    fn a_word_longer_than_a_line_stays_whole() {
        let word = "x".repeat(100);
        assert_eq!(wrapped(&word, "  "), word);
        assert_eq!(wrapped(&format!("a {word} b"), "  "), format!("a\n  {word}\n  b"));
        assert_eq!(wrapped("    a  b", "  "), "    a  b");
    }

    #[test]
    fn spans_are_said_in_their_unit() {
        let said = [0, 999, 1_000, 10_050, 119_999, 120_000, 7_200_000, 172_800_000].map(span);
        assert_eq!(said, ["0 ms", "999 ms", "1.0 s", "10.0 s", "119.9 s", "2 min", "2 h", "2 days"]);
    }
}
