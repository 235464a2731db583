//! A cancel is told as done when the journal has it, and not before.

use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forbear_api::Named;
use forbear_api::client::Token;
use forbear_api::{Client, ClientError};
use forbear_core::ids::TaskId;
use forbear_core::input::Whose;
use forbear_server::outside::{Opened, Outside};
use forbear_server::serve::{Running, start_in};
use forbear_store::{FailureKind, OnDurable, Progress, Reopened, Store, StoreError};
use tokio::net::TcpListener;

use crate::rig::loaded;

/// A server over the real store, whose word reaches the shard only when the test passes it on.
struct Held {
    running: Running,
    words: Receiver<Progress>,
    report: Arc<OnDurable>,
    _dir: tempfile::TempDir,
}

impl Held {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (tell, words) = channel();
        let (give, given) = channel();
        let tell = Mutex::new(tell);
        let mut outside = Outside::real(listener);
        outside.open_journal = Box::new(move |options, report| {
            give.send(Arc::new(report)).unwrap();
            let hold: OnDurable = Box::new(move |word| drop(tell.lock().unwrap().send(word)));
            let forbear_store::Opened { store, snapshot, tail, last_seq, log_id } = Store::open(options, hold)?;
            Ok(Opened { journal: Box::new(store), recovered: Reopened { snapshot, tail, last_seq }, log_id })
        });
        let running = start_in(outside, loaded("http://127.0.0.1:1", "", &dir)).await.unwrap();
        Self { running, words, report: given.recv().unwrap(), _dir: dir }
    }

    fn client(&self) -> Client {
        let token = Token::from_data_dir(self.running.data_dir()).unwrap();
        Client::new(&format!("http://{}", self.running.addr()), Some(token)).unwrap()
    }

    /// Passes on what the writer says from now on.
    fn let_go(&self, until: u64) {
        loop {
            let word = self.words.recv_timeout(Duration::from_secs(20)).unwrap();
            let done = matches!(word, Progress::Durable { seq, .. } if seq.0 >= until);
            (self.report)(word);
            if done {
                return;
            }
        }
    }
}

fn full() -> Progress {
    let error = StoreError::Full { message: "no space".into() };
    Progress::Failed { kind: FailureKind::Full, error }
}

#[tokio::test]
async fn it_is_told_when_the_disk_has_it() {
    let held = Held::new().await;
    let cancelled = held.running.shard().cancel(Whose::Task(TaskId::new("t")), "test".into());
    let mut kept = pin!(cancelled.kept());
    assert!(is_pending(&mut kept), "nothing is on the disk yet");
    // The policy that the start loads, and the cancel.
    held.let_go(2);
    assert_eq!(kept.await, Ok(()));
}

#[tokio::test]
async fn a_failing_journal_is_said_and_so_is_a_slow_one() {
    let held = Held::new().await;
    let shard = held.running.shard();
    let cancelled = shard.cancel(Whose::Task(TaskId::new("slow")), "test".into());
    tokio::time::pause();
    assert_eq!(cancelled.kept().await, Err("the disk has not taken it yet"));
    tokio::time::resume();
    let cancelled = shard.cancel(Whose::Task(TaskId::new("t")), "test".into());
    let mut kept = pin!(cancelled.kept());
    assert!(is_pending(&mut kept));
    (held.report)(full());
    assert_eq!(kept.await, Err("the journal cannot be written"));
    // Its number is that of an event that is on the disk, or will be anew.
    let later = shard.cancel(Whose::Task(TaskId::new("u")), "test".into());
    assert_eq!(later.kept().await, Err("the journal cannot be written"));
    match held.client().cancel(Named::Task, "v").await {
        Err(ClientError::Refused { problem }) => assert_eq!(problem.kind.slug(), "not_durable"),
        other => panic!("{other:?}"),
    }
    assert_eq!(shard.live_actions(), 0);
}

fn is_pending(wait: &mut std::pin::Pin<&mut impl Future>) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    wait.as_mut().poll(&mut cx).is_pending()
}
