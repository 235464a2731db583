//! Appending, becoming durable, closing, opening again.

use forbear_core::ids::Seq;
use forbear_store::{AppendError, Batch, Options, Progress, Reader, Sealed, Store, StoreError};

use crate::facts::{DAY_MS, MARCH_MS, Under, batch, id, refusal, straight_read, whole_write};

#[test]
fn what_was_appended_is_the_tail_of_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let written: Vec<_> = (1..=25).map(|s| straight_read(s, MARCH_MS + 7 * s.cast_signed())).collect();
    let store = Under::open(dir.path());
    assert_eq!((store.last_seq, store.tail.len()), (0, 0));
    for chunk in written.chunks(10) {
        store.append(chunk.to_vec());
    }
    store.durable(25);
    let log_id = store.store.log_id();
    assert_eq!(store.store.flush_and_close().unwrap(), Seq(25));
    assert_eq!(store.store.append(batch([])).unwrap_err(), AppendError::Stopped);
    drop(store);

    let store = Under::open(dir.path());
    assert_eq!((store.last_seq, store.store.log_id()), (25, log_id));
    assert_eq!(store.tail, written);
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.verify(drop).unwrap().head.seq, 25);
}

#[test]
fn order_of_appends_is_order_of_the_journal_and_a_gap_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append([straight_read(1, MARCH_MS)]);
    let gap = store.store.append(batch([straight_read(3, MARCH_MS)]));
    assert_eq!(gap, Err(AppendError::OutOfOrder { expected: 2, found: 3 }));
    let again = store.store.append(batch([straight_read(2, MARCH_MS), straight_read(2, MARCH_MS)]));
    assert_eq!(again, Err(AppendError::OutOfOrder { expected: 3, found: 2 }));
    store.append([straight_read(2, MARCH_MS)]);
    store.durable(2);
}

#[test]
fn behind_is_flushed_without_being_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    for seq in 1..=5 {
        store.store.append(Batch { behind: true, ..batch([straight_read(seq, MARCH_MS)]) }).unwrap();
    }
    store.durable(5);
}

/// With an interval that never ends, behind batches leave only with one that is not, or at their bound.
#[test]
fn behind_leaves_with_the_next_that_is_not_or_at_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let never = Options { behind_flush_ms: u64::from(u32::MAX), ..Options::new(dir.path()) };
    let store = Under::open_with(Options { behind_bytes_max: 10_000, ..never });
    let behind = |seq| Batch { behind: true, ..batch([straight_read(seq, MARCH_MS)]) };
    store.store.append(behind(1)).unwrap();
    store.store.append(behind(2)).unwrap();
    assert!(store.reports.try_recv().is_err(), "nothing asked for a flush");
    store.append([straight_read(3, MARCH_MS)]);
    match store.report() {
        Progress::Durable { seq, .. } => assert_eq!(seq, Seq(3), "one group took all three"),
        Progress::Failed { error, .. } => panic!("{error}"),
    }
    (4..40).for_each(|seq| store.store.append(behind(seq)).unwrap());
    store.durable(20);
}

#[test]
fn the_outgoing_queue_refuses_above_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let never =
        Options { behind_flush_ms: u64::from(u32::MAX), behind_bytes_max: usize::MAX, ..Options::new(dir.path()) };
    let store = Under::open_with(Options { outgoing_bytes_max: 25_000, ..never });
    let behind = |seq| Batch { behind: true, ..batch([straight_read(seq, MARCH_MS)]) };
    let full = (1..1000).find_map(|seq| store.store.append(behind(seq)).err().map(|e| (seq, e)));
    let (seq, error) = full.unwrap();
    assert_eq!(error, AppendError::Full);
    assert!((20..60).contains(&seq), "{seq}");
    assert_eq!(store.store.flush_and_close().unwrap(), Seq(seq - 1), "what was taken is kept");
}

#[test]
fn a_second_server_on_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Under::open(dir.path());
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(first);
    Under::open(dir.path());
}

#[test]
fn recovery_is_the_newest_snapshot_and_the_tail() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append((1..=10).map(|s| straight_read(s, MARCH_MS)));
    for (seq, state) in [(3, "three"), (6, "six"), (7, "seven")] {
        store.store.save_snapshot(Seq(seq), state.into()).unwrap();
    }
    let early = store.store.save_snapshot(Seq(11), vec![]);
    assert!(matches!(early, Err(StoreError::OutOfOrder { .. })), "state of events that are not durable");
    drop(store);
    let store = Under::open(dir.path());
    assert_eq!(store.snapshot.map(|s| (s.seq, s.bytes)), Some((Seq(7), b"seven".to_vec())));
    assert_eq!(store.tail.iter().map(|e| e.seq.0).collect::<Vec<_>>(), [8, 9, 10]);
}

#[test]
fn contents_come_with_their_intent_and_go_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    let action = id(MARCH_MS, 1);
    let events = whole_write(1, MARCH_MS);
    let sealed = Sealed::from_bytes(b"sealed bytes that must be gone".to_vec());
    store.store.append(Batch { contents: vec![(action, sealed.clone())], ..batch(events) }).unwrap();
    store.durable(4);
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.content(action).unwrap(), Some(sealed));
    store.store.delete_content(action).unwrap();
    store.append([straight_read(5, MARCH_MS)]);
    store.durable(5);
    assert_eq!(reader.content(action).unwrap(), None);
    drop(reader);
    store.store.flush_and_close().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(12).any(|w| w == b"sealed bytes"), "deleted bytes are still on the disk");
    }
}

#[test]
fn a_group_never_crosses_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    let late = MARCH_MS + DAY_MS - 2;
    store.append((1..=6).map(|s| straight_read(s, late + s.cast_signed())));
    store.durable(6);
    drop(store);
    let conn = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    let mut statement = conn.prepare("SELECT first_seq, last_seq, day FROM journal ORDER BY 1").unwrap();
    let rows: Vec<(i64, i64, i64)> =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap().map(Result::unwrap).collect();
    let day = MARCH_MS / DAY_MS;
    assert_eq!(rows, [(1, 1, day), (2, 6, day + 1)]);
}

#[test]
fn usage_is_told_and_the_limit_flagged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open_with(Options { store_bytes_max: 300_000, ..Options::new(dir.path()) });
    assert!(store.store.usage_bytes() > 0);
    let mut seq = 0;
    let flagged = loop {
        store.append((1..=100).map(|i| straight_read(seq + i, MARCH_MS)));
        seq += 100;
        match store.report() {
            Progress::Durable { over_limit: true, usage_bytes, .. } => break usage_bytes,
            Progress::Durable { .. } => assert!(seq < 100_000),
            Progress::Failed { error, .. } => panic!("{error}"),
        }
    };
    assert!(flagged >= 300_000);
    store.append([straight_read(seq + 1, MARCH_MS)]);
    store.durable(seq + 1);
}

#[test]
fn a_callback_that_panics_stops_the_store_instead_of_hanging_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut calls = 0;
    let report = std::sync::Mutex::new(move |_: Progress| {
        calls += 1;
        assert!(calls > 1, "the first report panics, on purpose");
    });
    let report = move |p| (report.lock().unwrap_or_else(std::sync::PoisonError::into_inner))(p);
    let store = Store::open(Options::new(dir.path()), Box::new(report)).unwrap().store;
    store.append(batch([straight_read(1, MARCH_MS)])).unwrap();
    assert!(matches!(store.flush_and_close(), Err(StoreError::Stopped { .. })));
    assert_eq!(store.append(batch([])).unwrap_err(), AppendError::Stopped);
    assert_eq!(store.reopen().unwrap().last_seq, Seq(1));
}
