//! Full disks, damaged files and foreign ones: refused with a code, nothing recorded lost, nothing deleted.

use std::collections::BTreeMap;
use std::path::Path;

use forbear_core::event::Event;
use forbear_core::ids::Seq;
use forbear_store::{AppendError, Batch, FailureKind, Options, Progress, Reader, Sealed, Store, StoreError};
use rusqlite::Connection;

use crate::facts::{MARCH_MS, Under, batch, id, refusal, straight_read, whole_write};

fn database(dir: &Path) -> std::path::PathBuf {
    dir.join("journal.db")
}

/// A closed store of three rows of ten events.
fn thirty(dir: &Path) -> Vec<Event> {
    let store = Under::open(dir);
    let events: Vec<_> = (1..=30).map(|s| straight_read(s, MARCH_MS + s.cast_signed())).collect();
    for group in events.chunks(10) {
        store.append(group.to_vec());
        store.durable(group[9].seq.0);
    }
    store.store.flush_and_close().unwrap();
    events
}

fn spoil(dir: &Path, sql: &str) {
    Connection::open(database(dir)).unwrap().execute_batch(sql).unwrap();
}

/// Appends until it fails; gives the last durable event and the failure.
fn fill(store: &Under, last_seq: u64) -> (u64, FailureKind) {
    let (mut seq, mut durable) = (last_seq, last_seq);
    loop {
        seq += 1;
        let content = Sealed::from_bytes(vec![1; 4000]);
        let contents = vec![(id(MARCH_MS, seq), content)];
        store.store.append(Batch { contents, ..batch([straight_read(seq, MARCH_MS)]) }).unwrap();
        match store.report() {
            Progress::Durable { seq, .. } => durable = seq.0,
            Progress::Failed { kind, .. } => return (durable, kind),
        }
    }
}

#[test]
fn a_full_disk_stops_all_appends_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { store_pages_max: Some(400), ..Options::new(dir.path()) };
    let store = Under::open_with(small);
    let ballast = vec![(id(MARCH_MS, 1), Sealed::from_bytes(vec![2; 600_000]))];
    store.store.append(Batch { contents: ballast, ..batch(whole_write(1, MARCH_MS)) }).unwrap();
    store.durable(4);
    let (durable, kind) = fill(&store, 4);
    assert_eq!(kind, FailureKind::Full);
    assert!(durable > 50, "{durable}");
    assert_eq!(store.store.append(batch([])), Err(AppendError::Stopped));
    assert!(matches!(store.store.save_snapshot(Seq(1), vec![]), Err(StoreError::Stopped { .. })));
    for _ in 0..3 {
        assert!(matches!(store.store.reopen().err(), Some(StoreError::Full { .. })), "there is still no room");
        assert_eq!(store.store.append(batch([])), Err(AppendError::Stopped));
    }
    // The ballast goes: room, without a restart.
    spoil(dir.path(), "PRAGMA secure_delete = ON; DELETE FROM contents WHERE length(sealed) > 100000");
    let again = store.store.reopen().unwrap();
    assert_eq!(again.last_seq, Seq(durable), "all that was reported is there, and nothing else");
    assert_eq!(again.tail.count() as u64, durable);
    assert!(matches!(store.store.reopen(), Err(StoreError::Stopped { .. })), "it is open");
    store.append([straight_read(durable + 1, MARCH_MS)]);
    store.durable(durable + 1);
    assert_eq!(Reader::open(dir.path()).unwrap().verify(drop).unwrap().head.seq, durable + 1);
}

#[test]
fn a_changed_event_is_named_and_nothing_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    thirty(dir.path());
    spoil(dir.path(), "UPDATE journal SET hash = zeroblob(32) WHERE first_seq = 11");
    let before = std::fs::read(database(dir.path())).unwrap();
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(&error, StoreError::Broken { why } if why.first_bad_seq() == 11), "{error}");
    assert_eq!(error.code(), "FB2003");
    assert!(std::fs::read(database(dir.path())).unwrap() == before, "the evidence was changed");
    let told = Reader::open(dir.path()).unwrap().verify(drop).unwrap_err();
    assert!(matches!(told, StoreError::Broken { why } if why.first_bad_seq() == 11));
}

#[test]
fn a_missing_row_is_named() {
    let dir = tempfile::tempdir().unwrap();
    thirty(dir.path());
    spoil(dir.path(), "DELETE FROM journal WHERE first_seq = 11");
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(&error, StoreError::Broken { why } if why.first_bad_seq() == 11), "{error}");
}

/// Damage before the snapshot does not stop a start; the whole verification sees it.
#[test]
fn only_what_is_replayed_is_checked_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    thirty(dir.path());
    let store = Under::open(dir.path());
    store.store.save_snapshot(Seq(25), b"s".to_vec()).unwrap();
    drop(store);
    spoil(dir.path(), "UPDATE journal SET hash = zeroblob(32) WHERE first_seq = 1");
    assert_eq!(Under::open(dir.path()).tail.len(), 5);
    assert!(Reader::open(dir.path()).unwrap().verify(drop).is_err());
    spoil(dir.path(), "UPDATE journal SET events = zeroblob(length(events)) WHERE first_seq = 21");
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(&error, StoreError::Broken { why } if why.first_bad_seq() == 21), "{error}");
}

/// Whatever bytes are overwritten: the events come back as they were, or the store is refused.
#[test]
fn random_damage_never_changes_history_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let events = thirty(dir.path());
    let whole = std::fs::read(database(dir.path())).unwrap();
    let (mut noise, mut outcomes) = (0x2545_f491_4f6c_dd1du64, BTreeMap::<&str, u32>::new());
    let mut draw = |bound: usize| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(noise >> 33).unwrap() % bound
    };
    for _ in 0..60 {
        let mut bytes = whole.clone();
        let (at, length) = (draw(bytes.len() - 64), 1 + draw(64));
        (at..at + length).for_each(|i| bytes[i] = u8::try_from(draw(256)).unwrap());
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(database(copy.path()), &bytes).unwrap();
        let outcome = match Store::open(Options::new(copy.path()), Box::new(drop)) {
            Err(error) => error.code(),
            Ok(opened) => match opened.tail.collect::<Result<Vec<_>, _>>() {
                Err(error) => error.code(),
                Ok(tail) => {
                    assert!(tail == events, "history was changed by {length} bytes at {at}");
                    "whole"
                }
            },
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{outcomes:?}");
    assert!(outcomes.len() > 1, "{outcomes:?}");
}

#[test]
fn a_cut_file_and_an_emptied_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    thirty(dir.path());
    let whole = std::fs::read(database(dir.path())).unwrap();
    std::fs::write(database(dir.path()), &whole[..whole.len() / 2]).unwrap();
    let error = refusal(Options::new(dir.path()));
    assert_eq!(error.failure_kind(), FailureKind::Corrupt, "{error}");
    std::fs::write(database(dir.path()), b"").unwrap();
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(error, StoreError::OtherLog { .. }), "an empty journal does not follow a lost one: {error}");
}

#[test]
fn a_newer_store_and_a_foreign_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    thirty(dir.path());
    spoil(dir.path(), "PRAGMA user_version = 99");
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert!(matches!(Reader::open(dir.path()), Err(StoreError::Newer { .. })));

    let dir = tempfile::tempdir().unwrap();
    spoil(dir.path(), "CREATE TABLE theirs (x)");
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    std::fs::write(database(dir.path()), "not a database, but long enough to look like one".repeat(90)).unwrap();
    assert_eq!(refusal(Options::new(dir.path())).failure_kind(), FailureKind::Corrupt);
    let under_a_file = database(dir.path()).join("x");
    assert!(matches!(refusal(Options::new(under_a_file)), StoreError::Io { .. }));
}

#[test]
fn an_event_of_a_newer_version_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    let newer = Event { v: 200, ..straight_read(1, MARCH_MS) };
    store.append([newer]);
    store.durable(1);
    drop(store);
    let error = refusal(Options::new(dir.path()));
    assert!(matches!(&error, StoreError::Unreadable { seq: 1, message } if message.contains("version 200")), "{error}");
}

#[test]
fn an_event_that_is_too_large_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    store.append([straight_read(1, MARCH_MS)]);
    store.durable(1);
    store.append([Event { policy: "x".repeat(2 << 20).into(), ..straight_read(2, MARCH_MS) }]);
    match store.report() {
        Progress::Failed { kind, .. } => assert_eq!(kind, FailureKind::TooLarge),
        Progress::Durable { .. } => panic!("it was stored"),
    }
    assert_eq!(store.store.reopen().unwrap().last_seq, Seq(1));
    store.append([straight_read(2, MARCH_MS)]);
    store.durable(2);
}

/// Every code has its page, every page its code.
#[test]
fn every_error_has_its_page() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let source = include_str!("../../src/error.rs");
    let codes: Vec<&str> = source.split('"').filter(|s| s.starts_with("FB2") && s.len() == 6).collect();
    assert!(codes.len() >= 15);
    for code in &codes {
        let page = std::fs::read_to_string(pages.join(format!("{code}.md"))).expect(code);
        assert!(page.starts_with(&format!("# {code}: ")), "{code}");
        assert!(page.contains("## What happened") && page.contains("## What to do"), "{code}");
    }
    let named = std::fs::read_dir(pages).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    for page in named.filter(|n| n.starts_with("FB2")) {
        assert!(codes.contains(&page.trim_end_matches(".md")), "{page} is no code of the store");
    }
}

/// A file system of 4 MiB, gone with the test.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// None where this user may not mount one.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(dir.path())
            .output();
        mount.is_ok_and(|done| done.status.success()).then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// On a real file system that is really full. Who may not mount one has the tests with a page limit above.
#[test]
fn a_really_full_disk_stops_all_appends_until_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        return eprintln!("left out: this user may not mount a file system");
    };
    let dir = tempfile::tempdir_in(disk.0.path()).unwrap();
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let store = Under::open(dir.path());
    let (durable, kind) = fill(&store, 0);
    assert_eq!(kind, FailureKind::Full);
    for _ in 0..3 {
        assert!(matches!(store.store.reopen().err(), Some(StoreError::Full { .. })), "there is still no room");
    }
    let reader = Reader::open(dir.path()).unwrap();
    assert_eq!(reader.verify(drop).unwrap().head.seq, durable, "what was reported is there");
    std::fs::remove_file(ballast).unwrap();
    assert_eq!(store.store.reopen().unwrap().last_seq, Seq(durable));
    store.append([straight_read(durable + 1, MARCH_MS)]);
    store.durable(durable + 1);
}
