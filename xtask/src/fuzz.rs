//! `cargo xtask fuzz`: what reads bytes from outside, against inputs that a fuzzer makes up. The targets lie in `fuzz/`, what
//! they check and the inputs that are kept in the server's tests.
//!
//! The coverage that guides it comes from flags that the pinned toolchain takes, so neither a nightly one nor `cargo-fuzz` is
//! needed; `cargo fuzz run TARGET` reads the same layout. It promises bounded time and memory, and to name the file of an
//! input that broke something.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::dist::of_rustc;

const KEPT: &str = "crates/forbear-server/tests/fuzzed/corpus";
/// Recorded answers that another test replays; they begin as the kept ones do.
const ANSWERS: &str = "crates/forbear-server/tests/contracts/corpus";
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";
const INPUT_BYTES_MAX: u32 = 4_096;
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MIB_MAX: u32 = 2_048;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target is run
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only this target; may be given more than once
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let targets = choose(targets(root)?, &options.only)?;
    let home = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let home = home.join("fuzz");
    let binaries = build(root, &home)?;
    let mut broken = Vec::new();
    for target in targets {
        println!("\n== {target}");
        if !search(root, &home, &binaries, &target, options.seconds)? {
            broken.push(target);
        }
    }
    if broken.is_empty() {
        println!("\nnothing was found");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nbroken: {}", broken.join(", "));
    println!(
        "an input lies in {}; give it a name in {KEPT}/TARGET and mend what it breaks",
        home.join("found").display()
    );
    Ok(ExitCode::FAILURE)
}

/// By the files in `fuzz/fuzz_targets`, in their order.
fn targets(root: &Path) -> Result<Vec<String>> {
    let directory = root.join("fuzz").join("fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if let (Some("rs"), Some(name)) =
            (path.extension().and_then(|e| e.to_str()), path.file_stem().and_then(|n| n.to_str()))
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn choose(all: Vec<String>, only: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = only.iter().find(|name| !all.contains(name)) {
        bail!("there is no target `{unknown}`; there are {}", all.join(", "));
    }
    Ok(all.into_iter().filter(|name| only.is_empty() || only.contains(name)).collect())
}

fn build(root: &Path, home: &Path) -> Result<PathBuf> {
    let host = of_rustc(&["--print", "host-tuple"])?;
    let built = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root.join("fuzz"))
        // The host is named, so that the flags are for the targets and not for what runs while they are built.
        .args(["build", "--release", "--bins", "--target", &host, "--target-dir"])
        .arg(home)
        .env("RUSTFLAGS", COVERAGE)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the targets do not build");
    }
    Ok(home.join(host).join("release"))
}

fn search(root: &Path, home: &Path, binaries: &Path, target: &str, seconds: u32) -> Result<bool> {
    let (made, found) = (home.join("corpus").join(target), home.join("found"));
    fs::create_dir_all(&made)?;
    fs::create_dir_all(&found)?;
    let mut prefix = OsString::from("-artifact_prefix=");
    prefix.push(found.join(format!("{target}-")));
    let mut command = Command::new(binaries.join(target));
    command.current_dir(root);
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.args(["-verbosity=0", "-print_final_stats=1"]).arg(prefix);
    let dictionary = root.join("fuzz").join("dictionaries").join(format!("{target}.dict"));
    if dictionary.exists() {
        let mut flag = OsString::from("-dict=");
        flag.push(dictionary);
        command.arg(flag);
    }
    command.arg(made).arg(root.join(KEPT).join(target));
    if target == "response" {
        command.arg(root.join(ANSWERS));
    }
    Ok(command.status().context("cannot start the target")?.success())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{choose, targets};

    fn all() -> Vec<String> {
        targets(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap()
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_known_ones() {
        let error = choose(all(), &["guards".into()]).unwrap_err().to_string();
        assert!(error.contains("`guards`") && error.contains("event_stream, guard,"), "{error}");
        assert_eq!(choose(all(), &["guard".into()]).unwrap(), ["guard"]);
    }

    #[test]
    fn every_target_has_kept_inputs_and_is_built() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        for target in all() {
            assert!(root.join(super::KEPT).join(&target).is_dir(), "{target}");
            assert!(manifest.contains(&format!("name = \"{target}\"\n")), "{target}");
        }
        assert_eq!(choose(all(), &[]).unwrap().len(), std::fs::read_dir(root.join(super::KEPT)).unwrap().count());
    }
}
