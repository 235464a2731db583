//! `forbear live` and `forbear circuits`: what the server holds right now.

use forbear_api::control::{CircuitRow, Listed, LiveQuery, LiveRow};
use serde::Serialize;

use super::action::standing;
use super::server::client;
use crate::cli::{Live, Server};
use crate::failure::Exit;
use crate::output::{Output, shown, wrapped};

pub(crate) async fn run(options: &Live, output: Output) -> anyhow::Result<Exit> {
    let query = LiveQuery { task: options.task.clone(), scope: options.scope.clone() };
    let live = client(&options.server)?.live(&query).await?;
    said(&live, output, "Nothing waits and nothing is on the wire.", entry)
}

pub(crate) async fn circuits(server: &Server, output: Output) -> anyhow::Result<Exit> {
    let circuits = client(server)?.circuits().await?;
    said(&circuits, output, "No circuit is open: nothing failed again and again.", circuit)
}

fn said<T: Serialize>(
    listed: &Listed<T>,
    output: Output,
    none: &str,
    entry: impl Fn(&T) -> String,
) -> anyhow::Result<Exit> {
    if output.json() {
        output.document(listed)?;
        return Ok(Exit::Done);
    }
    if listed.items.is_empty() {
        output.line(none);
    }
    listed.items.iter().for_each(|item| output.line(&entry(item)));
    if listed.cut {
        output.line(&format!("There are more: these are the first {}.", listed.items.len()));
    }
    Ok(Exit::Done)
}

fn entry(row: &LiveRow) -> String {
    let task = if row.task == row.action { String::new() } else { format!("  task {}", shown(&row.task)) };
    let what = format!("  {}  {}{task}", row.provider, row.route);
    format!("{}\n{}\n{}", row.action, wrapped(&what, "    "), wrapped(&format!("  {}", standing(&row.now)), "    "))
}

fn circuit(row: &CircuitRow) -> String {
    let run = row.run.as_ref().map_or(String::new(), |run| format!("  run {}", shown(run)));
    let route = row.route.as_ref().map_or(String::new(), |route| format!("  {route}"));
    let title = wrapped(&format!("{}  {}{route}{run}", row.kind, row.scope), "    ");
    let time = row.until.time_of_day();
    let second = time.split('.').next().unwrap_or_default();
    let until = format!("  until {} {second} UTC: {}", row.until.day(), row.reason);
    format!("{title}\n{}", wrapped(&until, "    "))
}

#[cfg(test)]
mod tests {
    use forbear_api::{At, Standing};

    use super::*;

    #[test]
    fn a_waiting_call_says_until_when_why_and_as_how_manyth() {
        let row = LiveRow {
            action: format!("act_{}", "0".repeat(26)),
            started_at: At(0),
            provider: "openai".into(),
            scope: "openai/0123".into(),
            route: "POST /v1/threads/{thread_id}/runs/{run_id}/submit_tool_outputs".into(),
            request_class: "inference".into(),
            task: "a-task-with-a-long-name-that-an-agent-gave-it-for-reasons-of-its-own".into(),
            run: "r".into(),
            now: Standing {
                stage: "waiting".into(),
                waits_for: Some("boundary".into()),
                next_allowed_at: Some(At(9_000)),
                place: Some(3),
                attempts: 1,
                waited_ms: 0,
            },
        };
        let said = entry(&row);
        assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
        assert!(said.contains("waits until 00:00:09.000") && said.contains("place 3"), "{said}");
    }

    #[test]
    fn a_circuit_says_what_failed_and_until_when() {
        let row = CircuitRow {
            kind: "endpoint".into(),
            scope: "openai/0123456789abcdef0123".into(),
            run: None,
            route: Some("POST /v1/chat/completions".into()),
            status: Some(503),
            code: None,
            failures: 20,
            until: At(30_000),
            reason: "the last 20 attempts on POST /v1/chat/completions came to nothing, at last with 503".into(),
        };
        let said = circuit(&row);
        assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
        assert!(said.contains("until 1970-01-01 00:00:30 UTC: the last 20 attempts"), "{said}");
    }
}
