//! `forbear action ID`: the whole story of one action, one line a fact, each with its time and its reason.

use forbear_api::{ActionStory, Standing, StoryEvent};

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
    // What it does right now is not yet on record.
    let (attempts, waited_ms) = story.now.as_ref().map_or((a.attempts, a.waited_ms), |n| (n.attempts, n.waited_ms));
    let below = if story.sends_below > 0 { format!(" and {} below", story.sends_below) } else { String::new() };
    let mut lines = vec![
        format!("{}{}{}", output.strong(), a.action, output.plain()),
        wrapped(&format!("{}  {} ({})", a.provider, a.route, a.request_class), "  "),
        wrapped(&format!("scope {}  task {}  run {}", a.scope, a.task, a.run), "  "),
        format!("{outcome}{effect}; attempts {attempts}{below}, waited {}", span(waited_ms)),
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
    lines.extend(story.now.as_ref().map(|now| wrapped(&format!("now           {}", standing(now)), INDENT)));
    lines.join("\n")
}

/// What it does right now.
pub(super) fn standing(now: &Standing) -> String {
    let until = now.next_allowed_at.map(|at| format!(" until {}", at.time_of_day())).unwrap_or_default();
    let why = match now.waits_for.as_deref() {
        Some("boundary") => ": the provider wants none before that".to_owned(),
        Some("slot") => ": all slots of its scope are taken".to_owned(),
        Some("pacing") => ": its scope has just opened, others leave first".to_owned(),
        Some("backoff") => ": the provider named no time, so Forbear chose one".to_owned(),
        Some(other) => format!(": {other}"),
        None => String::new(),
    };
    let place = now.place.map_or(String::new(), |place| format!("; place {place} by when it came"));
    match now.stage.as_str() {
        "waiting" => format!("waits{until}{why}{place}"),
        "in_flight" => "an attempt is on the wire".to_owned(),
        _ => "the answer is on its way to the agent".to_owned(),
    }
}

fn line(event: &StoryEvent) -> String {
    wrapped(&format!("{}  {}", event.at.time_of_day(), event.text), INDENT)
}

#[cfg(test)]
mod tests {
    use forbear_api::At;

    use super::*;

    #[test]
    fn what_waits_says_until_when_and_why() {
        let now = |stage: &str, waits_for: Option<&str>| Standing {
            stage: stage.into(),
            waits_for: waits_for.map(str::to_owned),
            next_allowed_at: waits_for.map(|_| At(9_000)),
            place: waits_for.map(|_| 2),
            attempts: 1,
            waited_ms: 0,
        };
        for reason in ["boundary", "slot", "pacing", "backoff"] {
            let said = standing(&now("waiting", Some(reason)));
            assert!(
                said.starts_with("waits until 00:00:09.000: ") && said.ends_with("; place 2 by when it came"),
                "{said}"
            );
        }
        assert_eq!(standing(&now("in_flight", None)), "an attempt is on the wire");
    }

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
