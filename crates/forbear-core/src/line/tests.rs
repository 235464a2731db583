use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ids::ScopeId;
use crate::lane::Narrow;

fn lane(name: &str) -> Lane {
    if name.is_empty() {
        return Lane::default();
    }
    let narrow = Narrow { scope: ScopeId::new(name), max_concurrent_requests: None, rates: [].into() };
    Lane::new(vec![narrow])
}

fn waiter(order: u64, task: &str) -> Waiter {
    Waiter {
        lane: Lane::default(),
        priority: Priority::Normal,
        tenant: TenantId::new("tenant"),
        task: TaskId::new(task),
        order,
        action: ActionId(u128::from(order)),
        is_new: true,
    }
}

fn line() -> Line {
    Line::new([8, 4, 1])
}

/// Everybody who may leave, in turn.
fn serve_all(line: &mut Line, may: impl Fn(&Lane) -> bool) -> Vec<u128> {
    let mut served = Vec::new();
    while let Some(turn) = line.next(|lane, _, _| may(lane)) {
        line.serve(&turn);
        served.push(turn.action.0);
    }
    served
}

#[test]
fn tasks_take_turns_and_inside_a_task_who_came_first_goes_first() {
    let mut line = line();
    for (order, task) in [(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b"), (6, "c")] {
        line.enter(waiter(order, task));
    }
    assert_eq!(serve_all(&mut line, |_| true), [1, 4, 6, 2, 5, 3]);
    assert!(line.is_empty());
}

#[test]
fn tenants_take_turns_however_many_tasks_they_have() {
    let mut line = line();
    for order in 1..=4 {
        line.enter(Waiter { tenant: TenantId::new("many"), ..waiter(order, &format!("t{order}")) });
    }
    line.enter(Waiter { tenant: TenantId::new("one"), ..waiter(5, "t") });
    line.enter(Waiter { tenant: TenantId::new("one"), ..waiter(6, "t") });
    assert_eq!(serve_all(&mut line, |_| true), [1, 5, 2, 6, 3, 4]);
}

#[test]
fn a_stream_of_new_tasks_holds_nobody_up() {
    let mut line = line();
    line.enter(waiter(1, "steady"));
    line.enter(waiter(2, "steady"));
    let mut served = Vec::new();
    for new in 10..20 {
        line.enter(waiter(new, &format!("new{new}")));
        let turn = line.next(|_, _, _| true).unwrap();
        line.serve(&turn);
        served.push(turn.action.0);
    }
    let second = served.iter().position(|a| *a == 2);
    assert!(second.is_some_and(|at| at <= 3), "{served:?}");
}

#[test]
fn a_closed_lane_holds_only_itself_up() {
    let mut line = line();
    line.enter(Waiter { lane: lane("shut"), ..waiter(1, "a") });
    line.enter(Waiter { lane: lane("open"), ..waiter(2, "a") });
    line.enter(waiter(3, "a"));
    assert_eq!(serve_all(&mut line, |l| *l != lane("shut")), [3, 2]);
    assert_eq!(serve_all(&mut line, |_| true), [1]);
}

#[test]
fn what_is_due_later_has_no_turn_before() {
    let mut line = line();
    line.set_aside(Mono(50), waiter(1, "a"));
    line.enter(waiter(2, "a"));
    assert_eq!(line.take_due(Mono(49)), None);
    assert_eq!(serve_all(&mut line, |_| true), [2]);
    assert_eq!(line.take_due(Mono(50)), Some((ActionId(1), 1)));
    assert_eq!(serve_all(&mut line, |_| true), [1]);
}

#[test]
fn who_leaves_is_gone_wherever_it_stood() {
    let mut line = line();
    let round = line.enter(waiter(1, "a"));
    line.set_aside(Mono(9), waiter(2, "a"));
    assert!(line.leave(&Place { due: Mono(0), order: 1, round: Some(round) }, &waiter(1, "a")));
    assert!(!line.leave(&Place { due: Mono(0), order: 1, round: Some(round) }, &waiter(1, "a")));
    assert!(line.leave(&Place { due: Mono(9), order: 2, round: None }, &waiter(2, "a")));
    assert_eq!((line.len(), line.next_due().is_none(), line.all().count()), (0, true, 0));
}

proptest! {
    /// The bound that the module states, at whatever moment somebody comes.
    #[test]
    fn nobody_waits_longer_than_the_bound(
        before in prop::collection::vec((0u8..3, 0u8..3, 0u8..4, 0u8..3), 0..60),
        more in prop::collection::vec((0u8..3, 0u8..3, 0u8..4, 0u8..3), 200),
        own in (0u8..3, 0u8..3, 0u8..4, 0u8..3),
    ) {
        let mut line = line();
        let (mut order, mut ahead) = (0, BTreeMap::<_, usize>::new());
        let mut enter = |line: &mut Line, (priority, tenant, task, l): (u8, u8, u8, u8)| {
            order += 1;
            let name = ["", "x", "y"][usize::from(l)];
            line.enter(Waiter {
                lane: lane(name),
                priority: Priority::ALL[usize::from(priority)],
                tenant: TenantId::new(&tenant.to_string()),
                ..waiter(order, &task.to_string())
            });
            *ahead.entry((priority, tenant, task, l)).or_default() += 1;
            (order, ahead[&(priority, tenant, task, l)])
        };
        for one in before {
            enter(&mut line, one);
        }
        let (mine, nth) = enter(&mut line, own);
        let weight = [8usize, 4, 1][usize::from(own.0)];
        // Four tasks, three tenants, three lanes.
        let bound = nth * 4 * 3 * 3 * 13usize.div_ceil(weight);
        let mut waited = 0;
        for one in more.iter().cycle() {
            let turn = line.next(|_, _, _| true).unwrap();
            line.serve(&turn);
            waited += 1;
            if turn.action.0 == u128::from(mine) {
                break;
            }
            prop_assert!(waited <= bound, "still there after {waited} turns of {bound}");
            enter(&mut line, *one);
        }
    }
}

#[test]
fn of_the_lowest_that_are_new_the_last_gives_way() {
    let mut line = line();
    let of = |order, priority, is_new| Waiter { priority, is_new, ..waiter(order, "t") };
    line.enter(of(1, Priority::Normal, true));
    line.enter(of(2, Priority::Background, true));
    line.set_aside(Mono(9), of(3, Priority::Background, true));
    line.enter(of(4, Priority::Background, false));
    let gives_way = |line: &Line, to| line.gives_way_to(to).map(|action| action.0);
    assert_eq!(gives_way(&line, Priority::Interactive), Some(3));
    assert!(line.leave(&Place { due: Mono(9), order: 3, round: None }, &of(3, Priority::Background, true)));
    assert_eq!(gives_way(&line, Priority::Normal), Some(2));
    assert_eq!(gives_way(&line, Priority::Background), None);
    assert_eq!(serve_all(&mut line, |_| true), [1, 2, 4]);
    assert_eq!(gives_way(&line, Priority::Interactive), None, "what has left gives no place");
}
