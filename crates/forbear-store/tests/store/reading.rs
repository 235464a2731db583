//! The read side, beside a running server and without one.

use forbear_core::effect::Effect;
use forbear_core::event::{Fact, Joined, Outcome, Refused, Would};
use forbear_core::ids::{Route, Seq};
use forbear_core::time::Wall;
use forbear_store::{ActionFilter, Reader, Since, StoreError};

use crate::facts::{DAY_MS, MARCH_MS, Under, event, finished, id, requested, straight_read, whole_write};

#[test]
fn an_action_is_its_row_and_its_events_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    let write = whole_write(1, MARCH_MS);
    let mut shifted = write;
    // Each event in a group of its own, with reads of others between.
    for (i, event) in shifted.iter_mut().enumerate() {
        let seq = 1 + 2 * i as u64;
        event.seq = Seq(seq);
        event.prev = (i > 0).then(|| Seq(seq - 2));
        store.append([event.clone()]);
        store.append([straight_read(seq + 1, MARCH_MS + 5)]);
        store.durable(seq + 1);
    }
    let reader = Reader::open(dir.path()).unwrap();
    let story = reader.action(id(MARCH_MS, 1)).unwrap().unwrap();
    assert_eq!(story.events, shifted);
    assert!(!story.cut);
    let row = story.action;
    assert_eq!((row.started_at, row.finished_at), (Wall(MARCH_MS), Some(Wall(MARCH_MS + 80))));
    assert_eq!((row.provider.as_str(), row.scope.as_str()), ("stripe", "stripe/77aa01b2c3d4"));
    assert_eq!((row.route.as_str(), row.class.as_str()), ("POST /v1/charges", "idempotent_write"));
    assert_eq!((row.task.as_str(), row.run.as_str()), ("invoices-march", "run-0000000001"));
    assert_eq!((row.outcome.as_deref(), row.effect.as_deref()), (Some("succeeded"), Some("applied")));
    assert_eq!((row.status, row.attempts, row.first_seq, row.last_seq), (Some(200), 1, Seq(1), Seq(7)));
    assert_eq!(reader.action(id(MARCH_MS, 999)).unwrap(), None);
}

#[test]
fn actions_are_listed_newest_first_in_pages_and_filtered() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append((1..=50).map(|s| straight_read(s, MARCH_MS + s.cast_signed())));
    store.append(whole_write(51, MARCH_MS + 51));
    let standing = id(MARCH_MS + 60, 55);
    let unknown = Fact::ActionFinished(Box::new(finished(Outcome::OutcomeUnknown, Effect::Unknown)));
    store.append([requested(55, MARCH_MS + 60, standing), event(56, MARCH_MS + 70, Some(standing), Some(55), unknown)]);
    store.durable(56);
    drop(store);
    let reader = Reader::open(dir.path()).unwrap();
    let everything = ActionFilter::default();
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = reader.actions(&everything, 20, before).unwrap();
        seen.extend(page.actions.iter().map(|a| a.id));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 52);
    assert!(seen.is_sorted_by(|a, b| a > b));
    let of = |filter: ActionFilter| reader.actions(&filter, 100, None).unwrap().actions;
    assert_eq!(of(ActionFilter { provider: Some("stripe".into()), ..everything.clone() }).len(), 2);
    assert_eq!(of(ActionFilter { task: Some("research-1".into()), ..everything.clone() }).len(), 11);
    assert_eq!(of(ActionFilter { class: Some("none such".into()), ..everything.clone() }).len(), 0);
    let open = of(ActionFilter { open: true, ..everything });
    assert_eq!(
        open.iter().map(|a| (a.id, a.outcome.as_deref())).collect::<Vec<_>>(),
        [(standing, Some("outcome_unknown"))]
    );
}

#[test]
fn events_are_read_from_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    for first in [1, 11, 21] {
        store.append((first..first + 10).map(|s| straight_read(s, MARCH_MS)));
        store.durable(first + 9);
    }
    let reader = Reader::open(dir.path()).unwrap();
    let seqs = |from, limit| reader.events(Seq(from), limit).unwrap().iter().map(|e| e.seq.0).collect::<Vec<_>>();
    assert_eq!(seqs(0, 3), [1, 2, 3]);
    assert_eq!(seqs(9, 4), [9, 10, 11, 12]);
    assert_eq!(seqs(29, 10), [29, 30]);
    assert_eq!(seqs(31, 10), [0; 0]);
    assert_eq!(reader.range().unwrap(), (Seq(1), Seq(30)));
}

#[test]
fn the_table_of_actions_is_made_again_from_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append((1..=30).map(|s| straight_read(s, MARCH_MS + s.cast_signed())));
    store.append(whole_write(31, MARCH_MS + 31));
    store.durable(34);
    let reader = Reader::open(dir.path()).unwrap();
    let all = || reader.actions(&ActionFilter::default(), 100, None).unwrap().actions;
    let before = all();
    let spoil = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    spoil.execute_batch("DELETE FROM actions; UPDATE names SET text = text || '?'").unwrap();
    drop(spoil);
    assert_eq!(all(), []);
    assert_eq!(store.store.rebuild_projections().unwrap(), 34);
    assert!(all() == before, "not as it was");
}

#[test]
fn a_reader_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Reader::open(dir.path()), Err(StoreError::Missing { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_was_done_and_what_would_have_been_is_summed_up_by_scope() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    let mut seq = 0;
    let mut tell = |at_ms, action, fact| {
        seq += 1;
        store.append([event(seq, at_ms, Some(action), None, fact)]);
        store.durable(seq);
    };
    let wanted = |action| requested(1, MARCH_MS, action).fact;
    let ended = |finished| Fact::ActionFinished(Box::new(finished));
    let would = |would| Fact::DecisionObserved { would };
    let of_read = |n| straight_read(n, MARCH_MS).fact;
    let applied = || finished(Outcome::Succeeded, Effect::Applied);
    // A day before: neither what ended then nor what only began then.
    let (old, late) = (id(MARCH_MS - DAY_MS, 1), id(MARCH_MS - DAY_MS, 2));
    tell(MARCH_MS - DAY_MS, old, of_read(1));
    tell(MARCH_MS - DAY_MS, late, wanted(late));
    tell(MARCH_MS, late, ended(applied()));
    // Decided on: one waited, another was joined to it, a third was refused.
    let (first, third) = (id(MARCH_MS, 3), id(MARCH_MS, 4));
    tell(MARCH_MS, first, wanted(first));
    tell(MARCH_MS, first, Fact::CallJoined { how: Joined::SameKey, charged: None });
    let waited = finished(Outcome::Succeeded, Effect::Applied);
    tell(MARCH_MS, first, ended(forbear_core::event::ActionFinished { attempts: 2, waited_ms: 900, ..waited }));
    tell(MARCH_MS, third, wanted(third));
    let denied = finished(Outcome::Denied, Effect::NotApplied);
    let refused = Some(Refused::AlreadyDone);
    tell(MARCH_MS, third, ended(forbear_core::event::ActionFinished { attempts: 0, refused, ..denied }));
    // Watched: a read whose wait is on record before anything else is known of it.
    let read = id(MARCH_MS, 5);
    tell(MARCH_MS, read, would(Would::Hold { reason: "boundary".into(), hold_ms: Some(4_000) }));
    tell(MARCH_MS, read, would(Would::Retry { wait_ms: 1_000, reason: "backoff".into() }));
    tell(MARCH_MS, read, of_read(2));
    drop(store);

    let reader = Reader::open(dir.path()).unwrap();
    let tally = reader.tally(Since::Last(3_600_000)).unwrap();
    assert_eq!((tally.first_at, tally.last_at), (Some(Wall(MARCH_MS)), Some(Wall(MARCH_MS))));
    assert_eq!(tally.scopes.keys().collect::<Vec<_>>(), ["openai/3f2a9c1d5e7b", "stripe/77aa01b2c3d4"]);
    let (watched, decided) = (&tally.scopes["openai/3f2a9c1d5e7b"], &tally.scopes["stripe/77aa01b2c3d4"]);
    assert_eq!((watched.calls, watched.sends, watched.done.saved(), watched.would.saved()), (1, 1, 0, 1));
    let waits = &watched.would.waits;
    assert_eq!((waits.count, waits.total_ms, waits.max_ms, watched.would.retries), (2, 5_000, 4_000, 1));
    assert_eq!((decided.calls, decided.sends), (3, 2), "a call that joined is one, and is no send");
    assert_eq!((decided.done.duplicates(), decided.done.joined, decided.done.already_done), (2, 1, 1));
    assert_eq!((decided.done.waits.total_ms, decided.done.retries, decided.would.saved()), (900, 1, 0));
    let all = reader.tally(Since::At(Wall(0))).unwrap();
    assert_eq!(all.scopes.values().map(|s| s.calls).sum::<u64>(), 6);
}

#[test]
fn the_routes_that_were_called_are_counted_with_their_ends_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append((1..=3).map(|seq| straight_read(seq, MARCH_MS)));
    store.append(whole_write(4, MARCH_MS));
    // A day later one more read, and a write that has not ended.
    store.append([straight_read(8, MARCH_MS + DAY_MS), requested(9, MARCH_MS + DAY_MS, id(MARCH_MS + DAY_MS, 9))]);
    store.durable(9);
    drop(store);
    let reader = Reader::open(dir.path()).unwrap();
    let seen = reader.routes(Since::At(Wall(0))).unwrap();
    let of = |provider: &str, route: &str| &seen.routes[&(provider.to_owned(), Route::new(route))];
    let (reads, writes) = (of("openai", "GET /v1/models/{id}"), of("stripe", "POST /v1/charges"));
    assert_eq!((reads.calls, reads.keyed, &reads.key_header), (4, 0, &None));
    assert_eq!(reads.statuses, [(200, 4)].into());
    assert_eq!((writes.calls, writes.keyed, writes.key_header.as_deref()), (1, 1, Some("Idempotency-Key")));
    let newer = reader.routes(Since::Last(1_000)).unwrap();
    assert_eq!(newer.routes.values().map(|seen| seen.calls).collect::<Vec<_>>(), [1]);
}
