//! `forbear demo`: the story of three agents on one quota, told as it happens.

use std::cell::Cell;

use forbear_lab::demo::{DemoOptions, DemoReport, Happened};

use crate::cli::Demo;
use crate::failure::Exit;
use crate::output::{Output, span, wrapped};

pub(crate) async fn run(options: &Demo, output: Output) -> anyhow::Result<Exit> {
    let program = std::env::current_exe()?;
    let demo = if options.fast { DemoOptions::fast(program) } else { DemoOptions::usual(program) };
    if !output.json() {
        output.line(&opening(&demo));
    }
    let failed = Cell::new(None);
    let report = forbear_lab::demo::run(&demo, |event| {
        if output.json() {
            if let Err(e) = output.document(event) {
                failed.set(Some(e));
            }
        } else {
            output.line(&told(event));
        }
    })
    .await?;
    if let Some(error) = failed.take() {
        return Err(error);
    }
    if output.json() {
        output.document(&report)?;
    } else {
        output.line(&closing(&report));
    }
    let held = report.arrivals_too_early == 0 && report.succeeded == report.calls;
    Ok(if held { Exit::Done } else { Exit::Failed })
}

fn opening(demo: &DemoOptions) -> String {
    let text = format!(
        "Three agents, ada, ben and cleo, share one API key. Each asks {} questions, one after the other. \
         The provider takes {} calls in {} s on that key and refuses more for {} s. None of the three knows of the \
         others, and none repeats a call: Forbear stands between. The times are the provider's.",
        demo.questions_per_agent, demo.window_calls, demo.window_seconds, demo.window_seconds
    );
    format!("{}\n", wrapped(&text, ""))
}

fn told(event: &Happened) -> String {
    match event {
        Happened::Arrived { answered_at_ms, agent, question, status, retry_after_seconds, .. } => {
            let time = format!("{:>3}.{:03} s", answered_at_ms / 1_000, answered_at_ms % 1_000);
            match retry_after_seconds {
                Some(seconds) => format!(
                    "{time}  {agent:<4} question {question}  -> {status}, come back in {seconds} s: no new call until then"
                ),
                None => format!("{time}  {agent:<4} question {question}  -> {status}"),
            }
        }
        Happened::Answered { agent, question, status: 200, attempts, waited_ms, .. } => {
            let how = match (attempts, waited_ms) {
                (0 | 1, 0) => "at the first try".to_owned(),
                (0 | 1, waited) => format!("at the first try, after waiting {}", span(*waited)),
                (n, waited) => format!("after {n} tries and waiting {}", span(*waited)),
            };
            format!("           {agent:<4} has answer {question}, {how}")
        }
        Happened::Answered { agent, question, status, outcome, .. } => {
            format!("           {agent:<4} has no answer {question}: {status} {outcome}")
        }
    }
}

fn closing(r: &DemoReport) -> String {
    let text = format!(
        "{} of {} questions answered, no agent wrote a retry. The provider saw {} calls in {} and refused {}; \
         {} came before it allowed the next.",
        r.succeeded,
        r.calls,
        r.arrivals,
        span(r.took_ms),
        r.refused,
        if r.arrivals_too_early == 0 { "none".to_owned() } else { r.arrivals_too_early.to_string() }
    );
    format!("\n{}", wrapped(&text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_fits() {
        let arrived = |status, retry_after_seconds| Happened::Arrived {
            at_ms: 105_000,
            answered_at_ms: 105_012,
            agent: "cleo".into(),
            question: 4,
            status,
            retry_after_seconds,
        };
        let answered = |status| Happened::Answered {
            agent: "cleo".into(),
            question: 4,
            status,
            outcome: "budget_exhausted".into(),
            attempts: 4,
            waited_ms: 15_250,
        };
        let told = [arrived(200, None), arrived(429, Some(5)), answered(200), answered(429)].map(|e| told(&e));
        assert_eq!(told[0], "105.012 s  cleo question 4  -> 200");
        let report =
            DemoReport { calls: 12, succeeded: 12, arrivals: 21, refused: 9, took_ms: 15_400, ..DemoReport::default() };
        let texts = [opening(&DemoOptions::usual("x".into())), told.join("\n"), closing(&report)];
        for line in texts.iter().flat_map(|t| t.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(texts[2].contains("none came before"), "{}", texts[2]);
    }
}
