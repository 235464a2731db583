//! `forbear routes suggest`: rules for routes that were called and have none, as lines of a configuration.

use forbear_api::control::{RouteSuggestion, RouteSuggestions};

use super::server::client;
use crate::cli::Suggest;
use crate::failure::Exit;
use crate::output::{Output, wrapped};

pub(crate) async fn suggest(options: &Suggest, output: Output) -> anyhow::Result<Exit> {
    let found = client(&options.server)?.route_suggestions(&options.since, options.provider.as_deref()).await?;
    if output.json() {
        output.document(&found)?;
    } else {
        output.line(&rendered(&found));
    }
    Ok(Exit::Done)
}

fn rendered(found: &RouteSuggestions) -> String {
    if found.items.is_empty() {
        return "# Every route that was called in that time has a rule.".into();
    }
    let first = "# A proposal: read each line before you paste it. None is looser than what holds without it; what a provider \
                 does with a second call only its documentation says.";
    let mut lines = vec![wrapped(first, "# ")];
    if found.calls_beyond > 0 {
        let more = format!("# {} more calls were on routes too many to be told apart.", found.calls_beyond);
        lines.push(wrapped(&more, "# "));
    }
    lines.push("providers:".into());
    let mut last = "";
    for s in &found.items {
        if s.provider != last {
            last = &s.provider;
            lines.push(format!("  {last}:\n    routes:"));
        }
        lines.push(entry(s));
    }
    lines.join("\n")
}

/// A comment and the line to paste.
fn entry(s: &RouteSuggestion) -> String {
    let statuses: Vec<String> = s.statuses.iter().map(|(status, n)| format!("{status} x {n}")).collect();
    let calls = if s.calls == 1 { "1 call".to_owned() } else { format!("{} calls", s.calls) };
    let statuses = if statuses.is_empty() { String::new() } else { format!(" ({})", statuses.join(", ")) };
    let mut why = format!("      # {calls}{statuses}; {}.", s.reason);
    if let Some(instead) = &s.instead {
        why.push_str(&format!(
            " All of them came with a key: where the documentation says that it is honoured, `{instead}`."
        ));
    }
    // A path may be longer than a line, and stays whole.
    format!("{}\n      - {{match: \"{}\", class: {}}}", wrapped(&why, "      # "), s.pattern, s.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_fits_and_says_why() {
        let item = |provider: &str, pattern: &str, instead: Option<&str>| RouteSuggestion {
            provider: provider.into(),
            pattern: pattern.into(),
            class: "uncertain_write".into(),
            calls: 12,
            statuses: [(200, 10), (404, 2)].into(),
            reason: "as without a rule: nothing shows that a second one does no harm".into(),
            instead: instead.map(str::to_owned),
        };
        let instead = Some("class: idempotent_write, idempotency_header: x-key");
        let items = vec![item("a", "POST /v1/x", instead), item("a", "POST /v1/y", None), item("b", "POST /z", None)];
        let text = rendered(&RouteSuggestions { items, calls_beyond: 3 });
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        let said = [
            "# A proposal",
            "# 3 more calls",
            "providers:\n  a:\n    routes:\n      # 12 calls (200 x 10, 404 x 2); as",
            "      - {match: \"POST /v1/x\", class: uncertain_write}",
            "idempotency_header:",
            "\n  b:\n    routes:\n",
        ];
        for said in said {
            assert!(text.contains(said), "`{said}` is not in\n{text}");
        }
        assert_eq!(text.matches("  a:").count(), 1, "{text}");
    }
}
