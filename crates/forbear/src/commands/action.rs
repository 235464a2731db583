//! `forbear action ID`: the whole story of one action, one line a fact, each with its time and its reason.

use forbear_api::{ActionStory, StoryEvent};

use super::server::client;
use crate::cli::Server;
use crate::failure::Exit;
use crate::output::{Output, span, wrapped};

/// The time's columns: `14:03:07.120  `.
const INDENT: &str = "              ";

pub(crate) async fn run(id: &str, server: &Server, output: Output) -> anyhow::Result<Exit> {
    let story = client(server)?.action(id).await?;
    if output.json() {
        output.document(&story)?;
    } else {
        output.line(&rendered(&story, output));
    }
    Ok(Exit::Done)
}

fn rendered(story: &ActionStory, output: Output) -> String {
    let a = &story.action;
    let outcome = a.outcome.as_deref().unwrap_or("under way");
    let effect = a.effect.as_ref().map(|e| format!(", effect {e}")).unwrap_or_default();
    let mut lines = vec![
        format!("{}{}{}", output.strong(), a.action, output.plain()),
        wrapped(&format!("{}  {} ({})", a.provider, a.route, a.request_class), "  "),
        wrapped(&format!("scope {}  task {}  run {}", a.scope, a.task, a.run), "  "),
        format!("{outcome}{effect}; attempts {}, waited {}", a.attempts, span(a.waited_ms)),
        String::new(),
    ];
    if story.cut {
        lines.push("Earlier events are no longer kept.".to_owned());
    }
    let mut day = String::new();
    for event in &story.events {
        if event.at.day() != day {
            day = event.at.day();
            lines.push(format!("{}{day} UTC{}", output.dim(), output.plain()));
        }
        lines.push(line(event));
    }
    lines.join("\n")
}

fn line(event: &StoryEvent) -> String {
    wrapped(&format!("{}  {}", event.at.time_of_day(), event.text), INDENT)
}

#[cfg(test)]
mod tests {
    use forbear_api::At;

    use super::*;

    #[test]
    fn a_fact_begins_with_its_time_and_goes_on_below_itself() {
        let text = "attempt 2 waits 10.0 s until 00:00:10.050: status allows a retry; the provider wants none before 00:00:10.000";
        let event =
            StoryEvent { at: At(50), seq: 1, kind: String::new(), text: text.into(), data: serde_json::Value::Null };
        let said = line(&event);
        assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
        assert!(said.starts_with("00:00:00.050  attempt 2 waits"), "{said}");
        assert!(said.lines().skip(1).all(|l| l.starts_with(INDENT)), "{said}");
    }
}
