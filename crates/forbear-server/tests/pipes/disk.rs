//! The real store, with the moments of its disk chosen by the plan: how long a flush takes, how late its word comes,
//! which append fails and how much of it is on the disk all the same, when it can be opened again.
//!
//! What is durable is so in the real database: the runtime's one thread waits for the writer, so that its paused clock
//! stands still meanwhile.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forbear_core::event::Event;
use forbear_core::ids::{ActionId, Seq};
use forbear_core::time::Wall;
use forbear_server::journal::Journal;
use forbear_server::outside::{OpenJournal, Opened};
use forbear_store::{
    AppendError, Batch, FailureKind, OnDurable, Options, Progress, Reopened, Retained, Store, StoreError,
};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::world::World;

/// The writer is a thread of this machine.
const PATIENCE: Duration = Duration::from_secs(60);
const BEHIND_MS: u64 = 10;

pub(crate) struct Disk {
    world: World,
    inner: Mutex<Inner>,
    due: Notify,
}

#[derive(Default)]
struct Inner {
    store: Option<Store>,
    options: Option<Options>,
    report: Option<Arc<OnDurable>>,
    reached: Option<Receiver<u64>>,
    pending: VecDeque<Batch>,
    /// On the disk, and known to be.
    durable: u64,
    told: u64,
    failed: bool,
    /// The process is gone, or has closed it.
    dead: bool,
    full: bool,
    /// The next batch is what a thaw says again.
    thawed: bool,
    reopen_fails: u64,
}

/// The shard's end of it.
pub(crate) struct Gate(Arc<Disk>);

impl Disk {
    pub(crate) fn new(world: World) -> Arc<Self> {
        Arc::new(Self { world, inner: Mutex::default(), due: Notify::new() })
    }

    pub(crate) fn opening(self: &Arc<Self>) -> OpenJournal {
        let disk = Arc::clone(self);
        Box::new(move |options, report| {
            let (tell, reached) = channel();
            let opened = Store::open(options.clone(), telling(tell))?;
            let forbear_store::Opened { store, snapshot, tail, last_seq, log_id } = opened;
            let mut inner = disk.lock();
            *inner = Inner { options: Some(options), report: Some(Arc::new(report)), ..Inner::default() };
            (inner.store, inner.reached) = (Some(store), Some(reached));
            (inner.durable, inner.told) = (last_seq.0, last_seq.0);
            drop(inner);
            let recovered = Reopened { snapshot, tail, last_seq };
            Ok(Opened { journal: Box::new(Gate(disk)), recovered, log_id })
        })
    }

    /// No space is left, or there is again.
    pub(crate) fn fill(&self, full: bool) {
        self.lock().full = full;
    }

    /// It failed and was not opened again.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// The process is killed: what was not given to the disk is lost.
    pub(crate) fn kill(&self) {
        let mut inner = self.lock();
        inner.dead = true;
        inner.pending.clear();
        (inner.store, inner.report) = (None, None);
    }

    /// Flushes whatever gathered, again and again.
    pub(crate) async fn pump(self: Arc<Self>) {
        loop {
            self.due.notified().await;
            while let Some((many, behind)) = self.waiting() {
                let moment = self.world.flush_moment();
                // sleep: the flush of a disk under a paused clock
                sleep(Duration::from_millis(moment.flush_ms + if behind { BEHIND_MS } else { 0 })).await;
                if moment.fails {
                    let kept = self.fail(many, moment.kept);
                    self.world.note(format!("disk: an append fails, {kept} batches of {many} are kept"));
                    // sleep: the disk's late word
                    sleep(Duration::from_millis(moment.told_ms)).await;
                    let error = StoreError::Full { message: "by plan".into() };
                    self.report(Progress::Failed { kind: FailureKind::Full, error });
                    break;
                }
                self.commit(many);
                // sleep: the disk's late word
                sleep(Duration::from_millis(moment.ack_ms)).await;
                self.acknowledge();
            }
        }
    }

    /// How many batches wait to be written, and whether nobody waits for them.
    fn waiting(&self) -> Option<(usize, bool)> {
        let inner = self.lock();
        let goes = !inner.pending.is_empty() && !inner.failed && !inner.dead;
        goes.then(|| (inner.pending.len(), inner.pending.iter().all(|b| b.behind)))
    }

    fn acknowledge(&self) {
        let mut inner = self.lock();
        if inner.failed || inner.told == inner.durable {
            return;
        }
        inner.told = inner.durable;
        let progress = Progress::Durable { seq: Seq(inner.durable), usage_bytes: 0, over_limit: inner.full };
        self.world.note(format!("disk: durable up to {}", inner.durable));
        drop(inner);
        self.report(progress);
    }

    fn report(&self, progress: Progress) {
        let report = self.lock().report.clone();
        if let Some(report) = report {
            report(progress);
        }
    }

    fn fail(&self, many: usize, kept_permille: u64) -> usize {
        let kept = many * usize::try_from(kept_permille).expect("it is small") / 1_000;
        self.commit(kept);
        let mut inner = self.lock();
        inner.failed = true;
        inner.pending.clear();
        inner.reopen_fails = self.world.reopen_fails();
        kept
    }

    /// Gives the first batches to the store and waits until they are durable.
    fn commit(&self, many: usize) {
        let mut events: Vec<Event> = Vec::new();
        let mut inner = self.lock();
        if inner.dead {
            return;
        }
        for _ in 0..many.min(inner.pending.len()) {
            let mut batch = inner.pending.pop_front().expect("it was counted");
            batch.behind = false;
            events.extend(batch.events.iter().cloned());
            let store = inner.store.as_ref().expect("it is open while it is not dead");
            store.append(batch).expect("the store takes what comes in order");
        }
        let Some(last) = events.last().map(|e| e.seq.0) else { return };
        while inner.durable < last {
            let reached = inner.reached.as_ref().expect("it is open").recv_timeout(PATIENCE);
            inner.durable = reached.expect("the writer writes");
        }
        drop(inner);
        events.iter().for_each(|e| self.world.durable(e));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panicked")
    }
}

fn telling(tell: Sender<u64>) -> OnDurable {
    let tell = Mutex::new(tell);
    Box::new(move |progress| {
        if let Progress::Durable { seq, .. } = progress {
            let _ = tell.lock().expect("nothing panicked").send(seq.0);
        }
    })
}

fn stopped() -> StoreError {
    StoreError::Stopped { message: "by plan".into() }
}

impl Gate {
    fn whole(&self) -> Result<MutexGuard<'_, Inner>, StoreError> {
        let inner = self.0.lock();
        if inner.failed || inner.dead {
            return Err(stopped());
        }
        let many = inner.pending.len();
        drop(inner);
        self.0.commit(many);
        Ok(self.0.lock())
    }
}

impl Journal for Gate {
    fn append(&self, batch: Batch) -> Result<(), AppendError> {
        let mut inner = self.0.lock();
        if inner.failed || inner.dead {
            return Err(AppendError::Stopped);
        }
        let thawed = std::mem::take(&mut inner.thawed);
        for event in &batch.events {
            let with_content = batch.contents.iter().any(|(action, _)| Some(*action) == event.action);
            // What a thaw says again never left, and needs none.
            self.0.world.appended(event, (!thawed).then_some(with_content));
        }
        inner.pending.push_back(batch);
        self.0.due.notify_one();
        Ok(())
    }

    fn failure(&self) -> Option<StoreError> {
        let inner = self.0.lock();
        inner.store.as_ref().and_then(Store::failure)
    }

    fn delete_content(&self, action: ActionId) -> Result<(), AppendError> {
        let inner = self.0.lock();
        self.0.world.forgets(action);
        inner.store.as_ref().map_or(Ok(()), |store| store.delete_content(action))
    }

    fn save_snapshot(&self, seq: Seq, bytes: Vec<u8>) -> Result<(), StoreError> {
        let inner = self.whole()?;
        inner.store.as_ref().ok_or_else(stopped)?.save_snapshot(seq, bytes)
    }

    fn retain(&self, now: Wall, oldest_needed: Seq) -> Result<Retained, StoreError> {
        let inner = self.whole()?;
        inner.store.as_ref().ok_or_else(stopped)?.retain(now, oldest_needed)
    }

    fn reopen(&self) -> Result<Reopened, StoreError> {
        let mut inner = self.0.lock();
        if !inner.failed || inner.dead {
            return Err(stopped());
        }
        if inner.reopen_fails > 0 {
            inner.reopen_fails -= 1;
            return Err(StoreError::Full { message: "still, by plan".into() });
        }
        inner.store = None;
        let (tell, reached) = channel();
        let options = inner.options.clone().expect("it was open");
        let forbear_store::Opened { store, snapshot, tail, last_seq, .. } = Store::open(options, telling(tell))?;
        (inner.store, inner.reached) = (Some(store), Some(reached));
        (inner.durable, inner.told, inner.failed) = (last_seq.0, last_seq.0, false);
        inner.thawed = true;
        self.0.world.note(format!("disk: open again after event {}", last_seq.0));
        Ok(Reopened { snapshot, tail, last_seq })
    }

    fn usage_bytes(&self) -> u64 {
        0
    }

    fn flush_and_close(&self) -> Result<Seq, StoreError> {
        let mut inner = self.whole()?;
        let store = inner.store.take().ok_or_else(stopped)?;
        inner.dead = true;
        store.flush_and_close()
    }

    fn waits(&self) -> bool {
        false
    }
}
