//! The files that the checks look at, in memory: text only, build output left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use super::source::Source;

/// Larger files are data, not something a person keeps tidy.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Of version control and of tools; in a linked worktree `.git` is a file.
const LEFT_OUT: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".pytest_cache", ".venv"];

/// Paths are relative to the root, with `/` between their parts.
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    test_modules: BTreeSet<String>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        gather(root, "", &mut files)?;
        Ok(Self::from_files(files))
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::from_files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    fn from_files(files: BTreeMap<String, String>) -> Self {
        let mut test_modules = BTreeSet::new();
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
            test_modules.extend(modules_for_tests(path, &Source::new(text)));
        }
        Self { files, test_modules }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Rust files, each with its lines told apart into code, comments and tests.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, Source<'_>)> {
        self.files().filter(|(path, _)| path.ends_with(".rs")).map(|(path, text)| {
            let source = Source::new(text);
            (path, if self.is_test(path) { source.all_tests() } else { source })
        })
    }

    /// Whether a whole file is tests: by where it lies, or because its parent declares it under `#[cfg(test)]`.
    pub(super) fn is_test(&self, path: &str) -> bool {
        path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
            || self.test_modules.iter().any(|module| {
                path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    }
}

fn modules_for_tests(path: &str, source: &Source<'_>) -> Vec<String> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let home = match name {
        "lib.rs" | "main.rs" | "mod.rs" => directory.to_owned(),
        name => format!("{directory}/{}", name.trim_end_matches(".rs")),
    };
    let declared = source.lines.iter().filter(|line| line.test).filter_map(|line| {
        let words = line.code.trim().strip_suffix(';')?;
        let module = words.rsplit_once("mod ").map(|(before, name)| (before.trim(), name.trim()))?;
        (module.0.is_empty() || module.0.starts_with("pub") || module.0.ends_with(']')).then_some(module.1)
    });
    declared.map(|module| format!("{home}/{module}")).collect()
}

fn gather(directory: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        if LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            gather(&entry.path(), &path, files)?;
        } else if kind.is_file()
            && entry.metadata()?.len() <= FILE_BYTES_MAX
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            files.insert(path, text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_module_declared_for_tests_is_tests() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! a\n#[cfg(test)]\nmod world;\nmod real;\n"),
            ("crates/a/src/gate.rs", "//! g\n#[cfg(test)]\npub(crate) mod checks;\n"),
        ]);
        assert!(tree.is_test("crates/a/src/world.rs"));
        assert!(tree.is_test("crates/a/src/world/inner.rs"));
        assert!(tree.is_test("crates/a/src/gate/checks.rs"));
        assert!(tree.is_test("crates/a/tests/it.rs"));
        assert!(!tree.is_test("crates/a/src/real.rs"));
        assert!(!tree.is_test("crates/a/src/world_map.rs"));
    }
}
