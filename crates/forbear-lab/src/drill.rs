//! The drill: whether a real Forbear, under a given policy, keeps its promises. A person runs it before trusting one.
//!
//! The server is a process of its own, started from the same program, so that killing it is real; providers and agents
//! are here. It promises that what counts is measured at the fake provider, in its own time: arrivals, their keys and
//! their effects. What an agent was told is looked at only where the step is about what agents are told. It refuses to
//! guess: a step that could not be measured does not hold.
//!
//! ```text
//!   agents (here) ──▶ forbear serve (child) ──▶ fake providers (here, one a step, so that no log is shared)
//! ```

mod agent;
mod crash;
mod crowd;
mod expected;
mod gateway;
mod lost_answer;
mod measure;
mod report;
mod setup;
mod shared_quota;
mod told;

use std::path::PathBuf;
use std::time::Duration;

use forbear_core::policy::Policy;

pub use agent::{Answer, Call, ask};
pub use gateway::{Gateway, Launch};
pub use report::{DrillReport, Step};
pub use setup::{DrillError, Provided, configuration};

/// No step may take longer; one that does, does not hold.
const STEP_TIME_MAX: Duration = Duration::from_secs(55);

/// What is drilled.
#[derive(Debug, Clone)]
pub struct DrillOptions {
    /// The program; `serve` with its flags is called on it.
    pub program: PathBuf,
    /// The policy in force; its providers are replaced by the drill's own.
    pub policy: Policy,
}

/// Runs all steps, side by side where they do not touch each other. `done` hears of each as it ends.
///
/// # Errors
/// When the providers or the server could not be started: then nothing was measured at all.
pub async fn run(options: &DrillOptions, done: impl Fn(&Step)) -> Result<DrillReport, DrillError> {
    let dir = tempfile::tempdir().map_err(DrillError::Directory)?;
    let shared = setup::Providers::start(&options.policy).await?;
    let gateway = Gateway::start(&Launch {
        program: &options.program,
        dir: &dir.path().join("calm"),
        configuration: &shared.configuration(&options.policy),
    })
    .await?;
    let told = |steps: Vec<Step>| {
        steps.iter().for_each(&done);
        steps
    };
    let policy = &options.policy;
    // On the heap: together they are larger than a stack should bear.
    let quota = Box::pin(async { told(shared_quota::run(&shared.quota, &gateway, policy).await) });
    let ledger = bounded(lost_answer::NAME, lost_answer::run(&shared.ledger, &gateway, policy));
    let ledger = Box::pin(async { told(vec![ledger.await]) });
    let limits = bounded(told::NAME, told::run(&shared, &gateway, policy));
    let limits = Box::pin(async { told(vec![limits.await]) });
    let crash_dir = dir.path().join("killed");
    let crash = bounded(crash::NAME, crash::run(&options.program, &crash_dir, policy));
    let crash = Box::pin(async { told(vec![crash.await]) });
    let (quota, ledger, limits, crash) = tokio::join!(quota, ledger, limits, crash);
    let steps: Vec<Step> = [quota, ledger, limits, crash].concat();
    gateway.kill().await;
    Ok(DrillReport { holds: steps.iter().all(|s| s.holds), steps })
}

async fn bounded(name: &'static str, step: impl Future<Output = Step>) -> Step {
    let step = Box::pin(step);
    match tokio::time::timeout(STEP_TIME_MAX, step).await {
        Ok(step) => step,
        Err(_) => Step::unmeasured(name, format!("it took longer than {} s", STEP_TIME_MAX.as_secs())),
    }
}
