//! Retention: whole UTC days of the journal are forgotten from its beginning, in small steps between groups, so that
//! nobody waits for it.
//!
//! The chain goes on to verify: the hash that the oldest kept row stands on becomes the log's base, in the transaction
//! that deletes what was before. A day stays when an open action, or a kept snapshot's tail, needs any of it. What is
//! deleted is overwritten, and the write-ahead log that may still hold it is cut at the end.

use forbear_core::ids::Seq;
use forbear_core::time::Wall;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::StoreError;
use crate::row::utc_day;
use crate::{schema, snapshot};

/// Journal rows of one step.
const STEP_ROWS_MAX: i64 = 256;
/// Actions of one step.
const STEP_ACTIONS_MAX: i64 = 2_000;
/// Of rows, and of contents, in one step: all of it is overwritten.
const STEP_BYTES_MAX: i64 = 4 << 20;
/// Pages given back to the file system in one step.
const STEP_PAGES_MAX: i64 = 1_024;
const DAY_MS: u128 = 86_400_000;
/// The time in an id has 48 bits.
const ID_TIME_MAX: u128 = (1 << 48) - 1;

/// What retention has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    pub rows: u64,
    pub actions: u64,
}

/// A run of steps. Nothing is remembered between them but how much was done: each looks again.
#[derive(Debug)]
pub(crate) struct Retention {
    pub(crate) now: Wall,
    pub(crate) oldest_needed: Seq,
    pub(crate) done: Retained,
}

impl Retention {
    /// One step; `true` when nothing is left to do.
    pub(crate) fn step(&mut self, conn: &Connection, retention_days: u32) -> Result<bool, StoreError> {
        let cut_day = self.cut_day(conn, retention_days)?;
        let tx = schema::begin(conn)?;
        let rows = forget_rows(&tx, cut_day)?;
        let actions = forget_actions(&tx, cut_day)?;
        tx.commit()?;
        self.done.rows += rows;
        self.done.actions += actions;
        let free_pages: i64 = conn.pragma_query_value(None, "freelist_count", |r| r.get(0))?;
        if free_pages > 0 {
            drain(conn, &format!("PRAGMA incremental_vacuum({STEP_PAGES_MAX})"))?;
        }
        let idle = rows == 0 && actions == 0 && free_pages <= STEP_PAGES_MAX;
        if idle && self.done != Retained::default() {
            drain(conn, "PRAGMA wal_checkpoint(TRUNCATE)")?;
        }
        Ok(idle)
    }

    /// The first day that stays.
    fn cut_day(&self, conn: &Connection, retention_days: u32) -> Result<i64, StoreError> {
        // Without a snapshot every event is needed.
        let Some(snapshot_seq) = snapshot::oldest_seq(conn)? else { return Ok(i64::MIN) };
        let needed = self.oldest_needed.0.min(snapshot_seq.saturating_add(1));
        let needed_day: Option<i64> = conn
            .query_row("SELECT min(day) FROM journal WHERE last_seq >= ?1", [needed.cast_signed()], |r| r.get(0))
            .optional()?
            .flatten();
        let cut = utc_day(self.now).saturating_sub(i64::from(retention_days));
        Ok(needed_day.map_or(cut, |day| day.min(cut)))
    }
}

/// Deletes rows from the beginning up to the first that stays, and moves the base with them.
fn forget_rows(tx: &Connection, cut_day: i64) -> Result<u64, StoreError> {
    let mut statement =
        tx.prepare_cached("SELECT last_seq, hash, day, length(events) FROM journal ORDER BY first_seq LIMIT ?1")?;
    let mut rows = statement.query([STEP_ROWS_MAX])?;
    let (mut base, mut bytes) = (None::<(i64, [u8; 32])>, 0);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(2)? >= cut_day || bytes >= STEP_BYTES_MAX {
            break;
        }
        base = Some((row.get(0)?, row.get(1)?));
        bytes += row.get::<_, i64>(3)?;
    }
    drop(rows);
    let Some((seq, hash)) = base else { return Ok(0) };
    tx.execute("UPDATE log SET base_seq = ?1, base_hash = ?2", params![seq, hash])?;
    let deleted = tx.execute("DELETE FROM journal WHERE last_seq <= ?1 AND first_seq <= ?1", [seq])?;
    Ok(deleted as u64)
}

/// Deletes actions all of whose events are gone, with their contents. Ids order by time, so only old ones are looked at.
fn forget_actions(tx: &Connection, cut_day: i64) -> Result<u64, StoreError> {
    let Ok(cut_day) = u128::try_from(cut_day) else { return Ok(0) };
    let id_end = ((cut_day * DAY_MS).min(ID_TIME_MAX) << 80).to_be_bytes();
    let base_seq: i64 = tx.query_row("SELECT base_seq FROM log", [], |r| r.get(0))?;
    let mut statement = tx.prepare_cached(
        "SELECT id, coalesce(length(sealed), 0) FROM actions LEFT JOIN contents ON action = id
         WHERE id < ?1 AND last_seq <= ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut rows = statement.query(params![id_end, base_seq, STEP_ACTIONS_MAX])?;
    let (mut last, mut bytes) = (None::<[u8; 16]>, 0);
    while let Some(row) = rows.next()?
        && bytes < STEP_BYTES_MAX
    {
        last = Some(row.get(0)?);
        bytes += row.get::<_, i64>(1)?;
    }
    drop(rows);
    let Some(last) = last else { return Ok(0) };
    let gone = "SELECT id FROM actions WHERE id <= ?1 AND last_seq <= ?2";
    tx.execute(&format!("DELETE FROM contents WHERE action IN ({gone})"), params![last, base_seq])?;
    let deleted = tx.execute(&format!("DELETE FROM actions WHERE id IN ({gone})"), params![last, base_seq])?;
    Ok(deleted as u64)
}

/// Runs a pragma to its end: some work only as their rows are asked for.
pub(crate) fn drain(conn: &Connection, pragma: &str) -> Result<(), StoreError> {
    let mut statement = conn.prepare(pragma)?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
