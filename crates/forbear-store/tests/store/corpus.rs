//! Journals of older versions, which must replay for ever. Nothing under `corpus/` is ever changed; a new event version
//! gets a directory of its own.

use std::path::{Path, PathBuf};

use forbear_core::event::Event;
use forbear_store::Reader;

use crate::facts::Under;

fn corpus(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(file)
}

fn recorded(file: &str) -> Vec<Event> {
    let lines = std::fs::read_to_string(corpus(file)).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Every kind of event, as version 1 wrote it, reads as what it was.
#[test]
fn events_of_version_1_are_read() {
    let lines = std::fs::read_to_string(corpus("v1/events.ndjson")).unwrap();
    for (line, event) in lines.lines().zip(recorded("v1/events.ndjson")) {
        let again: serde_json::Value = serde_json::to_value(&event).unwrap();
        let was: serde_json::Value = serde_json::from_str(line).unwrap();
        let lost: Vec<_> = members(&was).into_iter().filter(|m| !members(&again).contains(m)).collect();
        assert!(lost.is_empty(), "{lost:?} of {line}");
    }
}

/// All members with their values, as paths: null members are the same as none.
fn members(value: &serde_json::Value) -> Vec<String> {
    fn walk(path: &str, value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| walk(&format!("{path}.{k}"), v, out)),
            serde_json::Value::Array(all) => {
                all.iter().enumerate().for_each(|(i, v)| walk(&format!("{path}[{i}]"), v, out));
            }
            serde_json::Value::Null => {}
            _ => out.push(format!("{path}={value}")),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}

/// A member that a later version added is passed over.
#[test]
fn a_member_that_is_not_known_is_no_error() {
    let line = r#"{"v":1,"seq":1,"at":5,"policy":"p","later":[1],"fact":{"type":"action_sent","attempt":1,"by":"x"}}"#;
    let event: Event = serde_json::from_str(line).unwrap();
    assert_eq!(event.seq.0, 1);
}

/// A whole database of schema version 1, with its chain.
#[test]
fn a_store_of_version_1_opens_verifies_and_replays() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(corpus("v1/journal.db"), dir.path().join("journal.db")).unwrap();
    let head = Reader::open(dir.path()).unwrap().verify(drop).unwrap().head;
    let noted = std::fs::read_to_string(corpus("v1/head.txt")).unwrap();
    assert_eq!(noted.trim(), format!("{} {} {}", head.log, head.seq, head.hash));
    let store = Under::open(dir.path());
    assert!(store.tail == recorded("v1/events.ndjson"), "the events are not what they were");
}

/// The corpus of a version is made from its `events.ndjson` by this, once, when that version is new: set
/// `FORBEAR_CORPUS_OUT` to an empty directory. Without it what was made is only compared.
#[test]
fn a_store_made_of_the_recorded_events_replays_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = Under::open(dir.path());
    for group in recorded("v1/events.ndjson").chunks(7) {
        store.append(group.to_vec());
        store.durable(group[group.len() - 1].seq.0);
    }
    drop(store);
    let head = Reader::open(dir.path()).unwrap().verify(drop).unwrap().head;
    assert!(Under::open(dir.path()).tail == recorded("v1/events.ndjson"), "the events are not what they were");
    if let Some(out) = std::env::var_os("FORBEAR_CORPUS_OUT").map(std::path::PathBuf::from) {
        std::fs::copy(dir.path().join("journal.db"), out.join("journal.db")).unwrap();
        std::fs::write(out.join("head.txt"), format!("{} {} {}\n", head.log, head.seq, head.hash)).unwrap();
    }
}
