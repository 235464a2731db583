//! `forbear scopes`: the register, as a table.

use forbear_api::{ScopeRow, Scopes};

use super::server::client;
use crate::cli::Server;
use crate::failure::Exit;
use crate::output::Output;

pub(crate) async fn run(server: &Server, output: Output) -> anyhow::Result<Exit> {
    let scopes = client(server)?.scopes().await?;
    if output.json() {
        output.document(&scopes)?;
    } else if scopes.items.is_empty() {
        output.line("No scope is known yet: nothing was asked since the server started.");
    } else {
        output.line(&rendered(&scopes));
    }
    Ok(Exit::Done)
}

fn rendered(scopes: &Scopes) -> String {
    let mut lines: Vec<String> = scopes.items.iter().map(entry).collect();
    if scopes.cut {
        lines.push(format!("There are more: these are the first {}.", scopes.items.len()));
    }
    lines.join("\n")
}

/// A scope on a line of its own, so that it can be copied, and what is known of it below.
fn entry(r: &ScopeRow) -> String {
    let opens = match (r.next_allowed_at, r.reset_after_seconds) {
        (Some(at), seconds) => {
            let time = at.time_of_day();
            let second = time.split('.').next().unwrap_or_default();
            let left = seconds.map_or(String::new(), |s| format!(", in {s} s"));
            let source = r.source.as_ref().map_or(String::new(), |s| format!(": {s}"));
            format!("closed until {} {second} UTC{left}{source}", at.day())
        }
        (None, _) => "open".to_owned(),
    };
    let of = |used: u32, max: Option<u32>| max.map_or_else(|| used.to_string(), |max| format!("{used} of {max}"));
    let limits = r.limits.as_ref();
    let left = r.remaining.map_or(String::new(), |n| format!("left {n}, "));
    format!(
        "{}\n  {opens}\n  {left}in flight {}, waiting {}, retries/min {}",
        r.scope,
        of(r.in_flight, limits.map(|l| l.max_concurrent_requests)),
        of(r.delayed, limits.map(|l| l.max_delayed_requests)),
        of(r.retries_last_minute, limits.map(|l| l.max_retries_per_minute)),
    )
}

#[cfg(test)]
mod tests {
    use forbear_api::{At, ScopeLimits};

    use super::*;

    #[test]
    fn the_register_fits_and_says_when_a_scope_opens() {
        let closed = ScopeRow {
            provider: "anthropic".into(),
            scope: "anthropic/0123456789abcdef0123".into(),
            request_class: "*".into(),
            next_allowed_at: Some(At(10_500)),
            remaining: Some(123_456),
            reset_after_seconds: Some(11),
            source: Some("uncertain_boundary".into()),
            in_flight: 32,
            delayed: 1_000,
            limits: Some(ScopeLimits {
                max_delayed_requests: 1_000,
                max_concurrent_requests: 32,
                max_retries_per_minute: 60,
            }),
            windows: vec![],
            retries_last_minute: 60,
        };
        let open = ScopeRow { next_allowed_at: None, source: None, limits: None, remaining: None, ..closed.clone() };
        let text = rendered(&Scopes { items: vec![closed, open], cut: true });
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        for said in ["00:00:10", "11", "32 of 32", "1000 of 1000", "open", "123456", "the first 2"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}
