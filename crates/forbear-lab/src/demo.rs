//! The demo: three agents on one quota, a provider that really enforces it, and a Forbear between them. It hands out what
//! happens as it happens; telling it is the caller's.
//!
//! Everything in it is measured at the provider, in its time, but for what each agent was answered in the end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use forbear_core::policy::Policy;
use serde::Serialize;
use serde_json::json;

use crate::drill::{Call, DrillError, Gateway, Launch, Provided, ask, configuration};
use crate::provider::Arrival;

pub const AGENTS: [&str; AGENT_COUNT as usize] = ["ada", "ben", "cleo"];
const AGENT_COUNT: u32 = 3;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_SECOND: u64 = 1_000 * NS_PER_MS;
/// From the provider's refusal to the server's knowing of it, on a busy machine.
pub const ON_THE_WAY_MS: u64 = 100;
const CALL_TIME_MAX: Duration = Duration::from_secs(60);

/// How much is asked, and what the provider stands.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The program; `serve` with its flags is called on it.
    pub program: PathBuf,
    pub questions_per_agent: u32,
    /// The provider takes so many calls in each window, over all agents, and refuses more for a whole window.
    pub window_calls: u32,
    pub window_seconds: u64,
}

impl DemoOptions {
    /// About twenty seconds.
    #[must_use]
    pub const fn usual(program: PathBuf) -> Self {
        Self { program, questions_per_agent: 4, window_calls: 3, window_seconds: 5 }
    }

    /// The same with shorter waits.
    #[must_use]
    pub const fn fast(program: PathBuf) -> Self {
        Self { program, questions_per_agent: 3, window_calls: 3, window_seconds: 2 }
    }

    #[must_use]
    pub const fn calls(&self) -> u32 {
        self.questions_per_agent * AGENT_COUNT
    }
}

/// Something that happened; times are the provider's, since its first arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happened {
    /// A call reached the provider and was answered.
    Arrived {
        at_ms: u64,
        answered_at_ms: u64,
        agent: String,
        question: u32,
        status: u16,
        retry_after_seconds: Option<u64>,
    },
    /// An agent has its answer.
    Answered { agent: String, question: u32, status: u16, outcome: String, attempts: u32, waited_ms: u64 },
}

/// What it came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DemoReport {
    pub agents: u32,
    pub calls: u32,
    pub succeeded: u32,
    /// Arrivals at the provider, all of them.
    pub arrivals: u32,
    pub refused: u32,
    /// Arrivals before a boundary that an earlier refusal had set: what must be none. What arrives within
    /// [`ON_THE_WAY_MS`] of a refusal had left before anybody could know of it.
    pub arrivals_too_early: u32,
    pub took_ms: u64,
}

/// Runs it.
///
/// # Errors
/// When provider or server could not be started.
pub async fn run(options: &DemoOptions, happened: impl Fn(&Happened)) -> Result<DemoReport, DrillError> {
    let provided = Provided::start("weather", &scenario(options)).await?;
    let dir = tempfile::tempdir().map_err(DrillError::Directory)?;
    let configuration =
        configuration(&Policy::default(), json!({provided.name: {"base_url": provided.provider.base_url()}}));
    let launch = Launch { program: &options.program, dir: dir.path(), configuration: &configuration };
    let gateway = Gateway::start(&launch).await?;

    let (sender, mut answers) = tokio::sync::mpsc::channel(1);
    let mut agents = tokio::task::JoinSet::new();
    for agent in AGENTS {
        let (sender, server, questions) = (sender.clone(), gateway.addr(), options.questions_per_agent);
        agents.spawn(async move {
            for question in 1..=questions {
                // The one who listens is gone only when the demo is over.
                let _ = sender.send(ask_one(server, agent, question).await).await;
            }
        });
    }
    drop(sender);

    let mut story = Story { options, provided: &provided, told: BTreeSet::new(), happened: &happened };
    let (mut succeeded, mut answered) = (0, 0);
    while answered < options.calls() {
        tokio::select! {
            // What the provider saw is told before what follows from it.
            biased;
            _ = provided.provider.wait_until(CALL_TIME_MAX, |seen| story.untold(seen).next().is_some()) => story.go_on(),
            answer = answers.recv() => {
                story.go_on();
                let Some(answer) = answer else { break };
                answered += 1;
                succeeded += u32::from(matches!(answer, Happened::Answered { status: 200, .. }));
                happened(&answer);
            }
        }
    }
    story.go_on();
    gateway.kill().await;
    let arrivals = provided.provider.arrivals();
    Ok(DemoReport { agents: AGENT_COUNT, calls: options.calls(), succeeded, ..measured(options, &arrivals) })
}

async fn ask_one(server: std::net::SocketAddr, agent: &'static str, question: u32) -> Happened {
    let call = Call::get(&format!("/weather/v1/forecast?agent={agent}&question={question}"))
        .with("authorization", "Bearer one-key-for-all")
        .with("forbear-task", agent);
    match ask(server, &call, CALL_TIME_MAX).await {
        Ok(answer) => Happened::Answered {
            agent: agent.to_owned(),
            question,
            status: answer.status,
            outcome: answer.field("forbear-outcome").to_owned(),
            attempts: answer.field("forbear-attempts").parse().unwrap_or_default(),
            waited_ms: answer.field("forbear-waited-ms").parse().unwrap_or_default(),
        },
        Err(why) => {
            let (agent, outcome) = (agent.to_owned(), why);
            Happened::Answered { agent, question, status: 0, outcome, attempts: 0, waited_ms: 0 }
        }
    }
}

/// What the provider saw, told once each, in the order of its answers.
struct Story<'a, F> {
    options: &'a DemoOptions,
    provided: &'a Provided,
    /// Arrivals by their number.
    told: BTreeSet<u64>,
    happened: &'a F,
}

impl<F: Fn(&Happened)> Story<'_, F> {
    fn untold<'s>(&self, seen: &'s [Arrival]) -> impl Iterator<Item = (u64, u16, &'s Arrival)> {
        seen.iter().filter(|a| !self.told.contains(&a.n)).filter_map(|a| Some((a.head_written_at_ns?, a.status?, a)))
    }

    fn go_on(&mut self) {
        let seen = self.provided.provider.arrivals();
        // Two that come together are listed in either order.
        let origin = seen.iter().map(|a| a.at_ns).min().unwrap_or_default();
        let mut fresh: Vec<(u64, u16, &Arrival)> = self.untold(&seen).collect();
        fresh.sort_unstable_by_key(|(head, ..)| *head);
        for (head, status, a) in fresh {
            self.told.insert(a.n);
            let (agent, question) = who(&a.target);
            (self.happened)(&Happened::Arrived {
                at_ms: (a.at_ns - origin) / NS_PER_MS,
                answered_at_ms: (head - origin) / NS_PER_MS,
                agent,
                question,
                status,
                retry_after_seconds: (status == 429).then_some(self.options.window_seconds),
            });
        }
    }
}

/// Who asked, from the query that the demo's agents send.
fn who(target: &str) -> (String, u32) {
    let part = |name: &str| {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        query.split('&').find_map(|pair| pair.strip_prefix(name)).unwrap_or_default()
    };
    (part("agent=").to_owned(), part("question=").parse().unwrap_or_default())
}

fn measured(options: &DemoOptions, arrivals: &[Arrival]) -> DemoReport {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let refusals: Vec<(u64, u64)> = arrivals
        .iter()
        .filter(|a| a.status == Some(429))
        .filter_map(|a| a.head_written_at_ns.map(|head| (head, head + options.window_seconds * NS_PER_SECOND)))
        .collect();
    let on_the_way = ON_THE_WAY_MS * NS_PER_MS;
    let early = |a: &&Arrival| refusals.iter().any(|(from, until)| (from + on_the_way..*until).contains(&a.at_ns));
    let times = || arrivals.iter().map(|a| a.at_ns);
    DemoReport {
        arrivals: count(arrivals.len()),
        refused: count(refusals.len()),
        arrivals_too_early: count(arrivals.iter().filter(early).count()),
        took_ms: times().max().unwrap_or_default().saturating_sub(times().min().unwrap_or_default()) / NS_PER_MS,
        ..DemoReport::default()
    }
}

fn scenario(options: &DemoOptions) -> String {
    format!(
        "\
name: demo
limits:
  - name: quota
    per: credential
    window: {{max: {calls}, per_ms: {ms}}}
    answer: {{status: 429, headers: {{Retry-After: '{seconds}'}}, body: {{error: slow down}}}}
routes:
  - match: GET /v1/forecast
    respond: {{delay_ms: 120, body: {{forecast: sunny}}}}
",
        calls = options.window_calls,
        ms = options.window_seconds * 1_000,
        seconds = options.window_seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Scenario;

    #[test]
    fn both_scenarios_load_and_who_asked_is_in_the_target() {
        for options in [DemoOptions::usual(PathBuf::new()), DemoOptions::fast(PathBuf::new())] {
            Scenario::from_yaml(&scenario(&options)).unwrap();
        }
        assert_eq!(who("/v1/forecast?agent=ada&question=2"), ("ada".to_owned(), 2));
        assert_eq!(who("/v1/forecast"), (String::new(), 0));
    }
}
