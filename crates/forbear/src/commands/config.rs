//! `forbear config`: the defaults, whether a file is right, and what may be said in one.

use std::path::Path;

use forbear_core::ids::ProviderName;
use forbear_core::policy::CompiledProvider;
use forbear_server::config::{Overrides, default_text, load, schema};
use serde_json::json;

use super::server::client;
use crate::cli::{Config, Server};
use crate::failure::Exit;
use crate::output::{Output, wrapped};

pub(crate) fn run(command: &Config, output: Output) -> anyhow::Result<Exit> {
    match command {
        Config::Default if output.json() => output.document(&load(None, &Overrides::default())?.config())?,
        Config::Default => output.line(default_text().trim_end()),
        Config::Schema => output.document(&schema())?,
        Config::Check { file } => check(file, output)?,
        Config::Reload(_) => unreachable!("it asks a server, which needs a runtime"),
    }
    Ok(Exit::Done)
}

pub(crate) async fn reload(server: &Server, output: Output) -> anyhow::Result<Exit> {
    let reloaded = client(server)?.reload_config().await?;
    if output.json() {
        output.document(&reloaded)?;
        return Ok(Exit::Done);
    }
    for warning in &reloaded.warnings {
        output.error_line(&wrapped(warning, "  "));
    }
    let policy = &reloaded.policy;
    let said = if reloaded.changed {
        format!("The server goes by policy {policy} now. Calls under way end as they began.")
    } else {
        format!("Nothing is said of calls that was not said before; policy {policy} stays.")
    };
    output.line(&wrapped(&said, ""));
    if !reloaded.needs_restart.is_empty() {
        let keys = reloaded.needs_restart.join(", ");
        output.line(&wrapped(&format!("Only a restart changes: {keys}"), "  "));
    }
    Ok(Exit::Done)
}

fn check(file: &Path, output: Output) -> anyhow::Result<()> {
    let loaded = load(Some(file), &Overrides::default())?;
    let shipped = load(None, &Overrides::default())?.compiled.providers;
    let is_changed = |of: &CompiledProvider| shipped.get(&of.name).is_none_or(|it| it.contract != of.contract);
    let changed = loaded.compiled.providers.values().filter(|of| is_changed(of));
    let changed: Vec<&str> = changed.map(|of| of.name.as_str()).collect();
    let providers: Vec<&str> = loaded.compiled.providers.keys().map(ProviderName::as_str).collect();
    let digest = &loaded.compiled.digest.to_string()[..16];
    if output.json() {
        let warnings = serde_json::to_value(&loaded.warnings)?;
        return output.document(&json!({
            "holds": true, "warnings": warnings, "providers": providers, "changed": changed, "policy": digest,
        }));
    }
    if !loaded.warnings.faults.is_empty() {
        output.error_line(loaded.warnings.render(output.error_is_terminal()).trim_end());
    }
    let (all, own) = (providers.len(), changed.len());
    let said = format!("{} is right; policy {digest}, {all} providers, {own} added or changed here.", file.display());
    output.line(&wrapped(&said, "  "));
    Ok(())
}
