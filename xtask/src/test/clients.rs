//! Real clients: the official libraries that agents use, unmodified, against the binary with the lab's provider behind
//! it. They live in a virtual environment under the build directory, at the versions that `clients/python` pins.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::count::Counts;
use super::workshop::Workshop;

const TESTS: &str = "clients/python";
const REQUIREMENTS: &str = "clients/python/requirements.txt";
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
    let python = environment(workshop)?;
    let mut pytest = workshop.command(python);
    pytest.args(["-m", "pytest", "-q", TESTS]);
    pytest.env("FORBEAR_BIN", forbear).env("PYTHONDONTWRITEBYTECODE", "1");
    workshop.counted(pytest)
}

/// The interpreter of an environment that holds exactly what is pinned.
fn environment(workshop: &Workshop) -> Result<PathBuf> {
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

    let home = workshop.target.join("clients-python");
    let python = home.join("bin").join("python");
    let wanted = fs::read_to_string(workshop.root.join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let stamp = home.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    println!("installing: the clients that {REQUIREMENTS} pins, into {}", home.display());
    let mut make = workshop.command("python3");
    make.args(["-m", "venv", "--clear"]).arg(&home);
    let mut install = workshop.command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", REQUIREMENTS]);
    if !(make.status()?.success() && install.status()?.success()) {
        bail!("could not make the virtual environment of the clients");
    }
    fs::write(&stamp, wanted)?;
    Ok(python)
}
