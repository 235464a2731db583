//! Group B: the boundary holds for everybody, and the scope opens again in order.

use forbear_core::event::Outcome;

use crate::world::{START, World, sequence};

#[test]
fn fb_023_jitter_is_only_ever_added() {
    let mut gaps = Vec::new();
    for seed in 0..200 {
        let mut world = World::new(seed, sequence(&["429; retry-after: 3", "200"]));
        world.call(0, "k");
        gaps.push(world.run(10_000).gap_ms(1, 2));
    }
    // `pacing.jitter_ms` is 100.
    assert!(gaps.iter().all(|gap| (3_000..=3_100).contains(gap)), "{gaps:?}");
    assert!(*gaps.iter().max().unwrap() - *gaps.iter().min().unwrap() > 50, "{gaps:?}");
}

#[test]
fn fb_028_an_instant_is_measured_on_the_clock_it_was_named_on() {
    for skew_ms in [0, 90_000, -90_000] {
        for start_ms in [0, 250, 999] {
            // The provider's own second T is over a second after it began.
            let opens_ms = 1_000 + start_ms / 1_000 * 1_000;
            let script = move |asked: crate::world::Asked| {
                if asked.at_ms < opens_ms {
                    "403; date: {date}; x-ratelimit-remaining: 0; x-ratelimit-reset: {epoch}".to_owned()
                } else {
                    "200".to_owned()
                }
            };
            let mut world = World::new(7, Box::new(script)).skew_ms(skew_ms);
            world.latency_ms = 0;
            world.call(start_ms, "k");
            let world = world.run(60_000);
            assert_eq!(world.arrivals.len(), 2, "{skew_ms} {start_ms}: {:?}", world.arrivals);
            assert!(world.gap_ms(1, 2) >= 1_000);
            assert_eq!(world.ends[&0].outcome, Outcome::Succeeded);
        }
    }
}

#[test]
fn fb_029_the_latest_boundary_holds_whatever_comes_after_it() {
    let long = "429; retry-after: 60";
    let orders = [
        ["429; retry-after: 1", long, "429", "429"],
        ["429", "429; retry-after: 1", long, "429"],
        [long, "429", "429; retry-after: 1", "429; retry-after: 0"],
        ["200", long, "429; retry-after: 5", "200"],
    ];
    for order in orders {
        let at = order.iter().position(|answer| *answer == long).unwrap();
        let mut answers = order.to_vec();
        answers.push("200");
        let mut world = World::new(7, sequence(&answers));
        for _ in 0..4 {
            world.call(0, "k");
        }
        // More of them while it is closed.
        for n in 1..60 {
            world.call(n * 1_000, "k");
        }
        let world = world.run(200_000);
        let opens_ms = world.arrivals[at].head_ms + 60_000;
        let early = world.arrivals[4..].iter().filter(|a| a.at_ms < opens_ms).count();
        assert_eq!(early, 0, "{order:?}: {:?}", world.arrivals);
        let mut last = START;
        for (_, _, next) in world.boundaries.iter().take_while(|(at, ..)| *at < opens_ms) {
            if let Some(next) = next {
                assert!(*next >= last, "{order:?}: it moved back: {:?}", world.boundaries);
                last = *next;
            }
        }
        assert_eq!(last, START.plus_ms(opens_ms));
    }
}

#[test]
fn fb_031_calls_that_are_refused_here_do_not_keep_a_scope_closed() {
    // Nobody waits longer than five seconds, so that most calls are refused here.
    let script = sequence(&["429; retry-after: 20", "200"]);
    let mut world = World::new(7, script).max_wait_s(5).max_queue_s(5);
    for n in 0..60 {
        world.call(n * 1_000, "k");
    }
    let world = world.run(120_000);
    let opens_ms = world.arrivals[0].head_ms + 20_000;
    let refused = world.ends.values().filter(|end| end.outcome == Outcome::Deferred).count();
    assert!(refused >= 14, "{refused}");
    assert!((opens_ms..=opens_ms + 1_100).contains(&world.arrivals[1].at_ms), "{:?}", world.arrivals[1]);
    let closed: Vec<_> = world.boundaries.iter().filter_map(|(.., at)| *at).collect();
    assert_eq!(closed, [START.plus_ms(opens_ms)], "it was set once");
    let told = world.ends.values().filter_map(|end| end.next_allowed_ms);
    assert!(told.into_iter().all(|at| at.unsigned_abs() == opens_ms));
}

/// Found on the way to FB-031: the jitter that is added to a boundary counts when it is asked whether a wait fits.
#[test]
fn fb_031_a_call_is_refused_at_once_or_sent() {
    let mut outcomes = [0; 2];
    for n in 0..60 {
        let script = sequence(&["429; retry-after: 20", "200"]);
        let mut world = World::new(n, script).max_wait_s(5).max_queue_s(5);
        world.call(0, "k");
        let came_ms = 15_000 + n * 2;
        let call = world.call(came_ms, "k");
        let world = world.run(60_000);
        let end = &world.ends[&call];
        match end.outcome {
            Outcome::Deferred => assert_eq!(end.at_ms, came_ms, "not after a wait"),
            _ => assert_eq!(end.outcome, Outcome::Succeeded),
        }
        outcomes[usize::from(end.outcome == Outcome::Succeeded)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 5), "{outcomes:?}");
}

#[test]
fn fb_034_a_waiting_call_holds_no_slot() {
    let mut world = World::new(
        7,
        Box::new(|asked| if asked.at_ms == 0 { "429; retry-after: 60".to_owned() } else { "200".to_owned() }),
    )
    .slots(2);
    world.call(0, "a");
    world.call(0, "a");
    let other = world.call(1_000, "b");
    let world = world.run(2_000);
    let rows = world.register();
    let row = rows.iter().find(|row| row.scope.as_str() == "p/a").unwrap();
    assert_eq!((row.in_flight, row.delayed), (0, 2));
    assert_eq!(world.ends[&other].outcome, Outcome::Succeeded);
}

#[test]
fn fb_035_a_call_that_left_the_line_is_never_sent() {
    let mut world = World::new(7, sequence(&["200"])).slots(1);
    world.latency_ms = 2_000;
    let first = world.call(0, "k");
    let left = world.call(500, "k");
    let last = world.call(600, "k");
    world.leave(1_000, left);
    let world = world.run(60_000);
    let sent: Vec<_> = world.arrivals.iter().map(|a| (a.call, a.at_ms)).collect();
    assert_eq!(sent, [(first, 0), (last, 2_000)]);
    assert_eq!(world.register()[0].in_flight, 0);
}

/// The half of FB-037 that needs no reload and no rate: fewer slots than are taken, and it goes on.
#[test]
fn fb_037_fewer_slots_than_are_taken_stop_nothing() {
    let mut world = World::new(7, sequence(&["200"])).slots(5);
    world.latency_ms = 100;
    for n in 0..200 {
        world.call(n * 20, "k");
    }
    world.slots_at(1_010, 2);
    let world = world.run(60_000);
    assert_eq!(world.arrivals.len(), 200);
    assert!(world.ends.values().all(|end| end.outcome == Outcome::Succeeded));
    // From when the five that were under way are through.
    for a in world.arrivals.iter().filter(|a| a.at_ms > 1_200) {
        let under_way = world.arrivals.iter().filter(|b| b.at_ms <= a.at_ms && b.head_ms > a.at_ms).count();
        assert!(under_way <= 2, "{under_way} at {}", a.at_ms);
    }
}

/// The half of FB-039 that needs no rate: everyone in line gets out, in the order in which they came.
#[test]
fn fb_039_nobody_in_line_is_passed_over() {
    let mut world = World::new(7, sequence(&["429; retry-after: 10", "200"]));
    world.call(0, "k");
    for n in 0..100 {
        world.call(1_000 + n * 50, "k");
    }
    // These come while the line is let out.
    for n in 0..100 {
        world.call(10_100 + n * 100, "k");
    }
    let world = world.run(300_000);
    assert_eq!(world.arrivals.len(), 202);
    let sent_ms = |call: u32| world.arrivals.iter().rev().find(|a| a.call == call).unwrap().at_ms;
    let mut order: Vec<_> = world.arrivals[1..].iter().map(|a| a.call).collect();
    order.dedup();
    assert!(order.is_sorted(), "who came first goes first: {order:?}");
    let last_of_line = (1..=100).map(sent_ms).max().unwrap();
    assert!(last_of_line <= 10_000 + 101 * 200 + 200, "{last_of_line}");
}
