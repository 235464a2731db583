//! The one thread that writes. It takes whatever gathered while the last flush ran, writes it in one transaction and
//! says how far the journal is durable.
//!
//! At the first failure it gives up: what was queued is dropped, everything after is refused, and the caller rebuilds
//! from what the disk really holds.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use forbear_audit::chain::Head;
use forbear_core::ids::{ActionId, Seq};
use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::options::Options;
use crate::outgoing::{Batch, Outgoing, Work};
use crate::projection::{self, Names};
use crate::recover;
use crate::retention::{Retained, Retention, drain};
use crate::row::{Encoder, Row};
use crate::schema;
use crate::snapshot::{self, Snapshot};
use crate::store::Progress;

/// What the writer does besides groups, between them.
pub(crate) enum Command {
    Snapshot(Snapshot, Sender<Result<(), StoreError>>),
    Retain(Retention, Sender<Result<Retained, StoreError>>),
    Rebuild(Sender<Result<u64, StoreError>>),
}

pub(crate) struct Writer {
    conn: Connection,
    outgoing: Arc<Outgoing>,
    report: Arc<dyn Fn(Progress) + Send + Sync>,
    usage_bytes: Arc<AtomicU64>,
    encoder: Encoder,
    names: Names,
    head: Head,
    options: Options,
    wal: PathBuf,
    /// About what was written since the usage was measured.
    unmeasured_bytes: u64,
}

/// What a group writes beside its rows and contents: pages of the projection, and of the trees above them.
const GROUP_BYTES_ASSUMED: u64 = 16 << 10;
/// The usage is measured whenever about this part of `store_bytes_max` was written, and reckoned between: asking costs more
/// than a small group.
const MEASURED_PART: u64 = 1024;

impl Writer {
    pub(crate) fn new(
        conn: Connection,
        head: Head,
        options: Options,
        outgoing: Arc<Outgoing>,
        usage_bytes: Arc<AtomicU64>,
        report: Arc<dyn Fn(Progress) + Send + Sync>,
    ) -> Result<Self, StoreError> {
        let encoder = Encoder::new(head, options.group_bytes());
        let wal = schema::wal_path(&options.dir);
        let names = Names::default();
        let mut writer =
            Self { conn, outgoing, report, usage_bytes, encoder, names, head, options, wal, unmeasured_bytes: 0 };
        writer.measure()?;
        Ok(writer)
    }

    /// Until the store closes (then the last durable sequence number comes back) or fails.
    pub(crate) fn run(mut self) -> Result<Seq, StoreError> {
        // A panic of the callback must not leave a queue that is taken from by nobody.
        let end = std::panic::catch_unwind(AssertUnwindSafe(|| self.serve()))
            .unwrap_or_else(|_| Err(StoreError::Stopped { message: "the writer's thread panicked".into() }));
        match &end {
            Ok(_) => self.outgoing.stop(StoreError::Stopped { message: "it is closed".into() }),
            Err(error) => {
                tracing::error!(code = error.code(), %error, "the journal failed: {}", error.what_to_do());
                self.outgoing.stop(error.clone());
                (self.report)(Progress::Failed { kind: error.failure_kind(), error: error.clone() });
            }
        }
        end
    }

    fn serve(&mut self) -> Result<Seq, StoreError> {
        loop {
            match self.outgoing.next(self.head.seq) {
                Work::Group { batches, deletes } => self.group(&batches, &deletes)?,
                Work::Command(command) => self.command(command)?,
                Work::Close => {
                    // A reader may hold it open; the log is then only longer, not wrong.
                    drain(&self.conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
                    return Ok(Seq(self.head.seq));
                }
            }
        }
    }

    fn group(&mut self, batches: &[Batch], deletes: &[ActionId]) -> Result<(), StoreError> {
        let events = || batches.iter().flat_map(|b| &b.events);
        let rows = self.encoder.rows(events())?;
        let tx = schema::begin(&self.conn)?;
        rows.iter().try_for_each(|row| insert(&tx, row))?;
        projection::apply(&tx, &mut self.names, events())?;
        for (action, sealed) in batches.iter().flat_map(|b| &b.contents) {
            tx.prepare_cached("INSERT OR REPLACE INTO contents (action, sealed) VALUES (?1, ?2)")?
                .execute(params![action.0.to_be_bytes(), sealed.as_bytes()])?;
        }
        for action in deletes {
            tx.prepare_cached("DELETE FROM contents WHERE action = ?1")?.execute([action.0.to_be_bytes()])?;
        }
        tx.commit()?;
        if let Some(row) = rows.last() {
            self.head = Head { seq: row.last_seq, hash: row.hash, ..self.head };
        }
        let contents = batches.iter().flat_map(|b| &b.contents).map(|(_, sealed)| sealed.as_bytes().len());
        let written: usize = rows.iter().map(|row| row.events.len()).chain(contents).sum();
        let wrote = GROUP_BYTES_ASSUMED + written as u64;
        self.unmeasured_bytes += wrote;
        if self.unmeasured_bytes >= self.options.store_bytes_max / MEASURED_PART {
            self.measure()?;
        } else {
            self.usage_bytes.fetch_add(wrote, Ordering::Relaxed);
        }
        self.tell();
        Ok(())
    }

    fn command(&mut self, command: Command) -> Result<(), StoreError> {
        match command {
            Command::Snapshot(snapshot, reply) => {
                let result = self.save(&snapshot);
                self.answer(&reply, result)?;
            }
            Command::Retain(mut retention, reply) => match retention.step(&self.conn, self.options.retention_days) {
                // The next step comes after whatever was appended meanwhile.
                Ok(false) if self.outgoing.is_open() => {
                    self.measure()?;
                    // Refused only if it began to close just now: then whoever asked sees the sender go.
                    let _ = self.outgoing.command(Command::Retain(retention, reply));
                }
                Ok(_) => {
                    self.measure()?;
                    self.tell();
                    self.answer(&reply, Ok(retention.done))?;
                }
                Err(error) => self.answer(&reply, Err(error))?,
            },
            Command::Rebuild(reply) => {
                let result = recover::base(&self.conn)
                    .and_then(|base| projection::rebuild(&self.conn, &mut self.names, base.head.seq));
                // A name that was added in a transaction that did not end is not there.
                self.names = Names::default();
                self.answer(&reply, result)?;
            }
        }
        Ok(())
    }

    fn save(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        if snapshot.seq.0 > self.head.seq {
            return Err(StoreError::OutOfOrder { expected: self.head.seq, found: snapshot.seq.0 });
        }
        snapshot::save(&self.conn, self.head.log, snapshot)
    }

    /// Whoever asked is told. A failure of the disk ends the writer too; a request that was wrong does not.
    fn answer<T>(
        &self,
        reply: &Sender<Result<T, StoreError>>,
        result: Result<T, StoreError>,
    ) -> Result<(), StoreError> {
        let failure = result.as_ref().err().cloned();
        // The asker may have gone; then nobody wants to know.
        let _ = reply.send(result);
        match failure {
            Some(error @ (StoreError::Damaged { .. } | StoreError::Io { .. })) => Err(error),
            _ => Ok(()),
        }
    }

    fn measure(&mut self) -> Result<(), StoreError> {
        self.unmeasured_bytes = 0;
        let pragma = |sql: &str| -> Result<u64, StoreError> {
            Ok(self.conn.prepare_cached(sql)?.query_row([], |r| r.get::<_, i64>(0))?.cast_unsigned())
        };
        let pages = pragma("PRAGMA page_count")?.saturating_sub(pragma("PRAGMA freelist_count")?);
        let wal_bytes = std::fs::metadata(&self.wal).map_or(0, |m| m.len());
        let bytes = pages.saturating_mul(pragma("PRAGMA page_size")?).saturating_add(wal_bytes);
        self.usage_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn tell(&self) {
        let usage_bytes = self.usage_bytes.load(Ordering::Relaxed);
        let over_limit = usage_bytes >= self.options.store_bytes_max;
        (self.report)(Progress::Durable { seq: Seq(self.head.seq), usage_bytes, over_limit });
    }
}

fn insert(tx: &Connection, row: &Row) -> Result<(), StoreError> {
    tx.prepare_cached(
        "INSERT INTO journal (first_seq, last_seq, day, form, raw_bytes, hash, events)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        row.first_seq.cast_signed(),
        row.last_seq.cast_signed(),
        row.day,
        row.form,
        i64::try_from(row.raw_bytes).unwrap_or(i64::MAX),
        row.hash.0,
        row.events,
    ])?;
    Ok(())
}
