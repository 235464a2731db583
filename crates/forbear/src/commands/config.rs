//! `forbear config`: the defaults, whether a file is right, and what may be said in one.

use std::path::Path;

use forbear_core::ids::ProviderName;
use forbear_server::config::{Overrides, default_text, load, schema};
use serde_json::json;

use crate::cli::Config;
use crate::failure::Exit;
use crate::output::Output;

pub(crate) fn run(command: &Config, output: Output) -> anyhow::Result<Exit> {
    match command {
        Config::Default if output.json() => output.document(&load(None, &Overrides::default())?.config())?,
        Config::Default => output.line(default_text().trim_end()),
        Config::Schema => output.document(&schema())?,
        Config::Check { file } => check(file, output)?,
    }
    Ok(Exit::Done)
}

fn check(file: &Path, output: Output) -> anyhow::Result<()> {
    let loaded = load(Some(file), &Overrides::default())?;
    let providers: Vec<&str> = loaded.compiled.providers.keys().map(ProviderName::as_str).collect();
    let digest = &loaded.compiled.digest.to_string()[..16];
    if output.json() {
        let warnings = serde_json::to_value(&loaded.warnings)?;
        return output
            .document(&json!({"holds": true, "warnings": warnings, "providers": providers, "policy": digest}));
    }
    if !loaded.warnings.faults.is_empty() {
        output.error_line(loaded.warnings.render(output.error_is_terminal()).trim_end());
    }
    output.line(&format!("{} is right; policy {digest}, {} providers.", file.display(), providers.len()));
    Ok(())
}
