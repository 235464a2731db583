//! `cargo xtask dist`: the binary as it is shipped, laid out by how it was seen to run (profile-guided optimisation).
//!
//! Three steps: a build that counts, the bench as its training, on loopback, and a build that knows the counts. The bench's own
//! binary, which is also the proxy that Forbear is compared with, is built the same way, so that both sides of a ratio are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// What training runs write; the counts of one process each.
const RAW: &str = "profraw";

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let binaries = build(root)?;
    println!("made {}", binaries.join("forbear").display());
    Ok(ExitCode::SUCCESS)
}

/// Builds it, and says where it lies with its bench.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let profdata = profdata()?;
    let host = of_rustc(&["--print", "host-tuple"])?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let dist = target.join("dist");
    let (counts, merged) = (dist.join("counts"), dist.join("merged.profdata"));
    clear(&counts)?;

    eprintln!("1 of 3: a build that counts");
    let counting = compile(root, &dist.join("counting"), &host, &flag("-Cprofile-generate=", &counts))?;
    eprintln!("2 of 3: training, on loopback");
    let trained = Command::new(counting.join("gateway-bench"))
        .current_dir(root)
        .args(["run", "--quick", "--forbear"])
        .arg(counting.join("forbear"))
        .arg("--directory")
        .arg(dist.join("training"))
        .status()
        .context("cannot start the bench")?;
    if !trained.success() {
        bail!("training failed; its errors stand above");
    }
    merge(&profdata, &counts, &merged)?;
    for done in [counts, dist.join("counting"), dist.join("training")] {
        clear(&done)?;
    }
    eprintln!("3 of 3: the build that knows the counts");
    compile(root, &dist.join("build"), &host, &flag("-Cprofile-use=", &merged))
}

fn compile(root: &Path, target: &Path, host: &str, flags: &OsString) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "-p", "forbear", "-p", "forbear-lab", "--bins"])
        // Named, so that the flags are for the binaries and not for what runs while they are built.
        .args(["--target", host, "--target-dir"])
        .arg(target)
        .env("RUSTFLAGS", flags)
        .status()
        .context("cannot start cargo")?;
    if !built.success() {
        bail!("the optimised build failed");
    }
    Ok(target.join(host).join("release"))
}

fn merge(profdata: &Path, counts: &Path, merged: &Path) -> Result<()> {
    let listed = fs::read_dir(counts).with_context(|| format!("training left no counts in {}", counts.display()))?;
    let raw: Vec<PathBuf> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let raw = raw.iter().filter(|path| path.extension().is_some_and(|e| e == RAW));
    let done = Command::new(profdata).args(["merge", "-o"]).arg(merged).args(raw).status();
    if done.context("cannot start llvm-profdata")?.success() { Ok(()) } else { bail!("the counts cannot be merged") }
}

/// It has to be of the compiler's own version.
fn profdata() -> Result<PathBuf> {
    let tools = PathBuf::from(of_rustc(&["--print", "target-libdir"])?).join("../bin/llvm-profdata");
    if tools.is_file() {
        return Ok(tools);
    }
    bail!("llvm-profdata is missing: rustup component add llvm-tools")
}

pub(crate) fn of_rustc(arguments: &[&str]) -> Result<String> {
    let said = Command::new("rustc").args(arguments).output().context("cannot start rustc")?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

fn clear(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot clear {}", directory.display()))
        }
        _ => Ok(()),
    }
}
