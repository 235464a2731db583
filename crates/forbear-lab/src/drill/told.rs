//! Step 5: where waiting ends. A used-up budget is an answer with its whole context, cancelled work never wakes, and a
//! crowd of tasks stays within what their scope may spend.

use std::time::Duration;

use forbear_core::policy::{Policy, Rank};
use http::Method;
use serde_json::Value;

use super::STEP_TIME_MAX;
use super::agent::{Answer, Call, ask};
use super::crowd;
use super::expected::Reads;
use super::gateway::Gateway;
use super::report::{Findings, Step};
use super::setup::{Provided, Providers};

pub(super) const NAME: &str = "budgets end with their context, cancelled work never wakes, a crowd keeps to its scope";

/// What an answer that ends a wait must say (members that are there whatever happened).
const CONTEXT: [&str; 12] = [
    "type",
    "title",
    "status",
    "detail",
    "action",
    "sent",
    "answered",
    "effect",
    "attempts",
    "waited_ms",
    "safe_next",
    "reason",
];

const CANCEL_BOUNDARY_MS: u64 = 3_000;
/// How long past the boundary the provider is watched for a call that should have stayed asleep.
const CANCEL_WATCH_MS: u64 = 2_000;
const SOON: Duration = Duration::from_secs(5);

pub(super) const CANCELLED_SCENARIO: &str = "\
name: drill-cancelled
routes:
  - match: GET /v1/wait
    then:
      - {status: 429, headers: {Retry-After: '3'}, body: {error: slow down}}
      - {body: {ok: true}}
";

/// One short wait, then one that is longer than what is left of the class's budget.
pub(super) fn budget_scenario(policy: &Policy) -> String {
    let whole = policy.request_classes.get(Rank::Read.class()).map_or(0, |r| r.max_wait_seconds);
    format!(
        "\
name: drill-budget
routes:
  - match: GET /v1/slow
    then:
      - {{status: 429, headers: {{Retry-After: '1'}}, body: {{error: slow down}}}}
      - {{status: 429, headers: {{Retry-After: '{}'}}, body: {{error: slow down}}}}
",
        whole.max(1)
    )
}

pub(super) async fn run(providers: &Providers, gateway: &Gateway, policy: &Policy) -> Step {
    let mut found = Findings::new(NAME);
    let mut cancelled = Findings::new(NAME);
    let mut crowded = Findings::new(NAME);
    tokio::join!(
        budget(&providers.budget, gateway, policy, &mut found),
        cancel(&providers.cancelled, gateway, policy, &mut cancelled),
        crowd::run(&providers.crowd, gateway, policy, &mut crowded),
    );
    found.absorb(cancelled);
    found.absorb(crowded);
    found.conclude("each wait ended with its reason, and nothing arrived that should not")
}

async fn budget(provided: &Provided, gateway: &Gateway, policy: &Policy, found: &mut Findings) {
    let call = Call::get(&provided.target("/v1/slow"))
        .with("authorization", "Bearer drill")
        .with("forbear-task", "drill-budget");
    let answer = match ask(gateway.addr(), &call, STEP_TIME_MAX).await {
        Ok(answer) => answer,
        Err(why) => return found.expect(false, || format!("the task with the used-up budget had no answer: {why}")),
    };
    let arrivals = provided.provider.arrivals().len();
    let problem = answer.json();
    found.measured("budget_arrivals", arrivals);
    found.measured("budget_answer", problem.clone());
    if !Reads::under(policy).handles(429) {
        // This policy leaves a 429 to the agent: it is the provider's answer, and there is no budget to use up.
        let outcome = answer.field("forbear-outcome");
        found.expect(outcome == "rejected" && arrivals == 1, || format!("a 429 to pass on was told as `{outcome}`"));
        return;
    }
    found.expect(answer.field("forbear-outcome") == "budget_exhausted", || {
        format!("the used-up budget was told as `{}`", answer.field("forbear-outcome"))
    });
    let missing = missing_context(&answer, &problem);
    found.expect(missing.is_empty(), || format!("the answer does not say: {}", missing.join(", ")));
    found.expect(problem["attempts"].as_u64() == Some(arrivals as u64), || {
        format!("the answer says {} attempts, the provider saw {arrivals}", problem["attempts"])
    });
    let next = &problem["next_allowed_at"];
    found.expect(next.is_string(), || "the answer does not say when the scope opens".to_owned());
}

fn missing_context(answer: &Answer, problem: &Value) -> Vec<&'static str> {
    let mut missing: Vec<&str> =
        CONTEXT.into_iter().filter(|member| problem.get(member).is_none_or(Value::is_null)).collect();
    if !answer.field("content-type").starts_with("application/problem+json") {
        missing.push("that it is a problem (content-type)");
    }
    if problem["safe_next"].as_array().is_none_or(Vec::is_empty) {
        missing.push("what is safe next");
    }
    missing
}

/// One call of the task waits for its retry, one for its turn, as far as the policy lets them; then it is cancelled.
async fn cancel(provided: &Provided, gateway: &Gateway, policy: &Policy, found: &mut Findings) {
    let task = "drill-cancelled";
    let call = Call::get(&provided.target("/v1/wait")).with("authorization", "Bearer drill").with("forbear-task", task);
    let reads = Reads::under(policy);
    let retried = u64::from(reads.waits_for_a_retry(429, CANCEL_BOUNDARY_MS));
    let in_line = u64::from(reads.waits_in_line(CANCEL_BOUNDARY_MS));
    let second = async {
        gateway.wait_until_closed(provided.name, SOON).await?;
        ask(gateway.addr(), &call, STEP_TIME_MAX).await
    };
    let cancelling = async {
        gateway.wait_until_closed(provided.name, SOON).await?;
        gateway.wait_until_delayed(provided.name, retried + in_line, SOON).await?;
        gateway.control(Method::DELETE, &format!("/-/v1/tasks/{task}")).await
    };
    let (first, second, cancelled) = tokio::join!(ask(gateway.addr(), &call, STEP_TIME_MAX), second, cancelling);
    if let Err(why) = cancelled {
        return found.expect(false, || format!("the task could not be cancelled while it waited: {why}"));
    }
    // Nothing can be waited for here but time: the boundary, and then some.
    tokio::time::sleep(Duration::from_millis(CANCEL_BOUNDARY_MS + CANCEL_WATCH_MS)).await;
    let arrivals = provided.provider.arrivals().len();
    let outcome =
        |told: &Result<Answer, String>| told.as_ref().map_or("no answer", |a| a.field("forbear-outcome")).to_owned();
    let outcomes = [outcome(&first), outcome(&second)];
    let ended = outcomes.iter().filter(|o| *o == "cancelled").count() as u64;
    found.measured("cancelled_waiting", retried + in_line);
    found.measured("cancelled_outcomes", outcomes.to_vec());
    found.measured("cancelled_arrivals", arrivals);
    found.expect(ended == retried + in_line, || format!("the cancelled task was told {}", outcomes.join(" and ")));
    found.expect(arrivals == 1, || format!("{} calls arrived after their task was cancelled", arrivals - 1));
}
