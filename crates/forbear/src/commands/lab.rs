//! `forbear lab`: the fake provider alone, and the simulator.

use forbear_lab::provider::{Http2, RunOptions};
use forbear_lab::sim::{Shrunk, SimOptions, SimReport};

use crate::cli::{LabProvider, Sim};
use crate::failure::Exit;
use crate::output::{Output, wrapped};
use crate::progress::bar;

pub(crate) async fn provider(options: &LabProvider) -> anyhow::Result<Exit> {
    let run = RunOptions {
        scenario: options.scenario.clone(),
        listen: options.listen,
        tls: options.tls,
        http2: Http2::Auto,
        ca_pem_file: options.ca_pem.clone(),
    };
    forbear_lab::provider::run(run, Box::new(std::io::stdout())).await?;
    Ok(Exit::Done)
}

/// As JSON the whole report is one document, both traces of the first broken seed within it.
pub(crate) fn sim(options: &Sim, output: Output) -> anyhow::Result<Exit> {
    let bar = bar(output, options.seeds);
    let run = SimOptions { seeds: options.seeds, first_seed: options.seed, ..SimOptions::default() };
    let report = forbear_lab::sim::run(run, |progress| bar.set_position(progress.done));
    bar.finish_and_clear();
    if output.json() {
        output.document(&report)?;
    } else {
        output.line(&rendered(&report));
    }
    Ok(if report.broken == 0 { Exit::Done } else { Exit::Failed })
}

fn rendered(report: &SimReport) -> String {
    let mut lines = Vec::new();
    for (what, schedules) in &report.coverage {
        lines.push(format!("{schedules:>9}  {what}"));
    }
    if let Some(broken) = &report.first_broken {
        lines.push(wrapped(
            &format!("seed {} breaks {} at step {}: {}", broken.seed, broken.check, broken.step, broken.message),
            "  ",
        ));
        lines.extend(broken.shrunk.iter().map(shrunk));
        lines.push(format!("replay: forbear lab sim --seeds 1 --seed {}", broken.seed));
    }
    lines.push(format!("{} schedules, {} broken, {} a second", report.seeds, report.broken, report.seeds_per_second));
    lines.join("\n")
}

/// The same check broken by less, a line a step.
fn shrunk(small: &Shrunk) -> String {
    let faults = if small.faults.is_empty() { "no fault".to_owned() } else { small.faults.join(", ") };
    let mut lines = vec![wrapped(&format!("made small: calls {}; {faults}", small.calls), "  ")];
    lines.extend(small.trace.iter().map(|line| wrapped(&format!("  {line}"), "    ")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use forbear_lab::sim::Broken;

    use super::*;

    #[test]
    fn a_broken_seed_says_how_to_replay_it() {
        let broken = Broken {
            seed: 42,
            step: 7,
            check: "one_effect".into(),
            message: "two effects".into(),
            trace: Vec::new(),
            shrunk: Some(Shrunk {
                calls: 2,
                faults: vec!["Crashes after 7 ms".into()],
                steps: 5,
                message: "two effects".into(),
                trace: vec!["x ".repeat(100)],
                runs: 40,
            }),
        };
        let report = SimReport {
            seeds: 100,
            broken: 1,
            first_broken: Some(broken),
            seeds_per_second: 9,
            steps: 20_000,
            coverage: [("crash", 31)].into(),
        };
        let text = rendered(&report);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.contains("forbear lab sim --seeds 1 --seed 42"), "{text}");
        assert!(text.contains("made small: calls 2; Crashes after 7 ms"), "{text}");
        assert!(text.contains("31  crash"), "{text}");
        assert!(text.ends_with("100 schedules, 1 broken, 9 a second"), "{text}");
    }
}
