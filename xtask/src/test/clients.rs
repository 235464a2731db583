//! Real clients: the official libraries that agents use, unmodified, against the binary with the lab's provider behind
//! it. They live under the build directory, at the versions that `clients/python` and `clients/node` pin. LiteLLM's proxy, before
//! and behind it, is a step of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::count::Counts;
use super::workshop::Workshop;

const TESTS: &str = "clients/python";
const REQUIREMENTS: &str = "clients/python/requirements.txt";
const LITELLM_REQUIREMENTS: &str = "clients/python/requirements-litellm.txt";
const LITELLM_TESTS: &str = "clients/python/test_litellm.py";
const NODE: &str = "clients/node";
const NODE_TESTS: &str = "clients/python/test_node.py";
const STAMP_NODE: &str = "forbear-lock.json";
/// What was installed, so that an unchanged list installs nothing.
const STAMP: &str = "forbear-requirements.txt";

pub(super) fn absent(workshop: &Workshop) -> Result<Option<String>> {
    for (command, option) in [(&["serve"][..], "--listen"), (&["lab", "provider"][..], "--scenario")] {
        if let Some(reason) = workshop.lacks(command, option)? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

pub(super) fn run(workshop: &Workshop) -> Result<Counts> {
    let forbear = workshop.forbear()?;
    let python = environment(workshop, "clients-python", REQUIREMENTS)?;
    let mut pytest = pytest(workshop, &python, &forbear, TESTS);
    pytest.args(["--ignore", LITELLM_TESTS]);
    match node(workshop)? {
        Some(home) => pytest.env("FORBEAR_NODE_CLIENTS", home),
        None => {
            println!("no node and npm here: {NODE_TESTS} is left out, and with it what clients of Node do");
            pytest.args(["--ignore", NODE_TESTS])
        }
    };
    workshop.counted(pytest)
}

/// Its proxy brings a hundred packages and takes ten seconds to start, several times.
pub(super) fn litellm_absent(workshop: &Workshop) -> Result<Option<String>> {
    if workshop.long || workshop.is_named("litellm") {
        return absent(workshop);
    }
    Ok(Some("it takes minutes; `cargo xtask test --only litellm` runs it".to_owned()))
}

pub(super) fn litellm(workshop: &Workshop) -> Result<Counts> {
    let forbear = workshop.forbear()?;
    let python = environment(workshop, "clients-litellm", LITELLM_REQUIREMENTS)?;
    workshop.counted(pytest(workshop, &python, &forbear, LITELLM_TESTS))
}

fn pytest(workshop: &Workshop, python: &Path, forbear: &Path, tests: &str) -> Command {
    let mut pytest = workshop.command(python);
    pytest.args(["-m", "pytest", "-q", tests]);
    pytest.env("FORBEAR_BIN", forbear).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest
}

/// Where the clients of Node are, exactly as their lock file pins them. None where there is no Node.
fn node(workshop: &Workshop) -> Result<Option<PathBuf>> {
    let is_there = |program: &str| {
        let mut command = workshop.command(program);
        command.arg("--version");
        workshop.succeeds(command)
    };
    if !(is_there("node") && is_there("npm")) {
        return Ok(None);
    }
    let home = workshop.target.join("clients-node");
    let lock = workshop.root.join(NODE).join("package-lock.json");
    let wanted = fs::read_to_string(&lock).with_context(|| format!("{}", lock.display()))?;
    let stamp = home.join(STAMP_NODE);
    if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        println!("installing: the clients that {NODE} pins, into {}", home.display());
        fs::create_dir_all(&home)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(workshop.root.join(NODE).join(file), home.join(file))?;
        }
        let mut npm = workshop.command("npm");
        npm.current_dir(&home).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]);
        if !npm.status()?.success() {
            bail!("could not install the clients of Node");
        }
        fs::write(&stamp, wanted)?;
    }
    Ok(Some(home))
}

/// The interpreter of an environment that holds exactly what is pinned.
fn environment(workshop: &Workshop, name: &str, requirements: &str) -> Result<PathBuf> {
    let mut missing = Vec::new();
    let imports = |what: &str| {
        let mut python = workshop.command("python3");
        python.args(["-c", &format!("import {what}")]);
        workshop.succeeds(python)
    };
    if !imports("sys") {
        missing.push("python3");
    }
    if !imports("ensurepip, venv") {
        missing.push("python3-venv");
    }
    let mut curl = workshop.command("curl");
    curl.arg("--version");
    if !workshop.succeeds(curl) {
        missing.push("curl");
    }
    if !missing.is_empty() {
        workshop.system_packages(&missing)?;
    }

    let home = workshop.target.join(name);
    let python = home.join("bin").join("python");
    let wanted = fs::read_to_string(workshop.root.join(requirements)).with_context(|| requirements.to_owned())?;
    let stamp = home.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    println!("installing: the clients that {requirements} pins, into {}", home.display());
    let mut make = workshop.command("python3");
    make.args(["-m", "venv", "--clear"]).arg(&home);
    let mut install = workshop.command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements]);
    if !(make.status()?.success() && install.status()?.success()) {
        bail!("could not make the virtual environment of the clients");
    }
    fs::write(&stamp, wanted)?;
    Ok(python)
}
