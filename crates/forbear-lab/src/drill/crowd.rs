//! A crowd on a provider that is down: ten tasks of three retries each spend no more retries than the scope allows.

use forbear_core::policy::Policy;

use super::STEP_TIME_MAX;
use super::agent::{Call, ask};
use super::expected::Reads;
use super::gateway::Gateway;
use super::report::Findings;
use super::setup::{Provided, crowd_retries_max};

const TASKS: usize = 10;

pub(super) const SCENARIO: &str = "\
name: drill-crowd
routes:
  - match: GET /v1/down
    respond: {status: 503, body: {error: down}}
";

pub(super) async fn run(crowd: &Provided, gateway: &Gateway, policy: &Policy, found: &mut Findings) {
    let mut calls = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let call = Call::get(&crowd.target("/v1/down"))
            .with("authorization", "Bearer drill")
            .with("forbear-task", format!("drill-crowd-{task}"));
        let server = gateway.addr();
        calls.spawn(async move { ask(server, &call, STEP_TIME_MAX).await });
    }
    let answers = calls.join_all().await;
    let answered = answers.iter().filter(|a| a.is_ok()).count();
    let arrivals = crowd.provider.arrivals().len();
    let allowed = crowd_retries_max(policy) as usize;
    let wanted = TASKS * Reads::under(policy).retries(503);
    let retries = arrivals.saturating_sub(TASKS);
    found.measured("crowd_tasks", TASKS);
    found.measured("crowd_retries_wanted", wanted);
    found.measured("crowd_retries_allowed", allowed);
    found.measured("crowd_retries", retries);
    found.expect(answered == TASKS, || format!("{answered} of {TASKS} tasks of the crowd were answered"));
    found.expect(retries <= allowed, || format!("the crowd spent {retries} retries where {allowed} are allowed"));
    found.expect(retries > 0 || wanted.min(allowed) == 0, || {
        "the crowd made no retry: the bound was not met".to_owned()
    });
}
