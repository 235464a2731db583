//! What is read when the store opens: the log's identity, the newest snapshot, and the events after it, checked.
//!
//! The chain of the tail is verified before anything is handed out, from the row that the snapshot ends in; a whole
//! verification of the journal is the read side's, and needs no stop.

use std::collections::VecDeque;
use std::path::Path;

use forbear_audit::chain::{Broken, EntryHash, Head, LogId, Verifier};
use forbear_core::event::Event;
use rusqlite::{Connection, OptionalExtension};

use crate::error::StoreError;
use crate::row::{COLUMNS, Row};
use crate::schema;
use crate::snapshot::{self, Snapshot};

/// The log's identity and where the kept part of it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub(crate) head: Head,
}

pub(crate) fn base(conn: &Connection) -> Result<Base, StoreError> {
    let row = conn
        .query_row("SELECT log_id, base_seq, base_hash FROM log", [], |r| {
            Ok((r.get::<_, [u8; 16]>(0)?, r.get::<_, i64>(1)?.cast_unsigned(), r.get::<_, [u8; 32]>(2)?))
        })
        .optional()?;
    let (log, seq, hash) = row.ok_or_else(|| StoreError::Damaged { message: "the log has no identity".into() })?;
    Ok(Base { head: Head { log: LogId(log), seq, hash: EntryHash(hash) } })
}

/// The row that `seq` is in, or the first one after it.
pub(crate) fn row_at(conn: &Connection, seq: u64) -> Result<Option<Row>, StoreError> {
    let find = |order: &str| -> Result<Option<Row>, StoreError> {
        let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM journal WHERE {order} LIMIT 1"))?;
        Ok(statement.query_row([seq.cast_signed()], Row::read).optional()?)
    };
    match find("first_seq <= ?1 ORDER BY first_seq DESC")? {
        Some(row) if row.last_seq >= seq => Ok(Some(row)),
        _ => find("first_seq > ?1 ORDER BY first_seq"),
    }
}

/// The chain's head just before a row.
pub(crate) fn head_before(conn: &Connection, base: Base, first_seq: u64) -> Result<Head, StoreError> {
    let mut statement =
        conn.prepare_cached("SELECT last_seq, hash FROM journal WHERE first_seq < ?1 ORDER BY first_seq DESC LIMIT 1")?;
    let found = statement
        .query_row([first_seq.cast_signed()], |r| Ok((r.get::<_, i64>(0)?.cast_unsigned(), r.get::<_, [u8; 32]>(1)?)))
        .optional()?;
    Ok(found.map_or(base.head, |(seq, hash)| Head { log: base.head.log, seq, hash: EntryHash(hash) }))
}

/// What a store begins from.
pub(crate) struct Recovered {
    pub(crate) head: Head,
    pub(crate) snapshot: Option<Snapshot>,
}

pub(crate) fn recover(conn: &Connection) -> Result<Recovered, StoreError> {
    let base = base(conn)?;
    let snapshot = snapshot::load(conn, base.head.log, base.head.seq)?;
    let from = snapshot.as_ref().map_or(0, |s| s.seq.0).max(base.head.seq).saturating_add(1);
    let head = verify_tail(conn, base, from)?;
    match &snapshot {
        Some(s) if s.seq.0 > head.seq => {
            Err(Broken::Gap { expected: head.seq.saturating_add(1), found: s.seq.0.saturating_add(1) }.into())
        }
        _ => Ok(Recovered { head, snapshot }),
    }
}

/// Checks from the row that holds `from` (or from the last row, where that is earlier) to the end.
fn verify_tail(conn: &Connection, base: Base, from: u64) -> Result<Head, StoreError> {
    let last: Option<i64> = conn.query_row("SELECT max(first_seq) FROM journal", [], |r| r.get(0))?;
    let Some(last) = last else { return Ok(base.head) };
    let start = row_at(conn, from)?.map_or(last, |row| row.first_seq.cast_signed().min(last));
    let mut verifier = Verifier::new(head_before(conn, base, start.cast_unsigned())?);
    let mut statement =
        conn.prepare(&format!("SELECT {COLUMNS} FROM journal WHERE first_seq >= ?1 ORDER BY first_seq"))?;
    let mut rows = statement.query([start])?;
    while let Some(row) = rows.next()? {
        Row::read(row)?.verify(&mut verifier)?;
    }
    Ok(verifier.head())
}

/// The events after the snapshot, in order. Their chain was verified when the store opened; they are read row by row,
/// so that a long tail needs no memory. It ends at the event that was the last when the store opened.
pub struct Tail {
    conn: Connection,
    next_seq: u64,
    last_seq: u64,
    row: VecDeque<Event>,
}

impl Tail {
    pub(crate) fn new(dir: &Path, recovered: &Recovered) -> Result<Self, StoreError> {
        Ok(Self::reading(schema::open_for_reading(dir)?, recovered))
    }

    pub(crate) fn reading(conn: Connection, recovered: &Recovered) -> Self {
        let after = recovered.snapshot.as_ref().map_or(0, |s| s.seq.0);
        Self { conn, next_seq: after.saturating_add(1), last_seq: recovered.head.seq, row: VecDeque::new() }
    }

    fn read_row(&mut self) -> Result<(), StoreError> {
        let row = row_at(&self.conn, self.next_seq)?;
        let expected = self.next_seq;
        let row = row.filter(|r| r.first_seq <= expected).ok_or(Broken::Gap { expected, found: self.last_seq })?;
        let skip = usize::try_from(expected - row.first_seq).unwrap_or(usize::MAX);
        self.row = row.events()?.into_iter().skip(skip).collect();
        Ok(())
    }
}

impl Iterator for Tail {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next_seq > self.last_seq {
            return None;
        }
        if self.row.is_empty()
            && let Err(error) = self.read_row()
        {
            // Not asked again: the same error would come for ever.
            self.next_seq = u64::MAX;
            self.last_seq = 0;
            return Some(Err(error));
        }
        let event = self.row.pop_front()?;
        self.next_seq = self.next_seq.saturating_add(1);
        Some(Ok(event))
    }
}
