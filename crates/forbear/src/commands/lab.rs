//! `forbear lab`: the fake provider alone, and the simulator.

use forbear_lab::provider::{Http2, RunOptions};
use forbear_lab::sim::{SimOptions, SimReport};

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

/// As JSON the whole report is one document, the trace of the first broken seed within it.
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
    if let Some(broken) = &report.first_broken {
        lines.push(wrapped(
            &format!("seed {} breaks {} at step {}: {}", broken.seed, broken.check, broken.step, broken.message),
            "  ",
        ));
        lines.extend(broken.trace.iter().map(|line| wrapped(&format!("  {line}"), "    ")));
        lines.push(format!("replay: forbear lab sim --seeds 1 --seed {}", broken.seed));
    }
    lines.push(format!("{} schedules, {} broken, {} a second", report.seeds, report.broken, report.seeds_per_second));
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
            trace: vec!["x ".repeat(100)],
        };
        let report = SimReport { seeds: 100, broken: 1, first_broken: Some(broken), seeds_per_second: 9 };
        let text = rendered(&report);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.contains("forbear lab sim --seeds 1 --seed 42"), "{text}");
        assert!(text.ends_with("100 schedules, 1 broken, 9 a second"), "{text}");
    }
}
