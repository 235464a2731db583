//! `forbear serve`: the server in this process, until it is told to stop.
//!
//! SIGTERM and SIGINT drain; a second one ends at once. SIGHUP reads the configuration again. What stdout says first is for
//! people and for scripts: the address, then what to set in a client.

use std::path::Path;
use std::sync::Arc;

use forbear_core::policy::Compiled;
use forbear_server::config::{LogFormat, Overrides, load};
use forbear_server::reload::Reload;
use forbear_server::serve::start;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{Log, Serve};
use crate::failure::Exit;
use crate::files;
use crate::logs;
use crate::output::Output;

/// What a shell says of a program that SIGTERM ended.
const ENDED_AT_ONCE: i32 = 143;

pub(crate) async fn run(options: &Serve, output: Output) -> anyhow::Result<Exit> {
    let log = options.log.map(|log| match log {
        Log::Text => LogFormat::Text,
        Log::Json => LogFormat::Json,
    });
    let overrides = Overrides { listen: options.listen, data_dir: options.data.clone(), log };
    let loaded = load(options.config.as_deref(), &overrides)?;
    logs::start(loaded.settings.log);
    for warning in &loaded.warnings.faults {
        tracing::warn!(code = ?warning.code, "{warning}; {}", warning.hint);
    }
    raise_open_files(loaded.settings.connections_max);
    say_watched(&loaded.compiled);
    let drain_seconds = loaded.settings.drain_seconds;
    let configured = options.config.is_some();
    // Before the greeting: whoever reads it may send the signal at once.
    let mut stop = Stop { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    let hangup = signal(SignalKind::hangup())?;
    let running = start(loaded).await?;
    tokio::spawn(hung_up(hangup, Arc::clone(running.reload())));
    let address = format!("http://{}", running.addr());
    if output.json() {
        output.document(&greeting_json(&address, running.data_dir()))?;
    } else {
        let usual = load(None, &Overrides::default())?.data_dir().is_ok_and(|dir| dir == running.data_dir());
        output.line(&greeting(&address, running.data_dir(), usual, configured));
    }
    stop.asked().await;
    tracing::info!(drain_seconds, "stopping: no new calls; a second signal ends at once");
    tokio::select! {
        () = running.stop() => Ok(Exit::Done),
        () = stop.asked() => std::process::exit(ENDED_AT_ONCE),
    }
}

/// Nobody is to rely on what is not decided.
fn say_watched(compiled: &Compiled) {
    let watched = compiled.providers.values().filter(|provider| provider.observes).count();
    if watched > 0 {
        let providers = compiled.providers.len();
        tracing::warn!(
            watched,
            providers,
            "mode observe: calls of these providers are forwarded once and not decided on; see `forbear report`"
        );
    }
}

/// Says the limit, and whether it is enough for what is configured.
fn raise_open_files(connections_max: u64) {
    let needed = files::needed(connections_max);
    match files::raise() {
        Ok(Some(open_files_max)) if open_files_max < needed => tracing::warn!(
            open_files_max,
            needed,
            "the hard limit of open files is below what connections_max may need: raise it, or lower connections_max"
        ),
        Ok(open_files_max) => tracing::debug!(open_files_max, "as many files may be open as the system allows"),
        Err(error) => tracing::warn!(%error, "the limit of open files could not be raised"),
    }
}

struct Stop {
    term: Signal,
    int: Signal,
}

impl Stop {
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// The configuration is read again; a call goes on as it began.
async fn hung_up(mut hangup: Signal, reload: Arc<Reload>) {
    while hangup.recv().await.is_some() {
        // What came of it is in the log.
        let _ = reload.reload("SIGHUP").await;
    }
}

/// `usual`: the data are where the commands look for themselves.
fn greeting(address: &str, data: &Path, usual: bool, configured: bool) -> String {
    let at = if usual { String::new() } else { format!(" --data {}", quoted(data)) };
    let without =
        if configured { "" } else { "\nNo configuration is needed; `forbear config default` shows what may be said." };
    format!(
        "\
forbear listening on {address}

Set one of these in a client, and leave its API key as it is:
  OpenAI     OPENAI_BASE_URL={address}/openai/v1
  Anthropic  ANTHROPIC_BASE_URL={address}/anthropic
  Stripe     stripe.api_base = \"{address}/stripe\"
  GitHub     base URL {address}/github
  others     {address}/<provider>/<path>, declared under `providers`

Data and control token: {}
Look at it with:
  forbear scopes{at}
  forbear actions{at}
  forbear action ID{at}{without}",
        data.display()
    )
}

/// As a shell takes it for one word, wherever it runs.
fn quoted(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&b));
    if plain { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn greeting_json(address: &str, data: &Path) -> serde_json::Value {
    json!({
        "listening": address,
        "data_dir": data,
        "clients": {
            "OPENAI_BASE_URL": format!("{address}/openai/v1"),
            "ANTHROPIC_BASE_URL": format!("{address}/anthropic"),
            "stripe.api_base": format!("{address}/stripe"),
            "github_base_url": format!("{address}/github"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_first_and_all_of_it_fits() {
        let said = greeting("http://127.0.0.1:8429", Path::new("/d"), true, false);
        assert_eq!(said.lines().next(), Some("forbear listening on http://127.0.0.1:8429"));
        assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
        assert!(said.contains("OPENAI_BASE_URL=http://127.0.0.1:8429/openai/v1\n"), "{said}");
        assert!(said.contains("No configuration is needed"), "{said}");
        assert!(said.contains("\n  forbear scopes\n"), "{said}");
        let elsewhere = greeting("http://127.0.0.1:8499", Path::new("/srv/it's here"), false, true);
        assert!(!elsewhere.contains("No configuration"), "{elsewhere}");
        assert!(elsewhere.contains("\n  forbear scopes --data '/srv/it'\\''s here'\n"), "{elsewhere}");
    }
}
