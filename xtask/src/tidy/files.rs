//! What a file must be: opened by a sentence that says what it is for, short enough to tell one story, and, for a few,
//! there at all.

use super::Findings;
use super::tree::Tree;

const LINES_WARN: usize = 400;
const LINES_MAX: usize = 600;
/// The core's router: longer means that a concern moved in.
const COORDINATOR_LINES_MAX: usize = 300;

/// Files that others rely on by name.
const REQUIRED: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
    "forbear.default.yaml",
    ".ci/run",
];

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    for path in REQUIRED.iter().filter(|path| tree.text(path).is_none()) {
        findings.fail(path, 1, "this file is missing; the project promises it");
    }
    for (path, source) in tree.sources() {
        let lines = source.lines.len();
        let opened = source.lines.first().is_some_and(|line| line.raw.starts_with("//!"));
        if !opened && !tree.is_test(path) {
            findings.fail(path, 1, "start the file with `//!`: what it is for, what it promises, what it refuses");
        }
        if path.ends_with("/coordinator.rs") && lines >= COORDINATOR_LINES_MAX {
            let advice = format!(
                "{lines} lines, {COORDINATOR_LINES_MAX} are too many for a router; move a concern into its own machine"
            );
            findings.fail(path, lines, advice);
        } else if lines > LINES_MAX {
            findings.fail(
                path,
                lines,
                format!("{lines} lines, more than {LINES_MAX}; split it where its story splits"),
            );
        } else if lines > LINES_WARN {
            findings.warn(path, lines, format!("{lines} lines, more than {LINES_WARN}; it may be two stories"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::{REQUIRED, check};

    fn with_required<'a>(file: &'a str, text: &'a str) -> Vec<String> {
        let mut files: Vec<(&str, &str)> = REQUIRED.iter().map(|path| (*path, "x\n")).collect();
        files.push((file, text));
        found(check, &files)
    }

    #[test]
    fn a_missing_file_is_named() {
        let files: Vec<(&str, &str)> =
            REQUIRED.iter().filter(|path| **path != "LICENSE").map(|path| (*path, "x\n")).collect();
        only(&found(check, &files), "LICENSE:1", "missing");
    }

    #[test]
    fn a_file_opens_with_its_purpose() {
        only(&with_required("crates/a/src/x.rs", "use a::b;\n"), "crates/a/src/x.rs:1", "//!");
        assert!(with_required("crates/a/src/x.rs", "//! X.\n").is_empty());
        assert!(with_required("crates/a/tests/x.rs", "use a::b;\n").is_empty());
    }

    #[test]
    fn long_files_warn_then_fail() {
        let lines = |count: usize| format!("//! x\n{}", "\n".repeat(count - 1));
        assert!(with_required("crates/a/src/x.rs", &lines(400)).is_empty());
        only(&with_required("crates/a/src/x.rs", &lines(401)), "crates/a/src/x.rs:401", "two stories");
        only(&with_required("crates/a/src/x.rs", &lines(601)), "crates/a/src/x.rs:601", "split it");
        only(&with_required("crates/c/src/coordinator.rs", &lines(300)), "crates/c/src/coordinator.rs:300", "router");
    }
}
