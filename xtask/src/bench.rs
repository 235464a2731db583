//! `cargo xtask bench`: builds what is measured, optimised, and hands over to the bench in `forbear-lab`.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use crate::dist;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Interleaved rounds of direct, a proxy without logic, nginx where installed, and Forbear
    Gateway {
        /// About 30 seconds instead of two minutes; good for a first look, too short to quote
        #[arg(long)]
        quick: bool,
        /// Only the cases with this in their names, such as "json, 32"
        #[arg(long, default_value = "")]
        only: String,
        /// One JSON document instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Many streams held open at once: what they take in memory, and that all of them end whole
    Streams {
        /// The mark is of 10,000; fewer are a first look
        #[arg(long, default_value_t = 10_000)]
        streams: usize,
        /// One JSON document instead of lines
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(root: &Path, bench: &Bench, dist: bool) -> Result<ExitCode> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let binaries = if dist {
        dist::build(root)?
    } else {
        build(root)?;
        target.join("release")
    };
    let mut command = Command::new(binaries.join("gateway-bench"));
    command.current_dir(root);
    let json = match bench {
        Bench::Gateway { quick, only, json } => {
            command.arg("run").arg("--only").arg(only).args(quick.then_some("--quick"));
            json
        }
        Bench::Streams { streams, json } => {
            command.arg("streams").arg("--streams").arg(streams.to_string());
            json
        }
    };
    command.arg("--forbear").arg(binaries.join("forbear")).arg("--directory").arg(target.join("bench"));
    command.args(json.then_some("--json"));
    let status = command.status().context("cannot start the bench")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(root: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "-p", "forbear", "-p", "forbear-lab", "--bins"])
        .status()
        .context("cannot start cargo")?;
    if built.success() { Ok(()) } else { bail!("the optimised build failed") }
}
