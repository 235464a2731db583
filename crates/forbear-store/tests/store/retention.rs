//! Forgetting whole days without losing what is still needed.

use forbear_core::ids::Seq;
use forbear_core::time::Wall;
use forbear_store::{ActionFilter, Batch, Options, Reader, Sealed};

use crate::facts::{DAY_MS, MARCH_MS, Under, batch, id, straight_read, whole_write};

const PER_DAY: u64 = 10;

fn day_of(seq: u64) -> i64 {
    MARCH_MS + DAY_MS * ((seq - 1) / PER_DAY).cast_signed()
}

/// Forty days of ten reads, and a snapshot of the last but one event.
fn forty_days(dir: &std::path::Path) -> Under {
    let store = Under::open(dir);
    for first in (1..400).step_by(10) {
        store.append((first..first + PER_DAY).map(|s| straight_read(s, day_of(s) + s.cast_signed())));
    }
    store.durable(400);
    store.store.save_snapshot(Seq(399), b"state".to_vec()).unwrap();
    store
}

fn on_day(n: i64) -> Wall {
    Wall(MARCH_MS + n * DAY_MS + 1)
}

#[test]
fn whole_days_go_and_the_chain_still_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let store = forty_days(dir.path());
    let gone = store.store.retain(on_day(40), Seq(400)).unwrap();
    assert_eq!((gone.rows, gone.actions), (10, 100), "days 0 to 9 are older than thirty days");
    let reader = Reader::open(dir.path()).unwrap();
    let verified = reader.verify(drop).unwrap();
    assert_eq!((verified.first_seq, verified.head.seq), (Seq(101), 400));
    assert_eq!(reader.events(Seq(1), 1).unwrap()[0].seq, Seq(101));
    let page = reader.actions(&ActionFilter::default(), 1000, None).unwrap();
    assert_eq!(page.actions.len(), 300);
    assert_eq!(store.store.retain(on_day(40), Seq(400)).unwrap().rows, 0, "nothing is left to do");
    store.append([straight_read(401, on_day(40).0)]);
    store.durable(401);
    drop(store);
    let store = Under::open(dir.path());
    assert_eq!(store.tail.iter().map(|e| e.seq.0).collect::<Vec<_>>(), [400, 401]);
}

#[test]
fn a_day_that_an_open_action_needs_stays_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = forty_days(dir.path());
    let gone = store.store.retain(on_day(40), Seq(55)).unwrap();
    assert_eq!(gone.rows, 5, "event 55 is of day 5");
    assert_eq!(Reader::open(dir.path()).unwrap().range().unwrap().0, Seq(51));
}

#[test]
fn without_a_snapshot_every_event_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append((1..=10).map(|s| straight_read(s, MARCH_MS)));
    assert_eq!(store.store.retain(on_day(400), Seq(10)).unwrap().rows, 0);
}

/// Two snapshots are kept; the older one's tail must be there in case the newer one does not read back.
#[test]
fn the_tail_of_the_older_snapshot_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = forty_days(dir.path());
    store.store.save_snapshot(Seq(400), b"newer".to_vec()).unwrap();
    store.store.retain(on_day(4000), Seq(401)).unwrap();
    assert_eq!(Reader::open(dir.path()).unwrap().range().unwrap(), (Seq(391), Seq(400)));
    drop(store);
    let spoil = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    spoil.execute("UPDATE snapshots SET state = 'nEwer' WHERE seq = 400", []).unwrap();
    drop(spoil);
    let store = Under::open(dir.path());
    assert_eq!(store.snapshot.as_ref().map(|s| s.seq), Some(Seq(399)));
    assert_eq!(store.tail.len(), 1);
}

#[test]
fn contents_and_space_go_with_their_actions() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open_with(Options { retention_days: 1, ..Options::new(dir.path()) });
    let content = Sealed::from_bytes(vec![7; 200_000]);
    for i in 0..20 {
        let seq = 1 + 4 * i;
        let contents = vec![(id(MARCH_MS, seq), content.clone())];
        store.store.append(Batch { contents, ..batch(whole_write(seq, MARCH_MS)) }).unwrap();
    }
    store.append([straight_read(81, on_day(5).0)]);
    store.durable(81);
    store.store.save_snapshot(Seq(80), vec![]).unwrap();
    let before = store.store.usage_bytes();
    let gone = store.store.retain(on_day(5), Seq(81)).unwrap();
    assert_eq!(gone.actions, 20);
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.content(id(MARCH_MS, 1)).unwrap(), None);
    assert!(store.store.usage_bytes() < before / 10, "{before} to {}", store.store.usage_bytes());
    let on_disk = std::fs::metadata(dir.path().join("journal.db")).unwrap().len();
    assert!(on_disk < 1_000_000, "{on_disk} bytes are still taken");
}

#[test]
fn appends_go_on_between_the_steps() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    for seq in 1..=2000 {
        store.append([straight_read(seq, MARCH_MS + seq.cast_signed())]);
        if seq % 50 == 0 {
            // One row each, so that there is more than one step to do.
            store.durable(seq);
        }
    }
    store.store.save_snapshot(Seq(2000), vec![]).unwrap();
    let store = std::sync::Arc::new(store.store);
    let other = std::sync::Arc::clone(&store);
    let retaining = std::thread::spawn(move || other.retain(on_day(100), Seq(2001)));
    for seq in 2001..=2200 {
        store.append(batch([straight_read(seq, on_day(100).0)])).unwrap();
    }
    let gone = retaining.join().unwrap().unwrap();
    assert_eq!(gone.actions, 2000);
    store.flush_and_close().unwrap();
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.verify(drop).unwrap().head.seq, 2200);
}
