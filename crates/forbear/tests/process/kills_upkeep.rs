//! The process is killed while it looks after its journal: in the snapshot and in the checkpoint of a stop, held there by
//! locks on the database, and in the middle of deleting old days.

use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use forbear_core::event::{EVENT_VERSION, Event, Fact};
use forbear_core::ids::{PolicyMark, Seq, TaskId};
use forbear_core::time::Wall;
use forbear_store::{Batch, Options, Store};
use rusqlite::Connection;

use crate::agent::{Call, ask};
use crate::journal::Journal;
use crate::rig::{Home, Server, provider, until};

const SOON: Duration = Duration::from_secs(15);
const DAY_MS: i64 = 86_400_000;
/// Events of one old day each.
const OLD_DAYS: i64 = 4_000;
/// Journals of so many old days, until one is caught in the middle.
const HOMES_MAX: u32 = 20;

const SCENARIO: &str = "
routes:
  - match: 'POST /keyed'
    idempotency: {header: Idempotency-Key}
    respond: {status: 201, effect: {name: e}, body: {ok: true}}
  - match: 'POST /lost'
    respond: {effect: {name: e}, fault: {at: after_commit, end: rst}}
";

const CONFIG: &str = "
providers:
  p:
    base_url: $BASE
    idempotency: {header: Idempotency-Key, retention_seconds: 86400}
    routes:
      - {match: 'POST /keyed', class: idempotent_write}
";

fn keyed() -> Call {
    Call::post("/p/keyed", "{}").with("authorization", "k").with("idempotency-key", "order 7").with("forbear-task", "t")
}

fn lost() -> Call {
    Call::post("/p/lost", "{}").with("authorization", "k").with("forbear-task", "u")
}

fn database(home: &Home) -> Connection {
    let connection = Connection::open(home.data.join("journal.db")).expect("the database can be opened");
    connection.busy_timeout(SOON).expect("it can be set");
    connection
}

/// Told to stop, and past everything but its upkeep: nobody listens any more.
async fn told_to_stop(server: &Server) {
    server.signal("TERM").await;
    until("the listener is closed", SOON, async || ask(server.addr, &Call::get("/-/healthy")).await.is_err()).await;
}

/// One done and one of unknown effect before the kill, and the same after it.
async fn at(held: impl AsyncFnOnce(&Home, &mut Server) -> Connection) {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let mut server = home.start().await;
    assert_eq!(server.ask(&keyed()).await.status, 201);
    assert_eq!(server.ask(&lost()).await.status, 422);
    let lock = held(&home, &mut server).await;
    assert!(server.runs(), "it had ended before it was killed");
    server.kill().await;
    drop(lock);
    let server = home.start().await;
    assert_eq!(server.ask(&keyed()).await.status, 201);
    let again = server.ask(&lost()).await;
    assert_eq!((again.status, again.field("forbear-outcome")), (422, "outcome_unknown"), "{again:?}");
    server.stop().await;
    assert_eq!(provider.effects().count, 2);
    Journal::read(&home).check();
}

#[tokio::test]
async fn a_kill_in_a_snapshot_loses_nothing() {
    at(async |home, server| {
        let lock = database(home);
        lock.execute_batch("BEGIN IMMEDIATE").expect("the lock is had between two groups");
        told_to_stop(server).await;
        lock
    })
    .await;
}

#[tokio::test]
async fn a_kill_in_a_checkpoint_loses_nothing() {
    at(async |home, server| {
        let seqs = "SELECT coalesce(max(seq), 0) FROM snapshots";
        let newest = |c: &Connection| c.query_row(seqs, [], |r| r.get::<_, i64>(0)).expect("there are snapshots");
        let reader = database(home);
        reader.execute_batch("BEGIN").expect("a reader may begin");
        // From here on it sees, and so holds, the log as it is now.
        let before = newest(&reader);
        told_to_stop(server).await;
        let watcher = database(home);
        until("the snapshot of the stop is saved", SOON, async || newest(&watcher) > before).await;
        reader
    })
    .await;
}

/// A journal of long ago, one event a day.
fn old_journal(home: &Home) {
    std::fs::create_dir_all(&home.data).expect("the directory can be made");
    let key = home.data.join("master.key");
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(key).expect("a key can be made");
    std::io::Write::write_all(&mut { file }, &[7; 32]).expect("and written");
    let opened = Store::open(Options::new(&home.data), Box::new(|_| ())).expect("a store can be made");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
    let now_ms = i64::try_from(now.as_millis()).expect("it fits");
    for day in 0..OLD_DAYS {
        let seq = Seq(u64::try_from(day).expect("it is positive") + 1);
        let fact = Fact::TaskCancelled { task: TaskId::new("old"), by: "somebody".into() };
        let at = Wall(now_ms - (OLD_DAYS + 100 - day) * DAY_MS);
        let event = Event {
            v: EVENT_VERSION,
            seq,
            at,
            action: None,
            prev: None,
            policy: PolicyMark::new("0000000000000000"),
            fact,
        };
        opened.store.append(Batch { events: vec![event], ..Batch::default() }).expect("it is taken");
    }
    opened.store.flush_and_close().expect("it is written");
}

/// Kills it while it deletes old days, as often as it is seen in the middle of that. On a machine that is slow to look, all may
/// be gone by then.
async fn killed_while_it_deletes(home: &Home) -> u32 {
    let old = u64::try_from(OLD_DAYS).expect("it is positive");
    let (mut middle, mut seen) = (0, 1);
    while seen <= old {
        let server = home.start().await;
        until("some of it is deleted", SOON, async || first(home) > seen).await;
        server.kill().await;
        seen = first(home);
        home.reader().verify(|_| ()).expect("what is left verifies");
        middle += u32::from(seen <= old);
    }
    middle
}

fn first(home: &Home) -> u64 {
    home.reader().range().map_or(1, |(first, _)| first.0)
}

#[tokio::test]
async fn a_kill_in_the_middle_of_deleting_old_days_leaves_a_journal_that_verifies() {
    let provider = provider(SCENARIO).await;
    for _ in 0..HOMES_MAX {
        let home = Home::new(CONFIG, &provider.base_url());
        old_journal(&home);
        let middle = killed_while_it_deletes(&home).await;
        let server = home.start().await;
        assert_eq!(server.ask(&keyed()).await.status, 201);
        server.stop().await;
        home.reader().verify(|_| ()).expect("what is left verifies");
        if middle > 0 {
            return;
        }
    }
    panic!("it was never killed in the middle");
}
