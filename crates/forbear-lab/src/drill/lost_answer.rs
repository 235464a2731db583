//! Step 4: a write with a stable key whose answer is lost after the provider stored its record.

use forbear_core::policy::{Policy, Rank};

use super::STEP_TIME_MAX;
use super::agent::{Call, ask};
use super::gateway::Gateway;
use super::measure::keys;
use super::report::{Findings, Step};
use super::setup::Provided;

pub(super) const NAME: &str = "a write whose answer is lost creates no second record";

const KEY: &str = "drill-transfer-1";

pub(super) const SCENARIO: &str = "\
name: drill-ledger
routes:
  - match: POST /v1/transfers
    idempotency: {header: Idempotency-Key, replay_headers: {Idempotent-Replayed: 'true'}}
    respond:
      status: 201
      effect: {name: transfer, id: '{{id tr_}}'}
      fault: {at: after_commit, end: rst}
      body: {id: '{{effect.id}}'}
";

pub(super) async fn run(ledger: &Provided, gateway: &Gateway, policy: &Policy) -> Step {
    let call = Call::post(&ledger.target("/v1/transfers"), r#"{"amount":5}"#)
        .with("authorization", "Bearer drill")
        .with("forbear-task", "drill-transfer")
        .with("idempotency-key", KEY);
    let answer = ask(gateway.addr(), &call, STEP_TIME_MAX).await;

    let (arrivals, effects) = (ledger.provider.arrivals(), ledger.provider.effects());
    let resends = policy.request_classes.get(Rank::IdempotentWrite.class()).is_some_and(|r| r.max_attempts > 1);
    let seen = keys(&arrivals);
    let mut found = Findings::new(NAME);
    found.measured("arrivals", arrivals.len());
    found.measured("effects", effects.count);
    found.measured("keys", seen.clone());
    found.measured("answer_status", answer.as_ref().ok().map(|a| a.status));
    found.expect(effects.count == 1, || format!("the provider has {} records", effects.count));
    found.expect(seen == [KEY], || format!("the key did not stay the agent's own: {}", seen.join(", ")));
    match &answer {
        Ok(answer) if resends => {
            found.expect(answer.status == 201, || format!("the agent got {}, not the stored answer", answer.status));
            found.expect(arrivals.len() > 1, || "the answer came without asking again: nothing was lost".to_owned());
        }
        Ok(answer) => {
            found.expect(answer.field("forbear-outcome") == "outcome_unknown", || {
                format!("one attempt is allowed, and the agent got {} without being told", answer.status)
            });
        }
        Err(why) => found.expect(false, || format!("the agent had no answer: {why}")),
    }
    found.conclude(if resends {
        "the same key was sent again, the provider replayed its answer, and has one record"
    } else {
        "this policy allows one attempt: the agent was told that the outcome is unknown"
    })
}
