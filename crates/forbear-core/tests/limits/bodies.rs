//! Group C: waits that only a body names, in full length.

use forbear_core::contract::{CodeMeaning, CodeRule, Contract};
use forbear_core::event::Outcome;

use crate::world::{World, sequence};

const WEEK: &str = "429; body: {\"error\": {\"message\": \"<quota reached> Resets in 164h27m24s.\"}}";
const SECONDARY: &str = "403; body: {\"message\": \"You have exceeded a secondary rate limit.\"}";

#[test]
fn fb_044_nobody_is_sent_before_a_reset_that_stands_in_prose() {
    let mut world = World::new(7, sequence(&[WEEK, "200"]));
    for call in 0..600 {
        world.call(call * 1_000, "k");
    }
    world.call(592_000_000, "k");
    let world = world.run(592_100_000);
    assert_eq!(world.arrivals.len(), 2);
    assert!((592_044_000..592_044_200).contains(&world.gap_ms(1, 2)), "{}", world.gap_ms(1, 2));
    assert_eq!(world.ends[&0].outcome, Outcome::BudgetExhausted);
    assert_eq!(world.ends[&1].outcome, Outcome::Deferred);
    assert_eq!(world.ends[&600].outcome, Outcome::Succeeded);
}

#[test]
fn fb_049_a_secondary_limit_closes_for_a_minute() {
    let rule = CodeRule {
        at: "body:message".into(),
        is: None,
        is_any: Vec::new(),
        contains: Some("secondary rate limit".into()),
        contains_any: Vec::new(),
        statuses: vec![403, 429],
        means: CodeMeaning::Throttled,
        before_work: None,
        closes: None,
        wait_seconds: Some(60),
    };
    let mut world =
        World::new(7, sequence(&[SECONDARY, "200"])).contract(Contract { codes: vec![rule], ..Contract::default() });
    for call in 0..50 {
        world.call(call * 1_000, "k");
    }
    let world = world.run(200_000);
    assert!(world.gap_ms(1, 2) >= 60_000, "{}", world.gap_ms(1, 2));
    assert_eq!(world.arrivals.len(), 51);
    assert!(world.ends.values().all(|end| end.outcome == Outcome::Succeeded));
}
