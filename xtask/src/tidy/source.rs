//! A Rust file as lines of code, comment and test.
//!
//! A scanner, not a parser: it knows comments, literals and braces, and that is enough to not mistake a word in a
//! sentence for a call. What it cannot know (macros that build code) it leaves alone.

/// One line, told apart.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// As it stands in the file.
    pub(super) raw: &'a str,
    /// Comments and the insides of literals blanked out.
    pub(super) code: String,
    /// Compiled for tests only.
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) lines: Vec<Line<'a>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let code = mask(text);
        let tests = test_lines(&code);
        let lines = text.lines().zip(code.lines()).enumerate();
        let lines = lines.map(|(index, (raw, code))| Line {
            raw,
            code: code.to_owned(),
            test: tests.iter().any(|(first, last)| (*first..=*last).contains(&index)),
        });
        Self { lines: lines.collect() }
    }

    pub(super) fn all_tests(mut self) -> Self {
        for line in &mut self.lines {
            line.test = true;
        }
        self
    }

    /// Lines with their numbers, from 1.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (usize, &Line<'a>)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// A comment on the line itself, or alone on the line before it, that contains `part`; documentation is no reason.
    pub(super) fn comment_near(&self, number: usize, part: &str) -> bool {
        let own = self.lines.get(number - 1);
        let before = number.checked_sub(2).and_then(|index| self.lines.get(index));
        own.is_some_and(|line| comment_of(line).is_some_and(|comment| comment.contains(part)))
            || before
                .is_some_and(|line| line.code.trim().is_empty() && comment_of(line).is_some_and(|c| c.contains(part)))
    }
}

fn comment_of<'a>(line: &Line<'a>) -> Option<&'a str> {
    let code = line.code.trim_end().chars().count();
    let start = line.raw.char_indices().nth(code).map(|(index, _)| index)?;
    let rest = line.raw[start..].trim_start();
    let documents = rest.starts_with("///") || rest.starts_with("//!");
    (rest.starts_with("//") && !documents).then_some(rest)
}

/// Whether `code` has `word` with no letter, digit or underscore at its ends.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(start, _)| {
        let before = code[..start].chars().next_back();
        let after = code[start + word.len()..].chars().next();
        (!word.starts_with(is_part) || !before.is_some_and(is_part))
            && (!word.ends_with(is_part) || !after.is_some_and(is_part))
    })
}

/// The same text, character for character, with comments and the insides of literals as spaces.
fn mask(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_end(&chars, at),
            ('/', Some('*')) => block_comment_end(&chars, at),
            ('"', _) => string_end(&chars, at + 1),
            ('r', Some('"' | '#')) if !follows_word(&chars, at) => raw_string_end(&chars, at).unwrap_or(at),
            ('b', Some('r')) if !follows_word(&chars, at) => raw_string_end(&chars, at + 1).unwrap_or(at),
            ('\'', _) => char_end(&chars, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

fn follows_word(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map(|index| chars[index]);
    // `br"…"` comes through its `b`; any other letter before makes this the end of a name.
    before.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |offset| at + offset)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) if depth == 1 => return at + 2,
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `None` where this is a raw identifier (`r#type`).
fn raw_string_end(chars: &[char], r: usize) -> Option<usize> {
    let hashes = chars[r + 1..].iter().take_while(|c| **c == '#').count();
    let open = r + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let mut at = open + 1;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(chars.len())
}

/// `None` where this is a lifetime or a label.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars[at + 3..].iter().position(|c| *c == '\'')?;
        return Some(at + 3 + close + 1);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// Ranges of line indices that `#[cfg(test)]`, `#[test]` and their kin cover: the attribute and the item after it.
fn test_lines(code: &str) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut offset = 0;
    for (index, line) in code.lines().enumerate() {
        let covered = ranges.last().is_some_and(|(_, last)| index <= *last);
        if !covered && is_test_attribute(line) {
            ranges.push((index, index + item_lines(&code[offset..])));
        }
        offset += line.len() + 1;
    }
    ranges
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim_start();
    let Some(attribute) = line.strip_prefix("#[").map(|rest| rest.split(']').next().unwrap_or(rest)) else {
        return false;
    };
    if let Some(condition) = attribute.strip_prefix("cfg(") {
        return has_word(condition, "test") && !condition.contains("not(test");
    }
    let name = attribute.split('(').next().unwrap_or(attribute).trim();
    name == "test" || name.ends_with("::test")
}

/// How many lines further the item that starts here ends: at its `;` or at the brace that closes it.
fn item_lines(code: &str) -> usize {
    let (mut lines, mut depth) = (0, 0_i64);
    for c in code.chars() {
        match c {
            '\n' => lines += 1,
            '{' | '(' | '[' => depth += 1,
            '}' if depth == 1 => return lines,
            '}' | ')' | ']' => depth -= 1,
            ';' if depth == 0 => return lines,
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Source, has_word, mask};

    #[test]
    fn words_in_comments_and_literals_are_not_code() {
        let text =
            "let a = \"std::fs \\\" x\"; // std::net\n/* a /* b */ tokio */ let c = 'x'; let d: &'a str = r#\"rand\"#;";
        let code = mask(text);
        assert_eq!(code.chars().count(), text.chars().count());
        for word in ["std::fs", "std::net", "tokio", "rand"] {
            assert!(!has_word(&code, word), "{word} in {code}");
        }
        assert!(code.contains("&'a str") && code.contains("let c ="));
    }

    #[test]
    fn escapes_do_not_end_a_literal_early() {
        let code = mask(r#"f('\'', '"', "\\", 'a') + g"#);
        assert_eq!(code.replace(' ', ""), "f(,,,)+g");
        assert_eq!(mask("r#type + br\"x\" + b'x'"), "r#type +       + b   ");
    }

    #[test]
    fn only_the_item_after_the_attribute_is_a_test() {
        let source = Source::new(
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { x[0] }\n}\nfn c() {}\n#[test]\nfn d() {}\n",
        );
        let tests: Vec<bool> = source.lines.iter().map(|line| line.test).collect();
        assert_eq!(tests, [false, true, true, true, true, false, true, true]);
        assert!(Source::new("#[cfg(not(test))]\nfn a() {}\n").lines.iter().all(|line| !line.test));
    }

    #[test]
    fn a_reason_may_stand_beside_or_above() {
        let source = Source::new("a(); // sleep: why\n// sleep: why\nb();\nc();\nlet s = \"// sleep: no\";\n");
        let near: Vec<bool> = (1..=5).map(|number| source.comment_near(number, "sleep:")).collect();
        assert_eq!(near, [true, true, true, false, false]);
    }

    #[test]
    fn words_have_edges() {
        assert!(has_word("use rand::Rng;", "rand"));
        assert!(!has_word("let operand = 1;", "rand"));
        assert!(has_word("x.await?", ".await"));
        assert!(!has_word("x.awaited()", ".await"));
    }
}
