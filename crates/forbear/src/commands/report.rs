//! `forbear report`: what was done, and what would have been done where calls are only watched.

use forbear_api::control::{Decided, ProviderReport, Report, ScopeReport};

use super::server::client;
use crate::cli;
use crate::failure::Exit;
use crate::output::{Output, span, wrapped};

pub(crate) async fn run(options: &cli::Report, output: Output) -> anyhow::Result<Exit> {
    let report = client(&options.server)?.report(&options.since).await?;
    if output.json() {
        output.document(&report)?;
    } else {
        output.line(&rendered(&report));
    }
    Ok(Exit::Done)
}

fn rendered(report: &Report) -> String {
    let (Some(from), Some(to)) = (report.from, report.to) else { return "Nothing is on record for that time.".into() };
    let minute = |at: forbear_api::At| at.time_of_day().chars().take(5).collect::<String>();
    let mut lines = vec![format!("{} {} to {} {} UTC", from.day(), minute(from), to.day(), minute(to))];
    if report.providers.is_empty() {
        lines.push("No call began and ended in that time.".into());
    }
    lines.extend(report.providers.iter().flat_map(provider));
    lines.join("\n")
}

fn provider(p: &ProviderReport) -> Vec<String> {
    let mut lines = vec![String::new(), p.provider.clone()];
    lines.extend(sums(&p.total, "  "));
    // One scope is all of its provider.
    for scope in p.scopes.iter().filter(|_| p.scopes.len() > 1) {
        lines.push(format!("  {}", scope.scope));
        lines.extend(sums(scope, "    "));
    }
    lines
}

fn sums(s: &ScopeReport, indent: &str) -> Vec<String> {
    let mut lines = vec![format!("{indent}{}, {}", counted(s.calls, "call"), counted(s.sends, "send"))];
    for (who, decided) in [("done", &s.done), ("would be", &s.would)] {
        let said = decisions(decided);
        if !said.is_empty() {
            lines.push(wrapped(&format!("{indent}{who}: {said}"), &format!("{indent}  ")));
        }
    }
    lines
}

/// What is not nothing, in one sentence.
fn decisions(d: &Decided) -> String {
    let mut parts = Vec::new();
    if d.saved > 0 {
        parts.push(format!("{} saved", counted(d.saved, "call")));
    }
    if d.duplicates_prevented > 0 {
        parts.push(format!("{} prevented", counted(d.duplicates_prevented, "duplicate")));
    }
    let named = [
        ("held", d.held),
        ("joined", d.joined),
        ("done before", d.already_done),
        ("open", d.open),
        ("key mismatch", d.key_mismatch),
        ("ended", d.ended),
        ("sent again", d.retries),
    ];
    let named: Vec<String> = named.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what} {n}")).collect();
    if !named.is_empty() {
        parts.push(named.join(", "));
    }
    let w = &d.waits;
    if w.count > 0 {
        let (total, p50, max) = (span(w.total_ms), span(w.p50_ms), span(w.max_ms));
        parts.push(format!("{}: {total} in all, half up to {p50}, at most {max}", counted(w.count, "wait")));
    }
    parts.join("; ")
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use forbear_api::At;
    use forbear_api::control::Waits;

    use super::*;

    #[test]
    fn a_report_fits_and_says_both_sides() {
        let most = |n| Decided {
            saved: n,
            duplicates_prevented: n,
            held: n,
            retries: n,
            joined: n,
            already_done: n,
            open: n,
            key_mismatch: n,
            ended: n,
            waits: Waits { count: n, total_ms: n, p50_ms: n, max_ms: n },
        };
        let scope =
            |scope: &str, n| ScopeReport { scope: scope.into(), calls: 1, sends: 2, done: most(0), would: most(n) };
        let provider = ProviderReport {
            provider: "openai".into(),
            total: scope("*", 119_999),
            scopes: vec![scope("openai/0123456789abcdef0123", 7), scope("openai/anonymous", 0)],
        };
        let report = Report { from: Some(At(0)), to: Some(At(60_000)), providers: vec![provider] };
        let text = rendered(&report);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        for said in
            ["1970-01-01 00:00 to", "1 call, 2 sends", "would be: 119999 calls saved", "half up to 119.9 s", "held 7"]
        {
            assert!(text.contains(said), "`{said}` is not in\n{text}");
        }
        assert!(!text.contains("done: "), "what did not happen is not said:\n{text}");
        assert!(rendered(&Report { from: None, to: None, providers: vec![] }).starts_with("Nothing"));
    }
}
