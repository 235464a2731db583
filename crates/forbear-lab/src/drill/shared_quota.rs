//! Steps 1 to 3: three tasks on one quota. The first call is refused for ten seconds; nothing of the scope arrives
//! before they are over, and what waited arrives apart.

use std::time::Duration;

use forbear_core::policy::Policy;

use super::STEP_TIME_MAX;
use super::agent::{Answer, Call, ask};
use super::expected::Reads;
use super::gateway::Gateway;
use super::measure::{first_head_ns, least_gap_ms, quiet_ms};
use super::report::{Findings, Step};
use super::setup::Provided;
use crate::provider::Arrival;

const ASK: &str = "three tasks share one quota and ask the same safe read";
const HOLD: &str = "a 429 with Retry-After: 10 holds all work of the scope";
const APART: &str = "after it they succeed, and arrive apart";

const BOUNDARY_MS: u64 = 10_000;
const TASKS: usize = 3;
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

pub(super) const SCENARIO: &str = "\
name: drill-quota
routes:
  - match: GET /v1/report
    then:
      - {status: 429, headers: {Retry-After: '10'}, body: {error: slow down}}
      - {body: {ok: true}}
";

pub(super) async fn run(quota: &Provided, gateway: &Gateway, policy: &Policy) -> Vec<Step> {
    match tokio::time::timeout(STEP_TIME_MAX, calls(quota, gateway)).await {
        Ok(Ok(answers)) => judge(&quota.provider.arrivals(), policy, &answers),
        Ok(Err(why)) => unmeasured(&why),
        Err(_) => unmeasured("the calls were not answered in time"),
    }
}

fn unmeasured(why: &str) -> Vec<Step> {
    [ASK, HOLD, APART].map(|name| Step::unmeasured(name, why)).to_vec()
}

type Told = Result<Answer, String>;

/// The first task asks; the others ask once the server has surely read the refusal.
async fn calls(quota: &Provided, gateway: &Gateway) -> Result<Vec<Told>, String> {
    let call = |task: usize| {
        let call = Call::get(&quota.target("/v1/report")).with("forbear-task", format!("drill-quota-{task}"));
        let call = call.with("authorization", "Bearer drill");
        async move { ask(gateway.addr(), &call, STEP_TIME_MAX).await }
    };
    let others = async {
        gateway.wait_until_closed(quota.name, CLOSED_WITHIN).await?;
        Ok::<_, String>(tokio::join!(call(2), call(3)))
    };
    let (first, others) = tokio::join!(call(1), others);
    let (second, third) = others?;
    Ok(vec![first, second, third])
}

fn judge(arrivals: &[Arrival], policy: &Policy, answers: &[Told]) -> Vec<Step> {
    let head = first_head_ns(arrivals, 429);
    let succeeded = answers.iter().filter(|a| a.as_ref().is_ok_and(|a| a.status == 200)).count();
    let after = arrivals.iter().filter(|a| Some(a.at_ns) > head).count();
    // A policy may allow no wait that long: then the calls end with a reason, and fewer arrive.
    let reads = Reads::under(policy);
    let retried = usize::from(reads.waits_for_a_retry(429, BOUNDARY_MS));
    let in_line = if reads.waits_in_line(BOUNDARY_MS) { TASKS - 1 } else { 0 };
    let expected = retried + in_line;

    let mut asked = Findings::new(ASK);
    let credentials: std::collections::BTreeSet<&str> = arrivals.iter().map(|a| a.credential.as_str()).collect();
    asked.measured("tasks", answers.len());
    asked.measured("arrivals", arrivals.len());
    asked.measured("credentials_at_provider", credentials.len());
    asked.expect(answers.len() == TASKS, || "not every task asked".to_owned());
    asked.expect(credentials.len() == 1, || "the calls did not carry one credential".to_owned());
    if let Some(Err(why)) = answers.iter().find(|a| a.is_err()) {
        asked.expect(false, || format!("a task had no answer: {why}"));
    }

    let mut held = Findings::new(HOLD);
    let quiet = head.and_then(|head| quiet_ms(arrivals, head));
    let before = arrivals.iter().filter(|a| Some(a.at_ns) <= head).count();
    held.measured("retry_after_ms", BOUNDARY_MS);
    held.measured("quiet_after_refusal_ms", quiet);
    held.measured("arrivals_up_to_the_refusal", before);
    held.expect(head.is_some(), || "the provider refused nothing".to_owned());
    held.expect(quiet.is_none_or(|ms| ms >= BOUNDARY_MS), || {
        format!("a call arrived {} ms after a refusal for {BOUNDARY_MS} ms", quiet.unwrap_or_default())
    });

    let mut apart = Findings::new(APART);
    let gap = head.and_then(|head| least_gap_ms(arrivals, head));
    // Half of the policy's gap: what the network adds to one and takes from the next is not the server's.
    let least_ms = policy.pacing.release_gap_ms / 2;
    apart.measured("succeeded", succeeded);
    apart.measured("arrivals_after_boundary", after);
    apart.measured("least_gap_ms", gap);
    apart.measured("least_gap_expected_ms", least_ms);
    apart.measured("arrivals_expected", expected);
    apart.expect(succeeded == expected, || format!("{succeeded} tasks succeeded where {expected} may wait"));
    apart.expect(after == expected, || format!("{after} calls arrived after the boundary, not {expected}"));
    apart.expect(after < 2 || gap >= Some(least_ms), || "the calls arrived in one burst".to_owned());
    let why = match expected {
        TASKS => format!("each task has its answer; the calls arrived at least {} ms apart", gap.unwrap_or_default()),
        _ => format!("this policy lets {expected} of {TASKS} calls wait that long; no other arrived"),
    };
    vec![
        asked.conclude("one credential, one scope at the provider"),
        held.conclude(match quiet {
            Some(ms) => format!("the provider saw nothing of the scope for {ms} ms"),
            None => "the provider saw nothing of the scope any more".to_owned(),
        }),
        apart.conclude(why),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::measure::testing::arrival;
    use super::*;

    fn holds(arrivals: &[(u64, u16)]) -> Vec<bool> {
        let arrivals: Vec<Arrival> = arrivals.iter().map(|(at_ms, status)| arrival(*at_ms, *status)).collect();
        let ok = Answer { status: 200, fields: http::HeaderMap::new(), body: hyper::body::Bytes::new() };
        let told = [Ok(ok.clone()), Ok(ok.clone()), Ok(ok)];
        judge(&arrivals, &Policy::default(), &told).iter().map(|s| s.holds).collect()
    }

    #[test]
    fn an_early_call_and_a_burst_are_seen() {
        assert_eq!(holds(&[(0, 429), (10_020, 200), (10_150, 200), (10_300, 200)]), [true, true, true]);
        assert_eq!(holds(&[(0, 429), (9_999, 200), (10_150, 200), (10_300, 200)]), [true, false, true]);
        assert_eq!(holds(&[(0, 429), (10_020, 200), (10_021, 200), (10_300, 200)]), [true, true, false]);
        assert_eq!(holds(&[(0, 429), (10_020, 200), (10_150, 200)]), [true, true, false]);
        assert_eq!(holds(&[(0, 200), (1, 200), (2, 200)]), [true, false, false]);
    }
}
