//! Pacing before failure, against limits that are enforced by arrival time: no refusal, no herd, no waste.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::rig::Rig;

/// The most arrivals in any window that begins with one.
fn most_in_a_window(rig: &Rig, window: Duration) -> usize {
    let mut at: Vec<u64> = rig.provider.arrivals().iter().map(|a| a.at_ns).collect();
    at.sort_unstable();
    let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    at.iter()
        .enumerate()
        .map(|(i, from)| at[i..].iter().take_while(|t| **t < from + window_ns).count())
        .max()
        .unwrap_or(0)
}

/// A provider that counts so many requests of a second by arrival, and says of `/closes` that it is to be left alone.
async fn limited(max: u32, retry_after_s: u32, slots: u32) -> Rig {
    let scenario = format!(
        "
limits:
  - name: requests
    per: credential
    window: {{max: {max}, per_ms: 1000}}
routes:
  - match: 'GET /closes'
    respond: {{status: 429, headers: {{Retry-After: '{retry_after_s}'}}, body: {{}}}}
  - match: 'GET /{{rest...}}'
    respond: {{body: {{ok: true}}}}
"
    );
    let configuration = format!(
        "providers:\n  p:\n    base_url: $BASE\n    scope: {{max_concurrent_requests: {slots}}}\n    rates: [{{of: requests, \
         amount: {max}, per_seconds: 1}}]\n"
    );
    Rig::new(&scenario, &configuration).await
}

fn refused(rig: &Rig) -> usize {
    rig.provider.arrivals().iter().filter(|a| a.status == Some(429)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fb_027_a_limit_by_the_second_is_kept_by_arrival() {
    let rig = limited(50, 1, 101).await;
    let began = Instant::now();
    let got = join_all((0..101).map(|n| {
        let rig = &rig;
        async move { rig.get(&format!("/p/x/{n}")).await }
    }))
    .await;
    assert!(got.iter().all(|g| g.status == 200));
    assert_eq!((refused(&rig), rig.provider.arrivals().len()), (0, 101));
    assert!(most_in_a_window(&rig, Duration::from_secs(1)) <= 50);
    assert!(began.elapsed() <= Duration::from_millis(3_500), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fb_038_interactive_work_leaves_first_and_background_work_is_not_starved() {
    let rig = limited(40, 2, 1).await;
    let fields = |priority| [("authorization", "Bearer k1"), ("forbear-priority", priority)];
    let closed = rig.call("GET", "/p/closes", &[("authorization", "Bearer k1"), ("forbear-deadline", "1s")], "").await;
    assert_eq!(closed.header("forbear-outcome"), "deadline_exhausted");
    let of = |name: &'static str, n: usize| {
        let rig = &rig;
        (0..n).map(move |i| async move {
            // sleep: interactive calls come last, while the scope is closed for two seconds.
            tokio::time::sleep(Duration::from_millis(if name == "interactive" { 500 } else { 0 })).await;
            rig.call("GET", &format!("/p/{name}/{i}"), &fields(name), "").await
        })
    };
    let (background, interactive) = tokio::join!(join_all(of("background", 80)), join_all(of("interactive", 5)));
    assert!(background.iter().chain(&interactive).all(|g| g.status == 200));
    let arrivals = rig.provider.arrivals();
    let first: Vec<&str> = arrivals[1..7].iter().map(|a| a.target.as_str()).collect();
    assert_eq!(first.iter().filter(|t| t.starts_with("/interactive/")).count(), 5, "{first:?}");
    assert_eq!(refused(&rig), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_workers_of_one_account_keep_its_limit_after_a_common_refusal() {
    let rig = limited(20, 1, 30).await;
    let fields = [("authorization", "Bearer k1"), ("forbear-deadline", "500ms")];
    assert_eq!(rig.call("GET", "/p/closes", &fields, "").await.header("forbear-outcome"), "deadline_exhausted");
    let worker = |w: usize| {
        let rig = &rig;
        async move {
            for n in 0..4 {
                let got = rig.get(&format!("/p/x/{w}/{n}")).await;
                assert_eq!(got.status, 200, "{got:?}");
            }
        }
    };
    join_all((0..30).map(worker)).await;
    assert_eq!(refused(&rig), 1, "the first one alone");
    assert!(most_in_a_window(&rig, Duration::from_secs(1)) <= 20);
    let mut at: Vec<u64> = rig.provider.arrivals()[1..].iter().map(|a| a.at_ns).collect();
    at.sort_unstable();
    let longest_ms = at.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).max().unwrap_or(0);
    assert!(longest_ms <= 66 + 2_000, "a gap of {longest_ms} ms while work waits");
}
