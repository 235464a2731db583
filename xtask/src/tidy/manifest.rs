//! Manifests: every dependency of the workspace says why it is there, every lint switched off says why, and the lock
//! file names the public registry alone.

use super::Findings;
use super::tree::Tree;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Workspace,
    Always,
    Tests,
}

#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) section: Section,
    pub(super) line: usize,
    reason: bool,
}

/// The one source that a lock file may name.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];
const LOCK_SOURCE: &str = concat!("\"registry+https://github.com/rust-lang/", "crates", ".io", "-index\"");

pub(super) fn check(tree: &Tree, findings: &mut Findings) {
    let root = tree.text("Cargo.toml").unwrap_or_default();
    for dependency in dependencies(root).filter(|dependency| !dependency.reason) {
        let advice =
            format!("`{}` has no reason; say in a comment at the end of its line why it is needed", dependency.name);
        findings.fail("Cargo.toml", dependency.line, advice);
    }
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with("Cargo.toml") || *path == "clippy.toml") {
        lints_switched_off(path, text, findings);
    }
    for lock in LOCKS {
        for (index, line) in tree.text(lock).unwrap_or_default().lines().enumerate() {
            if line.strip_prefix("source = ").is_some_and(|source| source != LOCK_SOURCE) {
                let advice = "a source other than the public registry; depend on a published version";
                findings.fail(lock, index + 1, advice);
            }
        }
    }
}

fn lints_switched_off(path: &str, text: &str, findings: &mut Findings) {
    let mut in_lints = path == "clippy.toml";
    let mut after_comment = false;
    for (index, line) in text.lines().enumerate() {
        let (code, comment) = split_comment(line);
        if code.starts_with('[') && !line.starts_with(' ') && path != "clippy.toml" {
            in_lints = code.contains("lints");
        }
        let off = code.starts_with("allow-")
            || code.replace(' ', "").contains("=\"allow\"")
            || code.replace(' ', "").contains("level=\"allow\"");
        if in_lints && off && comment.is_none() && !after_comment {
            findings.fail(path, index + 1, "a lint is switched off without a reason; add a comment that says why");
        }
        after_comment = code.is_empty() && comment.is_some();
    }
}

/// The dependencies of a manifest, in any of the forms cargo accepts, by the name of the package.
pub(super) fn dependencies(text: &str) -> impl Iterator<Item = Dependency> {
    let mut section = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let (code, comment) = split_comment(line);
        let found = |name: &str, section| {
            Some(Dependency {
                name: name.to_owned(),
                section,
                line: index + 1,
                reason: comment.is_some_and(|c| c.len() > 2),
            })
        };
        if let Some(header) = code.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let (table, name) = header.rsplit_once("dependencies.").map_or((header, None), |(_, name)| {
                (&header[..header.len() - name.len() - 1], Some(name.trim_matches('"')))
            });
            section = section_of(table).filter(|_| name.is_none());
            return found(name?, section_of(table)?);
        }
        let (key, value) = code.split_once('=')?;
        let key = key.trim().split('.').next()?.trim_matches('"');
        found(package_of(value).unwrap_or(key), section?)
    })
}

fn section_of(table: &str) -> Option<Section> {
    match table.rsplit('.').next()? {
        "dependencies" if table.starts_with("workspace") => Some(Section::Workspace),
        "dependencies" => Some(Section::Always),
        "dev-dependencies" => Some(Section::Tests),
        "build-dependencies" => Some(Section::Always),
        _ => None,
    }
}

/// The package behind a renamed dependency.
fn package_of(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()
}

/// A line without its comment, and the comment: a `#` outside of quotes starts it.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut quoted = false;
    for (index, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return (line[..index].trim(), Some(line[index + 1..].trim())),
            _ => {}
        }
    }
    (line.trim(), None)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, only};
    use super::{LOCKS, Section, check, dependencies};

    #[test]
    fn every_dependency_says_why() {
        let root = "[workspace.dependencies]\nhyper = \"1\" # both sides\nserde = { version = \"1\", features = [\"#\"] }\n[profile.dev]\ndebug = false\n";
        only(&found(check, &[("Cargo.toml", root)]), "Cargo.toml:3", "`serde` has no reason");
    }

    #[test]
    fn a_lint_switched_off_says_why() {
        let root = "[workspace.lints.clippy]\nall = \"warn\"\nfoo = \"allow\"\nbar = { level = \"allow\" } # noisy on tables\n# Tests may.\nbaz = \"allow\"\n";
        only(&found(check, &[("Cargo.toml", root)]), "Cargo.toml:3", "switched off");
        only(&found(check, &[("clippy.toml", "allow-unwrap-in-tests = true\n")]), "clippy.toml:1", "switched off");
    }

    #[test]
    fn the_lock_names_the_public_registry_alone() {
        let lock = "[[package]]\nsource = \"git+https://example.com/x#abc\"\n";
        for path in LOCKS {
            only(&found(check, &[(path, lock)]), &format!("{path}:2"), "published version");
        }
    }

    #[test]
    fn dependencies_in_every_form() {
        let text = "[dependencies]\na.workspace = true\nb = { package = \"c\", version = \"1\" }\n[dev-dependencies.d]\nversion = \"1\"\n\
                    [target.'cfg(unix)'.dev-dependencies]\ne = \"1\"\n[lints]\nworkspace = true\n";
        let found: Vec<_> = dependencies(text).map(|d| (d.name, d.section, d.line)).collect();
        let expected =
            [("a", Section::Always, 2), ("c", Section::Always, 3), ("d", Section::Tests, 4), ("e", Section::Tests, 7)];
        assert_eq!(found, expected.map(|(name, section, line)| (name.to_owned(), section, line)));
    }
}
