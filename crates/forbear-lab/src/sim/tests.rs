//! The simulator by itself.

use super::*;

#[test]
fn a_seed_gives_the_same_run_to_the_last_line() {
    for seed in [1, 7, 4_711] {
        let first = trace(seed);
        assert!(first.len() > 40, "{} lines", first.len());
        assert_eq!(first, trace(seed));
    }
    assert_ne!(trace(1), trace(2));
}

#[test]
fn no_schedule_breaks_a_check() {
    let report = run(SimOptions { seeds: 3_000, stop_at_first: true, ..SimOptions::default() }, |_| ());
    if let Some(broken) = report.first_broken {
        let short = broken.shrunk.map(|s| s.trace).unwrap_or(broken.trace);
        panic!("seed {} step {}: {}: {}\n{}", broken.seed, broken.step, broken.check, broken.message, short.join("\n"));
    }
}
