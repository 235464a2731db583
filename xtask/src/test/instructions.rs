//! What a call costs in instructions, as callgrind counts them: on a shared machine time says little, and this the same
//! each time. The bounds are committed; a call that costs more than its bound fails.
//!
//! Two runs of different counts are subtracted, so that start and stop are not in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::count::Counts;
use super::workshop::Workshop;

const BOUNDS: &str = "crates/forbear-server/examples/hot_path/bounds.txt";

/// One thing that is counted.
struct Kind {
    /// The argument of the harness, and the name in the file of bounds.
    name: &'static str,
    few: u64,
    many: u64,
    /// How many of what is meant one step of the harness makes.
    each: u64,
    /// Only the first thread, which is the server's; else all of them.
    first_thread: bool,
}

const KINDS: &[Kind] = &[
    Kind { name: "read", few: 200, many: 1_200, each: 1, first_thread: true },
    Kind { name: "write", few: 50, many: 350, each: 1, first_thread: true },
    Kind { name: "journal", few: 4, many: 24, each: 256, first_thread: false },
];

/// Below its bound by more than this many hundredths, and the bound is worth lowering.
const SLACK_PERCENT: u64 = 15;

pub(super) fn absent(workshop: &Workshop) -> Result<Option<String>> {
    let mut valgrind = workshop.command("valgrind");
    valgrind.arg("--version");
    if workshop.succeeds(valgrind) {
        return Ok(None);
    }
    if std::env::var_os("CI").is_some() {
        bail!("valgrind is missing, and without it nothing says what a call costs: apt-get install valgrind");
    }
    Ok(Some(
        "VALGRIND IS MISSING, so nothing says whether a call costs more than it did: apt-get install valgrind".into(),
    ))
}

pub(super) fn run(workshop: &Workshop) -> Result<Counts> {
    let bounds = bounds(&std::fs::read_to_string(workshop.root.join(BOUNDS)).context(BOUNDS)?)?;
    // The release's own code, with line numbers for whoever asks callgrind_annotate where it went.
    let build = workshop.cargo(&[
        "build",
        "--quiet",
        "--profile",
        "profiling",
        "-p",
        "forbear-server",
        "--example",
        "hot_path",
    ]);
    if workshop.check(build)? != Counts::PASSED {
        return Ok(Counts::FAILED);
    }
    let mut total = Counts::default();
    for kind in KINDS {
        let bound = bounds.get(kind.name).with_context(|| format!("{BOUNDS} has no line `{}`", kind.name))?;
        let counted = counted(workshop, kind, kind.many)?.saturating_sub(counted(workshop, kind, kind.few)?);
        let each = counted / ((kind.many - kind.few) * kind.each);
        println!("{:<8} {each:>8} instructions, bound {bound}", kind.name);
        if each > *bound {
            println!("  more than its bound: take something back, or say in {BOUNDS} why it is worth it");
        } else if each * 100 < *bound * (100 - SLACK_PERCENT) {
            println!("  far below its bound: lower it in {BOUNDS}, so that it stays so");
        }
        total = total.plus(if each > *bound { Counts::FAILED } else { Counts::PASSED });
    }
    Ok(total)
}

/// Instructions of a whole run.
fn counted(workshop: &Workshop, kind: &Kind, count: u64) -> Result<u64> {
    let directory = tempdir(workshop)?;
    let out = directory.join("callgrind");
    let mut command = workshop.command("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--separate-threads=yes", "--fair-sched=yes"]);
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(workshop.target.join("profiling/examples/hot_path")).arg(kind.name).arg(count.to_string());
    let output = command.output().context("cannot start valgrind")?;
    if !output.status.success() {
        bail!("hot_path {} {count} failed: {}", kind.name, String::from_utf8_lossy(&output.stderr));
    }
    let mut instructions = 0;
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        let is_first = path.extension().is_none() && path.to_string_lossy().ends_with("-01");
        if is_first || !kind.first_thread {
            instructions += totals(&path)?;
        }
    }
    if instructions == 0 {
        bail!("callgrind counted nothing in {}", directory.display());
    }
    Ok(instructions)
}

/// An empty directory for one run's counts.
fn tempdir(workshop: &Workshop) -> Result<std::path::PathBuf> {
    let directory = workshop.target.join("instructions");
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The line `totals: N` of one thread's file.
fn totals(path: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    Ok(line.and_then(|n| n.trim().parse().ok()).unwrap_or(0))
}

/// `name number`, one a line; `#` begins a remark.
fn bounds(text: &str) -> Result<BTreeMap<String, u64>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, number) = line.split_once(' ').with_context(|| format!("{BOUNDS}: `{line}` is no bound"))?;
            Ok((name.to_owned(), number.trim().parse().with_context(|| format!("{BOUNDS}: {line}"))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{KINDS, bounds};

    #[test]
    fn a_bound_is_a_name_and_a_number() {
        let read = bounds("# what a call may cost\nread 40000 # measured 37,000\n\nwrite  90000\n").unwrap();
        assert_eq!((read["read"], read["write"]), (40_000, 90_000));
        assert!(bounds("read\n").is_err() && bounds("read many\n").is_err());
    }

    #[test]
    fn every_kind_has_a_bound() {
        let committed = bounds(include_str!("../../../crates/forbear-server/examples/hot_path/bounds.txt")).unwrap();
        assert!(KINDS.iter().all(|kind| committed.contains_key(kind.name)));
        assert_eq!(committed.len(), KINDS.len());
    }
}
