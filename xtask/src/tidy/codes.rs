//! Error codes and their pages: each `FBnnnn` in a source has a page that says what happened and what to do, and no page
//! outlives its code.

use std::collections::BTreeMap;

use super::Findings;
use super::tree::Tree;

const PAGES: &str = "docs/errors/";
const DIGITS: usize = 4;

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let mut used = BTreeMap::new();
    for (path, source) in tree.sources().filter(|(path, _)| path.starts_with("crates/")) {
        for (number, line) in source.numbered().filter(|(_, line)| !line.test) {
            for code in codes_in(line.raw) {
                used.entry(code).or_insert((path, number));
            }
        }
    }
    for (code, (path, number)) in &used {
        if tree.text(&format!("{PAGES}{code}.md")).is_none() {
            findings.fail(
                path,
                *number,
                format!("{code} has no page; write {PAGES}{code}.md: what happened, what to do"),
            );
        }
    }
    for (path, _) in tree.files() {
        let code = path.strip_prefix(PAGES).and_then(|name| name.strip_suffix(".md"));
        let is_code = code.is_some_and(|code| codes_in(code).next() == Some(code));
        if code.is_some_and(|code| is_code && !used.contains_key(code)) {
            findings.fail(path, 1, "no source uses this code; delete the page, or use the code");
        }
    }
}

fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("FB").filter_map(move |(start, _)| {
        let before = text[..start].chars().next_back();
        let digits = text[start + 2..].chars().take_while(char::is_ascii_digit).count();
        let end = start + 2 + DIGITS;
        (digits == DIGITS && !before.is_some_and(char::is_alphanumeric)).then(|| &text[start..end])
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::check;

    #[test]
    fn code_and_page_go_together() {
        let source = ("crates/a/src/error.rs", "//! e\nconst A: &str = \"FB0101\";\n");
        only(&found(check, &[source]), "crates/a/src/error.rs:2", "FB0101 has no page");
        only(&found(check, &[("docs/errors/FB0101.md", "x")]), "docs/errors/FB0101.md:1", "no source");
        assert!(found(check, &[source, ("docs/errors/FB0101.md", "x"), ("docs/errors/README.md", "x")]).is_empty());
    }

    #[test]
    fn only_four_digits_make_a_code() {
        assert!(found(check, &[("crates/a/src/x.rs", "//! FBnnnn, FB12345, xFB1234\n")]).is_empty());
    }
}
