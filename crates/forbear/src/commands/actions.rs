//! `forbear actions`: what was asked, newest first, two lines an action so that its id stays whole.

use forbear_api::{ActionQuery, ActionRow};

use super::server::client;
use crate::cli::Actions;
use crate::failure::Exit;
use crate::output::{Output, span, wrapped};

pub(crate) async fn run(options: &Actions, output: Output) -> anyhow::Result<Exit> {
    let query = ActionQuery {
        task: options.task.clone(),
        run: options.run.clone(),
        outcome: options.outcome.clone(),
        open: options.open,
        limit: Some(options.limit),
        before: options.before.clone(),
    };
    let page = client(&options.server)?.actions(&query).await?;
    if output.json() {
        output.document(&page)?;
        return Ok(Exit::Done);
    }
    if page.items.is_empty() {
        output.line("No action matches.");
    }
    let mut day = String::new();
    for action in &page.items {
        if action.started_at.day() != day {
            day = action.started_at.day();
            output.line(&format!("{}{day} UTC{}", output.dim(), output.plain()));
        }
        output.line(&entry(action));
    }
    if let Some(next) = page.next {
        output.line(&format!("{}more: --before {next}{}", output.dim(), output.plain()));
    }
    Ok(Exit::Done)
}

fn entry(a: &ActionRow) -> String {
    let time = a.started_at.time_of_day();
    let outcome = a.outcome.as_deref().unwrap_or("under way");
    let mut spent = if a.attempts == 1 { "1 try".to_owned() } else { format!("{} tries", a.attempts) };
    if a.waited_ms > 0 {
        spent.push_str(&format!(", {}", span(a.waited_ms)));
    }
    let status = a.provider_status.map(|s| format!(" {s}")).unwrap_or_default();
    let task = if a.task == a.action { String::new() } else { format!("  task {}", a.task) };
    format!(
        "{time}  {}  {outcome}{status}\n{}",
        a.action,
        wrapped(&format!("  {spent}: {}  {}{task}", a.provider, a.route), "    ")
    )
}

#[cfg(test)]
mod tests {
    use forbear_api::At;

    use super::*;

    #[test]
    fn an_action_keeps_its_id_whole_and_fits() {
        let action = ActionRow {
            action: format!("act_{}", "0".repeat(26)),
            started_at: At(0),
            finished_at: None,
            provider: "openai".into(),
            scope: "openai/x".into(),
            route: "POST /v1/threads/{thread_id}/runs/{run_id}/submit_tool_outputs".into(),
            request_class: "inference".into(),
            task: "a-task-with-a-long-name-that-an-agent-gave-it-for-reasons-of-its-own".into(),
            run: "r".into(),
            outcome: Some("deadline_exhausted".into()),
            effect: None,
            provider_status: Some(429),
            attempts: 12,
            waited_ms: 119_900,
        };
        let text = entry(&action);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.starts_with(&format!("00:00:00.000  {}  deadline_exhausted 429\n", action.action)), "{text}");
        assert!(text.contains("\n  12 tries, 119.9 s: openai  POST"), "{text}");
    }
}
