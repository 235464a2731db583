//! The handle that the server holds: opens, appends, saves, forgets, closes. It is shared freely between threads.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use forbear_audit::chain::LogId;
use forbear_core::ids::{ActionId, Seq};
use forbear_core::time::Wall;

use crate::error::{FailureKind, StoreError};
use crate::options::Options;
use crate::outgoing::{AppendError, Batch, Outgoing};
use crate::recover::{self, Recovered, Tail};
use crate::retention::{Retained, Retention, drain};
use crate::schema;
use crate::snapshot::Snapshot;
use crate::writer::{Command, Writer};

/// Called on the writer's thread after each commit, and once when it fails. It may take the shard's lock and append; it
/// must not wait for the store.
pub type OnDurable = Box<dyn Fn(Progress) + Send + Sync>;

/// How far the journal is.
#[derive(Debug, Clone)]
pub enum Progress {
    /// Everything up to `seq` survives a crash. `over_limit` says that `store_bytes_max` is reached: no new writes.
    Durable { seq: Seq, usage_bytes: u64, over_limit: bool },
    /// Nothing after the last durable event was kept, nothing more is accepted: [`Store::reopen`].
    Failed { kind: FailureKind, error: StoreError },
}

type WriterHandle = JoinHandle<Result<Seq, StoreError>>;

struct Started {
    reopened: Reopened,
    log_id: LogId,
    writer: WriterHandle,
}

/// The write side of the journal.
pub struct Store {
    options: Options,
    report: Arc<dyn Fn(Progress) + Send + Sync>,
    outgoing: Arc<Outgoing>,
    usage_bytes: Arc<AtomicU64>,
    writer: Mutex<Option<WriterHandle>>,
    log_id: LogId,
    /// Held for as long as the store lives: the directory is ours.
    claim: File,
}

/// A store and what to rebuild from: the snapshot, then the tail.
pub struct Opened {
    pub store: Store,
    pub snapshot: Option<Snapshot>,
    pub tail: Tail,
    pub last_seq: Seq,
    pub log_id: LogId,
}

/// As [`Opened`], for a store that failed and was opened again.
pub struct Reopened {
    pub snapshot: Option<Snapshot>,
    pub tail: Tail,
    pub last_seq: Seq,
}

impl Store {
    /// Takes the directory, makes or migrates the database, checks the tail and starts the writer. On a full disk it gives
    /// what the journal holds, and is as one that failed: it accepts nothing until [`Store::reopen`] succeeds.
    pub fn open(options: Options, on_durable: OnDurable) -> Result<Opened, StoreError> {
        let claim = schema::claim(&options.dir)?;
        let mut store = Self {
            report: Arc::from(on_durable),
            outgoing: Arc::new(Outgoing::new(&options)),
            usage_bytes: Arc::new(AtomicU64::new(0)),
            writer: Mutex::new(None),
            log_id: LogId([0; 16]),
            options,
            claim,
        };
        let (Reopened { snapshot, tail, last_seq }, log_id) = match store.start(false) {
            Ok(Started { reopened, log_id, writer }) => {
                store.writer = Mutex::new(Some(writer));
                (reopened, log_id)
            }
            Err(full @ StoreError::Full { .. }) => {
                // What cannot even be read (a journal that was never made) is refused for the first reason.
                let read = store.read().map_err(|_| full.clone())?;
                tracing::error!(code = full.code(), error = %full, "the journal cannot be written: {}", full.what_to_do());
                store.outgoing.stop(full);
                read
            }
            Err(error) => return Err(error),
        };
        store.log_id = log_id;
        Ok(Opened { store, snapshot, tail, last_seq, log_id })
    }

    /// What the journal holds, without writing to it. Nobody else reads until the tail was read.
    fn read(&self) -> Result<(Reopened, LogId), StoreError> {
        let conn = schema::open_alone(&self.options.dir)?;
        let log_id = recover::base(&conn)?.head.log;
        schema::hold_to_log(&self.claim, &self.options.dir, log_id)?;
        let recovered = recover::recover(&conn)?;
        let tail = Tail::reading(conn, &recovered);
        let Recovered { head, snapshot } = recovered;
        Ok((Reopened { snapshot, tail, last_seq: Seq(head.seq) }, log_id))
    }

    /// Opens again after a failure, once the disk takes writes; until then it says why not and may be asked again. The caller's state must be rebuilt from what this gives; batches that were not
    /// reported durable may or may not be in it.
    pub fn reopen(&self) -> Result<Reopened, StoreError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outgoing.failure().is_none() {
            return Err(StoreError::Stopped { message: "it is open: only a store that failed is opened again".into() });
        }
        if let Some(handle) = writer.take() {
            // Its result was reported when it failed.
            let _ = handle.join();
        }
        let started = self.start(true)?;
        *writer = Some(started.writer);
        Ok(started.reopened)
    }

    fn start(&self, failed_before: bool) -> Result<Started, StoreError> {
        let conn = schema::open_for_writing(&self.options.dir, self.options.store_pages_max)?;
        // After a failed flush the system may hold pages that it calls clean and the disk never got. This writes
        // everything that the log still has into the database, and flushes that.
        drain(&conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        schema::hold_to_log(&self.claim, &self.options.dir, recover::base(&conn)?.head.log)?;
        if failed_before {
            schema::probe(&conn)?;
        }
        let recovered = recover::recover(&conn)?;
        let tail = Tail::new(&self.options.dir, &recovered)?;
        let Recovered { head, snapshot } = recovered;
        let writer = Writer::new(
            conn,
            head,
            self.options.clone(),
            Arc::clone(&self.outgoing),
            Arc::clone(&self.usage_bytes),
            Arc::clone(&self.report),
        )?;
        let thread = std::thread::Builder::new().name("journal".into());
        let writer = thread.spawn(|| writer.run()).map_err(|e| StoreError::io(&self.options.dir, &e))?;
        self.outgoing.open(head.seq);
        let reopened = Reopened { snapshot, tail, last_seq: Seq(head.seq) };
        Ok(Started { reopened, log_id: head.log, writer })
    }

    /// Takes a batch into the outgoing queue. Never waits for the disk; the order of calls is the order of the journal.
    pub fn append(&self, batch: Batch) -> Result<(), AppendError> {
        self.outgoing.append(batch)
    }

    /// Forgets an action's sealed content with the next group; wakes nobody.
    pub fn delete_content(&self, action: ActionId) -> Result<(), AppendError> {
        self.outgoing.delete(action)
    }

    /// Saves state as of `seq`, after all that was appended before this call, and waits until it is durable. Not to be
    /// called under the shard's lock.
    pub fn save_snapshot(&self, seq: Seq, bytes: Vec<u8>) -> Result<(), StoreError> {
        self.ask(|reply| Command::Snapshot(Snapshot { seq, bytes }, reply))
    }

    /// Deletes whole days older than `retention_days`, but none that holds `oldest_needed` or anything later. Groups go
    /// on between its steps; it returns when it is done.
    pub fn retain(&self, now: Wall, oldest_needed: Seq) -> Result<Retained, StoreError> {
        let retention = Retention { now, oldest_needed, done: Retained::default() };
        self.ask(|reply| Command::Retain(retention, reply))
    }

    /// Makes the table of actions again from the journal; groups wait meanwhile. Gives the number of events read.
    pub fn rebuild_projections(&self) -> Result<u64, StoreError> {
        self.ask(Command::Rebuild)
    }

    /// What the store takes on the disk, as of the last commit.
    #[must_use]
    pub fn usage_bytes(&self) -> u64 {
        self.usage_bytes.load(Ordering::Relaxed)
    }

    #[must_use]
    pub const fn log_id(&self) -> LogId {
        self.log_id
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Why nothing is accepted, where that is so.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.outgoing.failure()
    }

    /// Makes all that was appended durable and ends. Gives the last durable sequence number.
    pub fn flush_and_close(&self) -> Result<Seq, StoreError> {
        self.outgoing.close();
        let handle = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = StoreError::Stopped { message: "it is closed".into() };
        handle.ok_or(closed)?.join().unwrap_or_else(|_| {
            Err(StoreError::Stopped { message: "the writer's thread panicked; what it did not report is lost".into() })
        })
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<Result<T, StoreError>>) -> Command) -> Result<T, StoreError> {
        let (reply, answer) = mpsc::channel();
        self.outgoing.command(command(reply))?;
        answer.recv().unwrap_or_else(|_| {
            let message = self.outgoing.failure().map_or_else(|| "it stopped".into(), |e| e.to_string());
            Err(StoreError::Stopped { message })
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever wants to know how it went calls it before.
        let _ = self.flush_and_close();
    }
}
