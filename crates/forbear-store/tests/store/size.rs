//! What is taken on the disk. Printed, so that a change shows; bounded, so that it does not creep.

use forbear_core::event::Event;

use crate::facts::{MARCH_MS, Under, straight_read, whole_write};

/// Bytes of the closed store for one unit, beyond an empty one.
fn bytes_each(groups: impl IntoIterator<Item = Vec<Event>>, units: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let size = || std::fs::metadata(dir.path().join("journal.db")).unwrap().len();
    let store = Under::open(dir.path());
    let empty = size();
    for group in groups {
        let last = group.last().unwrap().seq.0;
        store.append(group);
        store.durable(last);
    }
    store.store.flush_and_close().unwrap();
    (size() - empty) / units
}

#[test]
fn a_straight_read_stays_small() {
    let read = |s: u64| straight_read(s, MARCH_MS + 3 * s.cast_signed());
    let grouped = bytes_each((0..100).map(|g| (1 + 64 * g..=64 + 64 * g).map(read).collect()), 6_400);
    let few = bytes_each((0..500).map(|g| (1 + 4 * g..=4 + 4 * g).map(read).collect()), 2_000);
    let alone = bytes_each((1..=1_000).map(|s| vec![read(s)]), 1_000);
    println!("bytes a straight read: {grouped} at 64 a group, {few} at 4, {alone} alone");
    assert!(grouped <= 200, "{grouped}");
    assert!(few <= 300, "{few}");
    assert!(alone <= 400, "{alone}");
}

#[test]
fn a_write_stays_small() {
    let write = |w: u64| whole_write(1 + 4 * w, MARCH_MS + 9 * w.cast_signed());
    let grouped = bytes_each((0..100).map(|g| (16 * g..16 * g + 16).flat_map(write).collect()), 1_600);
    let alone = bytes_each((0..500).flat_map(|w| write(w).map(|e| vec![e])), 500);
    println!("bytes a write of four events: {grouped} at 16 a group, {alone} with each event alone");
    assert!(grouped <= 600, "{grouped}");
    assert!(alone <= 2_400, "{alone}");
}
