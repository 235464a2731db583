//! `forbear scopes`: the register, as a table.

use forbear_api::ScopeRow;

use super::server::client;
use crate::cli::Server;
use crate::failure::Exit;
use crate::output::{Output, table};

const HEADER: [&str; 7] = ["SCOPE", "NEXT ALLOWED", "LEFT", "SOURCE", "FLIGHT", "WAIT", "RETRIES/MIN"];

pub(crate) async fn run(server: &Server, output: Output) -> anyhow::Result<Exit> {
    let rows = client(server)?.scopes().await?;
    if output.json() {
        output.document(&rows)?;
    } else if rows.is_empty() {
        output.line("No scope is known yet: nothing was asked since the server started.");
    } else {
        output.line(&rendered(&rows));
    }
    Ok(Exit::Done)
}

fn rendered(rows: &[ScopeRow]) -> String {
    table(&HEADER, rows.iter().map(row).collect())
}

fn row(r: &ScopeRow) -> Vec<String> {
    let opens = match (r.next_allowed_at, r.reset_after_seconds) {
        (Some(at), Some(seconds)) => {
            let time = at.time_of_day();
            let second = time.split('.').next().unwrap_or_default().to_owned();
            format!("{second} (in {seconds} s)")
        }
        (Some(at), None) => at.time_of_day(),
        (None, _) => "now".to_owned(),
    };
    let of = |used: u32, max: Option<u32>| max.map_or_else(|| used.to_string(), |max| format!("{used}/{max}"));
    let limits = r.limits.as_ref();
    vec![
        r.scope.clone(),
        opens,
        r.remaining.map_or_else(|| "-".to_owned(), |n| n.to_string()),
        r.source.clone().unwrap_or_else(|| "-".to_owned()),
        of(r.in_flight, limits.map(|l| l.max_concurrent_requests)),
        of(r.delayed, limits.map(|l| l.max_delayed_requests)),
        of(r.retries_last_minute, limits.map(|l| l.max_retries_per_minute)),
    ]
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
        let text = rendered(&[closed, open]);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        for said in ["00:00:10", "11", "32/32", "1000/1000", "now", "123456"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}
