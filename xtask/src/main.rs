//! The workspace's own commands: `cargo xtask tidy`, `test`, `fuzz`, `bench` and `dist`.
//!
//! They run on a fresh machine with nothing but a Rust toolchain, a C compiler and Python, so they lean on few crates,
//! and they say what they install before they do.

mod bench;
mod dist;
mod fuzz;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Tests, tidiness and benches of this workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fast checks of our own: imports, purity, headers, lengths, habits, error pages
    Tidy,
    /// Everything that must hold: format, lints, tidy, tests, simulation, real clients
    Test(test::Options),
    /// What reads bytes from outside, against inputs that a fuzzer makes up
    Fuzz(fuzz::Options),
    /// Measurements against a peer without logic
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
        /// Of the binaries of `cargo xtask dist`, which it makes first; else of `cargo build --release`
        #[arg(long, global = true)]
        dist: bool,
    },
    /// The binary as it is shipped, optimised by how it was seen to run: about fifteen minutes
    Dist,
}

fn main() -> Result<ExitCode> {
    let root = root()?;
    match Arguments::parse().command {
        Command::Tidy => tidy::run(&root),
        Command::Test(options) => test::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::Bench { what, dist } => bench::run(&root, &what, dist),
        Command::Dist => dist::run(&root),
    }
}

/// The workspace: the directory above this package.
fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Ok(Path::new(&package).parent().context("xtask lies in the workspace")?.to_path_buf())
}
