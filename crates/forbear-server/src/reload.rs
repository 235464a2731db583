//! Reloading: the configuration is read once more, and what it says of providers, classes and limits holds from then on.
//!
//! A call keeps to the end what it was understood by; the scopes that it stands in keep to the new limits at once, and whoever
//! may have a slot by them is let out. What only a start can change is named and left as it is. A file with a fault in it
//! changes nothing.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use forbear_core::input::{HomeRule, Settings as CoreSettings};
use forbear_core::policy::{Compiled, CompiledProvider};

use crate::config::{ConfigErrors, Loaded, Overrides, Settings, load_again};
use crate::gateway::{BadProvider, Gateway, Table};
use crate::shard::Decided;

/// Why nothing was reloaded.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error(
        "the server was started without a configuration file: there is nothing to read again; start it with --config"
    )]
    NoFile,
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Provider(#[from] BadProvider),
    #[error("the new configuration holds in this process, but {0}")]
    NotKept(&'static str),
}

/// What a reload did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// The policy's name from now on.
    pub policy: String,
    /// It is another than before.
    pub changed: bool,
    /// Keys whose new values hold after the next start.
    pub needs_restart: Vec<String>,
    pub warnings: Vec<String>,
}

/// What a running server was started by, and what it takes from there again.
pub struct Reload {
    gateway: Arc<Gateway>,
    started: Started,
    /// One comes after another.
    turn: Mutex<()>,
}

impl Reload {
    pub(crate) const fn new(gateway: Arc<Gateway>, started: Started) -> Self {
        Self { gateway, started, turn: Mutex::new(()) }
    }

    /// Reads the file and uses what it says; waits for the disk. What came of it is in the log.
    ///
    /// # Errors
    /// Nothing was changed, unless the error says so.
    pub async fn reload(self: &Arc<Self>, by: &'static str) -> Result<Reloaded, ReloadError> {
        let done = self.carried_out(by).await;
        match &done {
            Ok(Reloaded { policy, changed, needs_restart, warnings }) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                for key in needs_restart {
                    tracing::warn!(key, "only a restart changes this");
                }
                tracing::info!(by, policy, changed, "the configuration was read again");
            }
            Err(error) => tracing::error!(by, "nothing was reloaded: {error}"),
        }
        done
    }

    async fn carried_out(self: &Arc<Self>, by: &'static str) -> Result<Reloaded, ReloadError> {
        let this = Arc::clone(self);
        // It reads a file and compiles some hundred routes.
        let used = tokio::task::spawn_blocking(move || this.use_file(by)).await;
        let (reloaded, decided) = used.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
        if let Some(decided) = decided {
            decided.kept().await.map_err(ReloadError::NotKept)?;
        }
        Ok(reloaded)
    }

    fn use_file(&self, by: &str) -> Result<(Reloaded, Option<Decided>), ReloadError> {
        let Started { file, overrides, settings: started, listening } = &self.started;
        let file = file.as_deref().ok_or(ReloadError::NoFile)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Loaded { settings, compiled, warnings, .. } = load_again(file, overrides, *listening)?;
        let policy = compiled.digest.to_string()[..16].to_owned();
        let changed = self.gateway.table().compiled.digest != compiled.digest;
        let needs_restart = differing(started, &settings);
        let warnings = warnings.faults.iter().map(|fault| format!("{fault}; {}", fault.hint)).collect();
        let reloaded = Reloaded { policy, changed, needs_restart, warnings };
        if !changed {
            return Ok((reloaded, None));
        }
        let compiled = Arc::new(compiled);
        let table = Table::new(Arc::clone(&compiled))?;
        // First the gateway: a call that it has understood by the new policy finds that policy in the core, or waits for it
        // there; one that was understood before changes nothing there.
        self.gateway.use_table(table);
        let decided = self.gateway.shard.load_policy(Arc::new(core_settings(&compiled)), by.to_owned());
        Ok((reloaded, Some(decided)))
    }
}

/// What a server was started by.
#[derive(Debug, Clone)]
pub(crate) struct Started {
    pub file: Option<PathBuf>,
    pub overrides: Overrides,
    pub settings: Settings,
    /// Where it listens, whatever the file says by now.
    pub listening: SocketAddr,
}

/// What the core decides by.
pub(crate) fn core_settings(compiled: &Compiled) -> CoreSettings {
    let rule = |p: &CompiledProvider| HomeRule { limits: p.limits, rates: p.rates.clone() };
    let homes = compiled.providers.values().map(|p| (p.name.clone(), rule(p))).collect();
    CoreSettings { homes, ..CoreSettings::of(&compiled.policy, compiled.digest) }
}

/// The keys in which two settings differ.
fn differing(was: &Settings, is: &Settings) -> Vec<String> {
    let [was, is] = [was, is].map(|settings| serde_json::to_value(settings).unwrap_or_default());
    let mut keys = Vec::new();
    differ("", &was, &is, &mut keys);
    keys
}

fn differ(at: &str, was: &serde_json::Value, is: &serde_json::Value, keys: &mut Vec<String>) {
    match (was.as_object(), is.as_object()) {
        (Some(was), Some(is)) => {
            for (key, value) in is {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                differ(&at, was.get(key).unwrap_or(&serde_json::Value::Null), value, keys);
            }
        }
        _ if was != is => keys.push(at.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_text;

    #[test]
    fn what_needs_a_start_is_named_by_its_key() {
        let settings = |text: &str| load_text("t", text).expect("it is right").settings;
        let was = settings("");
        let is = settings("drain_seconds: 5\nupstream: {age_seconds: 77}\nbackoff: {base_ms: 10}\n");
        assert_eq!(differing(&was, &was), [""; 0]);
        assert_eq!(differing(&was, &is), ["drain_seconds", "upstream.age_seconds"]);
    }
}
