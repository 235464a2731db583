//! Group A: what a value says is what is waited for.

use forbear_core::contract::{Contract, RetryAfterUnit};
use forbear_core::event::{Fact, Outcome};

use crate::world::{World, sequence};

/// The boundary's and the first release's jitter (`pacing.jitter_ms`), and the harness' own millisecond.
const JITTER_MS: u64 = 101;

/// One call that is refused once with these fields; no wait is too long.
fn refused_once(head: &str) -> World {
    let mut world = World::new(7, sequence(&[head, "200"])).max_wait_s(100_000);
    world.call(0, "k");
    world.run(100_000_000)
}

#[track_caller]
fn check_wait(head: &str, wait_ms: u64) {
    let world = refused_once(head);
    assert_eq!(world.arrivals.len(), 2, "{head}");
    let gap = world.gap_ms(1, 2);
    assert!((wait_ms..=wait_ms + JITTER_MS).contains(&gap), "{head}: {gap}");
    assert_eq!(world.ends[&0].outcome, Outcome::Succeeded);
}

/// The wait of the default backoff's first retry: `uniform(0, 2 s)`, at least the floor.
#[track_caller]
fn check_own_backoff(head: &str) {
    let world = refused_once(head);
    let gap = world.gap_ms(1, 2);
    assert!((1_000..=2_000 + JITTER_MS).contains(&gap), "{head}: {gap}");
    let planned = world.events.iter().find_map(|e| match &e.fact {
        Fact::RetryScheduled { retry_not_before, reason, .. } => Some((*retry_not_before, reason.clone())),
        _ => None,
    });
    let (retry_not_before, reason) = planned.unwrap();
    assert_eq!(retry_not_before, None, "{head}: the provider named no boundary");
    assert!(reason.ends_with("waits for backoff"), "{head}: {reason}");
}

#[test]
fn fb_003_a_value_that_is_not_wholly_understood_is_no_delay() {
    for value in ["120junk", "120s", "+120", "1e3", "0x10", "NaN", "inf", "1 20", "1.2.3", "twelve", "5,x"] {
        check_own_backoff(&format!("429; retry-after: {value}"));
    }
}

#[test]
fn fb_005_a_negative_delay_is_no_delay() {
    for value in ["-1", "-0", "-0.5", "-99999999999999999999"] {
        check_own_backoff(&format!("429; retry-after: {value}"));
    }
}

#[test]
fn fb_007_an_epoch_is_an_instant() {
    check_wait("429; retry-after: {epoch+30s}; x-ratelimit-reset: {epoch+30s}", 30_000);
    check_wait("429; x-ratelimit-reset: {epoch+30s}", 30_000);
    check_wait("429; retry-after: {epoch-30s}", 1_000);
}

#[test]
fn fb_008_the_unit_is_the_contracts_and_never_guessed() {
    let contract = Contract { retry_after_unit: RetryAfterUnit::Milliseconds, ..Contract::default() };
    let mut world = World::new(7, sequence(&["429; retry-after: 555", "200"])).contract(contract);
    world.call(0, "k");
    let world = world.run(10_000);
    // The floor of a second holds under it.
    assert!((1_000..=1_000 + JITTER_MS).contains(&world.gap_ms(1, 2)), "{:?}", world.arrivals);
    check_wait("429; retry-after: 555", 555_000);
}

#[test]
fn fb_009_seconds_are_seconds() {
    for seconds in [1, 2, 5, 60, 3_600] {
        check_wait(&format!("429; retry-after: {seconds}"), seconds * 1_000);
    }
}

#[test]
fn fb_010_a_delay_that_was_rounded_down_costs_one_more_attempt_and_no_burst() {
    let true_reset_ms = 2_900;
    let script = move |asked: crate::world::Asked| match (asked.nth, asked.at_ms) {
        (1, _) => "429; retry-after: 2".to_owned(),
        (_, at) if at < true_reset_ms => "429; retry-after: 0".to_owned(),
        _ => "200".to_owned(),
    };
    let mut world = World::new(7, Box::new(script));
    world.call(0, "k");
    let world = world.run(60_000);
    assert_eq!(world.arrivals.len(), 3);
    assert!(world.gap_ms(1, 2) >= 2_000 && world.gap_ms(2, 3) >= 1_000, "{:?}", world.arrivals);
    assert_eq!(world.register()[0].retries_last_minute, 2, "each refusal is charged");
}

#[test]
fn fb_011_zero_is_the_floor_and_the_budget_ends_it() {
    let mut world = World::new(7, sequence(&["429; retry-after: 0"]));
    world.call(0, "k");
    let world = world.run(30_000);
    assert_eq!(world.arrivals.len(), 4);
    for n in 1..4 {
        assert!(world.gap_ms(n, n + 1) >= 1_000, "{:?}", world.arrivals);
    }
    assert_eq!((world.ends[&0].outcome, world.ends[&0].attempts), (Outcome::BudgetExhausted, 4));
}

#[test]
fn fb_012_of_several_values_the_longest_counts() {
    check_wait("429; retry-after: 1; retry-after: 7", 7_000);
    check_wait("429; retry-after: 7; retry-after: 1", 7_000);
    check_wait("429; retry-after: 1, 7", 7_000);
    check_wait("429; date: {date}; retry-after: {date+9s}; retry-after: 7", 9_000);
    // What cannot be read does not shorten what can.
    check_wait("429; retry-after: 7; retry-after: junk", 7_000);
}

#[test]
fn fb_013_a_reset_that_is_past_waits_for_the_floor() {
    for past in ["{epoch-2s}", "{epoch-300s}", "0", "{epoch}"] {
        check_wait(&format!("403; x-ratelimit-remaining: 0; x-ratelimit-reset: {past}"), 1_000);
    }
}

#[test]
fn fb_016_compound_durations_are_waited_whole() {
    for (value, wait_ms) in
        [("17ms", 1_000), ("1.5s", 1_500), ("6m0s", 360_000), ("1h2m3s", 3_723_000), ("23h47m36.648s", 85_656_648)]
    {
        check_wait(&format!("429; x-ratelimit-reset-requests: {value}"), wait_ms);
    }
    for value in ["23h47q", "6m0", "m", "-1h-2m", "1..5s"] {
        check_own_backoff(&format!("429; x-ratelimit-reset-requests: {value}"));
    }
}

#[test]
fn fb_016_what_nobody_holds_a_connection_for_ends_at_once() {
    for value in ["6m0s", "23h47m36.648s"] {
        let head = format!("429; x-ratelimit-reset-requests: {value}");
        let mut world = World::new(7, sequence(&[&head, "200"]));
        world.call(0, "k");
        let world = world.run(300_000);
        assert_eq!(world.arrivals.len(), 1, "{value}");
        assert_eq!(world.ends[&0].outcome, Outcome::BudgetExhausted);
        assert!(world.ends[&0].at_ms <= 5, "told at once: {:?}", world.ends);
    }
}

#[test]
fn fb_018_the_long_window_decides_in_either_order() {
    let long = "x-ratelimit-remaining-tokens: 0; x-ratelimit-reset-tokens: 6m0s";
    let short = "x-ratelimit-remaining-requests: 4999; x-ratelimit-reset-requests: 120ms";
    check_wait(&format!("429; {short}; {long}"), 360_000);
    check_wait(&format!("429; {long}; {short}"), 360_000);
    // Both spent, and neither told.
    let spent = "x-ratelimit-remaining-requests: 0; x-ratelimit-reset-requests: 120ms";
    check_wait(&format!("429; {spent}; {long}"), 360_000);
    check_wait("429; x-ratelimit-reset-requests: 120ms; x-ratelimit-reset-tokens: 6m0s", 360_000);

    let mut world = World::new(7, sequence(&[&format!("429; {short}; {long}"), "200"])).max_wait_s(600);
    world.call(0, "k");
    // Others of the scope, all through the window.
    for n in 1..36 {
        world.call(n * 10_000, "k");
    }
    let world = world.run(360_000);
    assert_eq!(world.arrivals.len(), 1, "{:?}", world.arrivals);
    let row = &world.register()[0];
    assert_eq!((row.remaining, row.source.as_deref()), (Some(0), Some("limit_header")));
    assert!(row.windows.iter().any(|w| w.name == "tokens" && w.remaining == Some(0)));
}

#[test]
fn fb_020_counters_of_another_limit_are_no_boundary() {
    let head = "429; x-ratelimit-limit: 60; x-ratelimit-remaining: 56; x-ratelimit-reset: 12";
    let mut sums_ms = [0; 3];
    for seed in 0..200 {
        let mut world = World::new(seed, sequence(&[head]));
        world.call(0, "k");
        let world = world.run(3_000_000);
        assert_eq!(world.arrivals.len(), 4);
        for (n, sum) in sums_ms.iter_mut().enumerate() {
            let gap = world.gap_ms(n + 1, n + 2);
            assert!((1_000..=(2_000 << n) + JITTER_MS).contains(&gap), "{seed}: {:?}", world.arrivals);
            *sum += gap;
        }
        let told = world.events.iter().find_map(|e| match &e.fact {
            Fact::ActionResult(r) => r.classification.clone(),
            _ => None,
        });
        assert_eq!(told.unwrap().contradictions, ["429 with quota left: default has 56"]);
        let row = world.events.iter().find_map(|e| match &e.fact {
            Fact::ScopeUpdated(update) => Some(update.reason.clone()),
            _ => None,
        });
        assert!(row.as_ref().is_some_and(|r| r.contains("uncertain_boundary")), "{row:?}");
    }
    let [first, second, third] = sums_ms.map(|sum| sum / 200);
    assert!(first + 300 < second && second + 1_000 < third, "{sums_ms:?}");
}

#[test]
fn fb_021_a_date_that_is_past_waits_for_the_floor() {
    let mut world = World::new(7, sequence(&["429; date: {date}; retry-after: {date-90s}"]));
    world.call(0, "k");
    let world = world.run(60_000);
    assert_eq!(world.arrivals.len(), 4);
    for n in 1..4 {
        assert!((1_000..=1_000 + JITTER_MS).contains(&world.gap_ms(n, n + 1)), "{:?}", world.arrivals);
    }
}

#[test]
fn fb_021_a_date_counts_from_the_servers_own() {
    for skew_ms in [-100_000, -3_600_000, 100_000, 0] {
        let script = sequence(&["429; date: {date}; retry-after: {date+10s}", "200"]);
        let mut world = World::new(7, script).skew_ms(skew_ms);
        world.call(0, "k");
        let world = world.run(60_000);
        let gap = world.gap_ms(1, 2);
        assert!((10_000..=10_000 + JITTER_MS).contains(&gap), "{skew_ms}: {gap}");
    }
}

#[test]
fn fb_022_every_layout_of_a_date_is_waited_for() {
    for date in ["Thu, 01 Jan 2032 00:00:30 GMT", "Thursday, 01-Jan-32 00:00:30 GMT", "Thu Jan  1 00:00:30 2032"] {
        check_wait(&format!("429; date: Thu, 01 Jan 2032 00:00:00 GMT; retry-after: {date}"), 30_000);
    }
    for date in ["Thu, 01 Jan 2032 00:00:30 UTC", "Thu, 32 Jan 2032 00:00:30 GMT", "2032-01-01"] {
        check_own_backoff(&format!("429; date: Thu, 01 Jan 2032 00:00:00 GMT; retry-after: {date}"));
    }
}

/// The waits between the arrivals of one call that meets `answer` for ever.
fn waits_ms(seed: u64, answer: &str, max_wait_s: u64) -> (Vec<u64>, World) {
    let mut world = World::new(seed, sequence(&[answer])).max_wait_s(max_wait_s);
    world.call(0, "k");
    let world = world.run(900_000);
    let waits = (1..world.arrivals.len()).map(|n| world.gap_ms(n, n + 1)).collect();
    (waits, world)
}

#[test]
fn fb_092_the_first_retry_is_the_first_and_the_last_is_said_once() {
    let (mut widest, jitter_ms) = ([0; 3], 100);
    for seed in 0..200 {
        let (waits, world) = waits_ms(seed, "429", 600);
        assert_eq!(world.arrivals.len(), 4, "max_attempts");
        for (n, (wait, bound_ms)) in waits.iter().zip([2_000, 4_000, 8_000]).enumerate() {
            assert!(*wait <= bound_ms + 2 * jitter_ms, "seed {seed}: wait {n} of {wait} ms");
            widest[n] = widest[n].max(*wait);
        }
        let ends = world.events.iter().filter(|e| matches!(e.fact, forbear_core::event::Fact::ActionFinished(_)));
        assert_eq!(ends.count(), 1, "seed {seed}");
    }
    // The whole range is drawn from.
    assert!(widest[0] > 1_800 && widest[1] > 3_600 && widest[2] > 7_000, "{widest:?}");
}

#[test]
fn fb_093_no_wait_is_longer_than_the_cap_whatever_headers_an_answer_has() {
    for seed in 0..50 {
        let (waits, world) = waits_ms(seed, "502; content-type: text/html; date: {date}", 900);
        assert!(waits.iter().all(|wait| *wait <= 60_000 + 200), "seed {seed}: {waits:?}");
        assert_eq!(world.ends[&0].attempts, 4, "it ends by its attempts");
    }
}
