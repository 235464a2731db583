//! The drill and the demo, whole, as a person runs them.

use serde_json::Value;

use crate::rig::forbear;

/// The policy that the project's first issue gives as an example.
const POLICY: &str = "\
request_classes:
  read:             {max_attempts: 4, max_wait_seconds: 90,  retry_statuses: [408, 429, 500, 502, 503, 504]}
  idempotent_write: {max_attempts: 3, max_wait_seconds: 120, retry_statuses: [408, 429, 502, 503, 504]}
  uncertain_write:  {max_attempts: 1, max_wait_seconds: 0,   retry_statuses: []}
shared_scope: {max_delayed_requests: 25, max_concurrent_requests: 2, max_retries_per_minute: 10}
task: {max_retries: 10, max_wait_seconds: 600}
";

fn drill(policy: &str) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forbear.yaml");
    std::fs::write(&file, policy).unwrap();
    let ran = forbear(&["drill", "--json", "--config", file.to_str().unwrap()]);
    (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err)))
}

#[test]
fn the_drill_holds_under_the_example_policy() {
    let (code, report) = drill(POLICY);
    assert_eq!((code, report["holds"].as_bool()), (0, Some(true)), "{report:#}");
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    for step in steps {
        assert!(step["name"].is_string() && step["measured"].is_object() && step["why"].is_string(), "{step:#}");
    }
    assert!(steps[1]["measured"]["quiet_after_refusal_ms"].as_u64() >= Some(10_000), "{report:#}");
    assert_eq!(steps[4]["measured"]["crowd_retries"], 10);
    assert_eq!(steps[5]["measured"]["keyed_effects"], 1);
}

/// Where the policy allows no retry at all, the drill expects none.
#[test]
fn the_drill_takes_its_numbers_from_the_policy() {
    let strict = "\
request_classes:
  read:             {max_attempts: 1, max_wait_seconds: 0, retry_statuses: []}
  idempotent_write: {max_attempts: 1, max_wait_seconds: 0, retry_statuses: []}
";
    let (code, report) = drill(strict);
    assert_eq!((code, report["holds"].as_bool()), (0, Some(true)), "{report:#}");
    assert_eq!(report["steps"][2]["measured"]["arrivals_after_boundary"], 2, "{report:#}");
    assert_eq!(report["steps"][4]["measured"]["crowd_retries"], 0);
}

#[test]
fn the_demo_tells_its_story_and_every_question_is_answered() {
    let ran = forbear(&["demo", "--fast"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.lines().all(|l| l.chars().count() <= 80), "{}", ran.out);
    assert!(ran.out.contains("9 of 9 questions answered") && ran.out.contains("-> 429, come back"), "{}", ran.out);
}

#[test]
fn the_simulator_reports_in_one_line() {
    let ran = forbear(&["lab", "sim", "--seeds", "20", "--seed", "7", "--json"]);
    let report: Value = serde_json::from_str(ran.out.lines().last().unwrap_or_default()).unwrap();
    assert_eq!((ran.code, report["seeds"].as_u64(), report["broken"].as_u64()), (0, Some(20), Some(0)), "{report}");
    assert!(report.get("first_broken").is_some() && report["seeds_per_second"].is_u64(), "{report}");
}
