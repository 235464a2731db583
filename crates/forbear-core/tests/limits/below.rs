//! Attempts that an answer reveals: a layer below Forbear retries too, and what it did is charged.

use forbear_core::contract::{AttemptsBelow, Contract, Counted};
use forbear_core::durable::Durable;
use forbear_core::event::{Fact, Outcome};
use forbear_core::ids::{ScopeId, TaskId};

use crate::world::{START, World, sequence};

const ENOUGH_MS: u64 = 100_000;

fn world(answers: &[&str]) -> World {
    let field = |header: &str, counts| AttemptsBelow { header: header.into(), counts };
    let attempts_below = vec![field("x-tries", Counted::Attempts), field("x-retried", Counted::Retries)];
    World::new(7, sequence(answers)).contract(Contract { attempts_below, ..Contract::default() })
}

/// Retries of the call's task, and of its scope in the minute since the start, by a process that reads the journal.
fn charged(world: &World) -> (u32, usize) {
    let mut durable = Durable::default();
    world.events.iter().for_each(|event| durable.apply(event));
    let task = durable.tasks.get(&TaskId::new("call-0")).map_or(0, |spent| spent.retries);
    (task, durable.retries_in_minute(&ScopeId::new("p/k"), START.plus_ms(59_000)))
}

#[test]
fn what_an_answer_reveals_is_charged_once_to_task_and_scope_also_of_a_success() {
    for (answer, retries) in [("200; x-tries: 3", 2), ("200; x-retried: 2; x-tries: 2", 3), ("404; x-retried: 1", 1)] {
        let mut w = world(&[answer]);
        w.call(0, "k");
        let w = w.run(1_000);
        assert_eq!(w.arrivals.len(), 1, "{answer}");
        assert_eq!(w.register()[0].retries_last_minute, retries, "{answer}");
        assert_eq!(charged(&w), (retries, retries as usize), "{answer}: by the journal");
    }
}

#[test]
fn what_no_contract_names_and_what_was_not_retried_leaves_nothing() {
    for answer in ["200; x-envoy-attempt-count: 9", "200; x-tries: 1", "200; x-retried: 0", "200; x-tries: many"] {
        let mut w = world(&[answer]);
        w.call(0, "k");
        let w = w.run(1_000);
        assert_eq!((w.register()[0].retries_last_minute, w.events.len()), (0, 1), "{answer}: a straight read");
    }
}

#[test]
fn a_lie_costs_its_maximum_and_no_more() {
    let mut w = world(&["200; x-tries: 4000000000"]);
    w.call(0, "k");
    let w = w.run(1_000);
    assert_eq!(charged(&w), (16, 16));
    let below = w.events.iter().find_map(|e| match &e.fact {
        Fact::ActionResult(result) => result.classification.as_ref()?.below.clone(),
        _ => None,
    });
    assert_eq!(below.unwrap().claimed, 3_999_999_999);
}

#[test]
fn attempts_below_count_among_those_of_the_action() {
    // A read has four: three of the first answer's and one more.
    let mut w = world(&["503; x-tries: 3"]);
    w.call(0, "k");
    let w = w.run(ENOUGH_MS);
    assert_eq!((w.arrivals.len(), w.ends[&0].outcome), (2, Outcome::BudgetExhausted));
    let mut w = world(&["503"]);
    w.call(0, "k");
    assert_eq!(w.run(ENOUGH_MS).arrivals.len(), 4);
}
