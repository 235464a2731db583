//! Group F: no layer multiplies another's retries, no wait is shortened, and every budget that is named is kept.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::rig::Rig;

fn always(answer: &str) -> String {
    format!("routes:\n  - match: '* /{{rest...}}'\n    respond: {answer}\n")
}

const FAST: &str = "backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}\n";
/// The budget is what is counted: a provider that is down would be left alone before it is spent.
const NO_CIRCUIT: &str = "breakers: {scope_failures: 0}\n";

/// An application that asks four times, over a kit that sends each call three times and heeds no word not to.
#[tokio::test]
async fn fb_089_loops_above_do_not_multiply_the_sends() {
    let policy = format!("{FAST}task: {{max_retries: 3}}\nrequest_classes: {{read: {{max_attempts: 4}}}}");
    let rig = Rig::new(&always("{status: 429, body: {}}"), &policy).await;
    for _ in 0..4 {
        for sent in ["0", "1", "2"] {
            let fields = [("authorization", "k"), ("forbear-task", "t"), ("x-stainless-retry-count", sent)];
            let got = rig.call("GET", "/p/x", &fields, "").await;
            let said = (got.status, got.header("forbear-outcome"), got.header("x-should-retry"));
            assert_eq!(said, (429, "budget_exhausted", "false"), "{got:?}");
        }
    }
    assert_eq!(rig.provider.arrivals().len(), 4, "the first call and its retries");
}

/// What a layer above tries again is a retry: it has its share of the budget, and no more.
#[tokio::test]
async fn a_retry_from_above_is_charged_to_its_task() {
    let classes = "request_classes: {read: {max_attempts: 1}}";
    let policy = format!("{FAST}task: {{max_retries: 2}}\n{classes}");
    let rig = Rig::new(&always("{status: 503, body: {}}"), &policy).await;
    let ask = |task: &'static str| {
        let rig = &rig;
        async move { rig.call("GET", "/p/x", &[("authorization", "k"), ("forbear-task", task)], "").await }
    };
    for sends in [1, 2, 3, 3, 3] {
        assert_eq!(ask("t").await.header("forbear-outcome"), "budget_exhausted");
        assert_eq!(rig.provider.arrivals().len(), sends);
    }
    ask("another").await;
    assert_eq!(rig.provider.arrivals().len(), 4, "the budget is its task's");
}

#[tokio::test]
async fn fb_090_a_scope_spends_no_more_retries_than_it_may() {
    let policy = format!("{FAST}{NO_CIRCUIT}shared_scope: {{max_retries_per_minute: 5, max_concurrent_requests: 8}}");
    let rig = Rig::new(&always("{status: 503, body: {}}"), &policy).await;
    let rig = &rig;
    let calls = (0..36).map(|n| async move { rig.get(&format!("/p/{n}")).await.status });
    assert!(join_all(calls).await.iter().all(|status| *status == 503));
    assert_eq!(rig.provider.arrivals().len(), 36 + 5, "each call once, and five retries");
}

#[tokio::test]
async fn fb_094_no_wait_is_shortened() {
    for seconds in ["60", "61", "119", "121", "3600"] {
        let refusal = format!("{{status: 429, headers: {{Retry-After: '{seconds}'}}, body: {{}}}}");
        let policy = "request_classes: {read: {max_wait_seconds: 5, max_queue_seconds: 5}}";
        let rig = Rig::new(&always(&refusal), policy).await;
        let began = Instant::now();
        let got = rig.get("/p/x").await;
        assert_eq!((got.status, got.header("x-should-retry")), (429, "false"), "{seconds}: {got:?}");
        assert!(began.elapsed() < Duration::from_secs(3), "it does not sleep first");
        let again = rig.get("/p/x").await;
        assert_eq!((again.status, rig.provider.arrivals().len()), (429, 1), "{seconds}: {again:?}");
        assert!(!again.header("retry-after").is_empty(), "{again:?}");
    }
}

#[tokio::test]
async fn fb_095_a_hint_of_hours_costs_one_attempt() {
    let rig = Rig::new(&always("{status: 429, headers: {Retry-After: '10800'}, body: {}}"), "").await;
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (429, "1"), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn fb_097_threads_together_keep_the_budget() {
    let policy = format!("{FAST}{NO_CIRCUIT}shared_scope: {{max_retries_per_minute: 60, max_concurrent_requests: 16}}");
    let rig = Rig::new(&always("{status: 503, body: {}}"), &policy).await;
    let rig = &rig;
    let workers = (0..16).map(|worker| async move {
        for n in 0..10 {
            rig.get(&format!("/p/{worker}/{n}")).await;
        }
    });
    join_all(workers).await;
    assert_eq!(rig.provider.arrivals().len(), 160 + 60);
}

#[tokio::test]
async fn fb_099_one_attempt_is_one_arrival() {
    let faults = [
        "{status: 429, body: {}}",
        "{status: 503, body: {}}",
        "{fault: {at: after_body, end: rst}}",
        "{fault: {at: after_body, end: stall}}",
    ];
    let classes = "request_classes: {read: {max_attempts: 1}, inference: {max_attempts: 1, unknown_resends: 0}}";
    for fault in faults {
        let policy = format!(
            "{FAST}{classes}\nupstream: {{head_timeout_seconds: 1}}\nproviders:\n  p:\n    base_url: $BASE\n    \
             routes: [{{match: 'POST /x', class: inference}}]\n"
        );
        for method in ["GET", "POST"] {
            let rig = Rig::new(&always(fault), &policy).await;
            rig.call(method, "/p/x", &[("authorization", "k")], "").await;
            assert_eq!(rig.provider.arrivals().len(), 1, "{method} {fault}");
        }
    }
}
