//! A real process, really killed: what it was told is durable is there afterwards, and at most a suffix is lost.
//!
//! The child is this test binary again, started on [`child`] with a directory in its environment.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use forbear_store::{Batch, Options, Progress, Reader, Store};

use crate::facts::{MARCH_MS, Under, batch, straight_read};

const DIR: &str = "FORBEAR_STORE_KILL_DIR";
const ROUNDS: u64 = 6;

/// Appends for ever, says on its standard output what is durable.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let say = |progress| {
        let Progress::Durable { seq, .. } = progress else { std::process::exit(1) };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "\ndurable {}", seq.0).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    };
    let opened = Store::open(Options { outgoing_bytes_max: 100_000, ..Options::new(dir) }, Box::new(say)).unwrap();
    let mut seq = opened.last_seq.0;
    loop {
        let size = 1 + seq % 7;
        let events: Vec<_> = (seq + 1..=seq + size).map(|s| straight_read(s, MARCH_MS + s.cast_signed())).collect();
        let behind = seq.is_multiple_of(3);
        // A full queue is waited for; the disk is slower than this loop.
        if opened.store.append(Batch { behind, ..batch(events) }).is_ok() {
            seq += size;
        } else {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(dir.path(), 1 + round * round * 3);
        // The read side works on what the dead process left, before anyone has tidied up.
        let head = Reader::open(dir.path()).unwrap().verify(drop).unwrap().head;
        let store = Under::open(dir.path());
        assert_eq!(store.last_seq, head.seq);
        assert!(store.last_seq >= acknowledged, "{} of {acknowledged} acknowledged", store.last_seq);
        assert!(acknowledged > before);
        assert_eq!(store.tail.len() as u64, store.last_seq, "without a gap");
        let as_written =
            |e: &forbear_core::event::Event| *e == straight_read(e.seq.0, MARCH_MS + e.seq.0.cast_signed());
        assert!(store.tail.iter().all(as_written));
        before = store.last_seq;
    }
}

/// Kills the child once it has acknowledged `commits` commits; gives the last acknowledged event.
fn run_and_kill(dir: &std::path::Path, commits: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["kill::child", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut durable = || {
        let told = lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("durable ")?.parse().ok());
        told.unwrap_or(0)
    };
    let mut acknowledged = 0;
    for _ in 0..commits {
        acknowledged = durable();
        assert!(acknowledged > 0, "the child ended by itself");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What it still said between the last line read and its death counts as well.
    loop {
        match durable() {
            0 => return acknowledged,
            told => acknowledged = told,
        }
    }
}
