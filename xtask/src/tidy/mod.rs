//! Fast checks that neither the compiler nor clippy makes: what this project promises about its own sources.
//!
//! Each check is a pure function from the tree to findings, and each finding names a file, a line and what to do.
//! Nothing here builds, downloads or changes anything.

mod codes;
mod files;
mod habits;
mod imports;
mod manifest;
mod places;
mod purity;
mod source;
mod tree;
mod units;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use tree::Tree;

/// Every check. The order is that of the report.
const CHECKS: &[fn(&Tree, &mut Findings)] = &[
    imports::check,
    purity::check,
    manifest::check,
    files::check,
    habits::check,
    places::check,
    codes::check,
    units::check,
];

/// Findings shown of one run; more are counted.
const FINDINGS_SHOWN_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Fails,
    Warns,
}

#[derive(Debug)]
struct Finding {
    level: Level,
    path: String,
    line: usize,
    message: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// Lines count from 1.
    fn fail(&mut self, path: &str, line: usize, message: impl Into<String>) {
        self.0.push(Finding { level: Level::Fails, path: path.into(), line, message: message.into() });
    }

    fn warn(&mut self, path: &str, line: usize, message: impl Into<String>) {
        self.0.push(Finding { level: Level::Warns, path: path.into(), line, message: message.into() });
    }

    fn failures(&self) -> usize {
        self.0.iter().filter(|finding| finding.level == Level::Fails).count()
    }
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    let mut findings = Findings::default();
    for check in CHECKS {
        check(&tree, &mut findings);
    }
    for finding in findings.0.iter().take(FINDINGS_SHOWN_MAX) {
        let level = if finding.level == Level::Fails { "error" } else { "warning" };
        println!("{}:{}: {level}: {}", finding.path, finding.line, finding.message);
    }
    let failures = findings.failures();
    println!("tidy: {} files, {failures} errors, {} warnings", tree.len(), findings.0.len() - failures);
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod testing {
    use super::{Findings, Tree};

    /// Runs one check over a small tree and shows what it found, one `path:line: message` a finding.
    pub(super) fn found(check: fn(&Tree, &mut Findings), files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Tree::of(files), &mut findings);
        findings.0.iter().map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message)).collect()
    }

    /// One finding, at this place, whose message has this in it.
    pub(super) fn only(found: &[String], place: &str, part: &str) {
        assert_eq!(found.len(), 1, "expected one finding: {found:#?}");
        assert!(found[0].starts_with(place) && found[0].contains(part), "expected `{place} … {part} …`: {found:#?}");
    }
}
