//! `forbear drill`: six steps, each with what was measured at the fake provider.

use forbear_lab::drill::{DrillOptions, DrillReport, Step};
use forbear_server::config::{Overrides, load};
use serde_json::Value;

use crate::cli::Drill;
use crate::failure::Exit;
use crate::output::{Output, wrapped};
use crate::progress::spinner;

const INDENT: &str = "       ";
/// The measures' names; longer ones push their values out.
const NAME_COLUMNS: usize = 32;

pub(crate) async fn run(options: &Drill, output: Output) -> anyhow::Result<Exit> {
    let policy = load(options.config.as_deref(), &Overrides::default())?.compiled.policy;
    let drill = DrillOptions { program: std::env::current_exe()?, policy };
    let progress = spinner(output, "drilling: real waits, and a real kill");
    let report = forbear_lab::drill::run(&drill, |step| {
        progress.set_message(format!("{}: {}", if step.holds { "holds" } else { "does not hold" }, step.name));
    })
    .await;
    progress.finish_and_clear();
    let report = report?;
    if output.json() {
        output.document(&report)?;
    } else {
        output.line(&rendered(&report, output));
    }
    Ok(if report.holds { Exit::Done } else { Exit::Failed })
}

fn rendered(report: &DrillReport, output: Output) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (n, step) in report.steps.iter().enumerate() {
        lines.push(rendered_step(n + 1, step, output));
    }
    let (style, word) =
        if report.holds { (output.good(), "All of it holds.") } else { (output.bad(), "It does not hold.") };
    lines.push(format!("{style}{word}{}", output.plain()));
    lines.join("\n\n")
}

fn rendered_step(n: usize, step: &Step, output: Output) -> String {
    let (style, mark) = if step.holds { (output.good(), "holds") } else { (output.bad(), "FAILS") };
    let head = wrapped(&format!("{mark}  {n}. {}", step.name), INDENT);
    let mut lines = vec![format!("{style}{mark}{}{}", output.plain(), head.trim_start_matches(mark))];
    lines.push(wrapped(&format!("{INDENT}{}", step.why), INDENT));
    for (name, value) in &step.measured {
        // The whole answer is for --json.
        if !value.is_object() {
            lines.push(format!("{INDENT}{}{name:NAME_COLUMNS$} {}{}", output.dim(), plain(value), output.plain()));
        }
    }
    lines.join("\n")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_say_what_was_measured_within_the_width() {
        let measured = serde_json::json!({"quiet_after_refusal_ms": 10_061, "keys": ["k-1", "k-2"], "none": null});
        let step = Step {
            name: "budgets end with their context, cancelled work never wakes, a crowd keeps to its scope".into(),
            holds: false,
            measured: measured.as_object().unwrap().clone(),
            why: "the crowd spent 11 retries where 10 are allowed, and this is said at such length that it wraps"
                .into(),
        };
        let text = anstream::adapter::strip_str(&rendered_step(5, &step, Output::new(false))).to_string();
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.starts_with("FAILS  5. budgets end"), "{text}");
        for said in ["10061", "k-1, k-2", "none                             -"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}
