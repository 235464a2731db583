//! The database: how it is opened, by whom, and which version it has.
//!
//! Promises: one server a directory (an exclusive lock on a file that lies beside the database); an older schema is
//! copied first and migrated forward, one numbered step a transaction; a newer one, and a database that is not ours, are
//! refused untouched.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forbear_audit::chain::LogId;
use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;

const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_journal.sql")];
/// "FBR1", in the header of the file.
const APPLICATION_ID: i32 = 0x4642_5231;
const FILE: &str = "journal.db";
const LOCK_FILE: &str = "journal.lock";
/// How long a statement waits for another program that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The write-ahead log is cut back to this after a checkpoint.
const WAL_BYTES_KEPT: i64 = 64 << 20;
/// A log id in hex, and some room to say what stands there instead.
const LOG_NAME_BYTES_MAX: u64 = 64;
const PROBE_BYTES: i64 = 256 << 10;
const STATEMENTS_CACHED: usize = 64;

pub(crate) fn database_path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

pub(crate) fn wal_path(dir: &Path) -> PathBuf {
    dir.join(format!("{FILE}-wal"))
}

/// Makes the directory and takes it for this process. The lock goes with the returned file, also when the process dies.
pub(crate) fn claim(dir: &Path) -> Result<File, StoreError> {
    make_private_dir(dir).map_err(|e| StoreError::io(dir, &e))?;
    let path = dir.join(LOCK_FILE);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|e| StoreError::io(&path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(StoreError::io(&path, &e)),
    }
}

/// Holds the directory to its log. The lock file names it from the first time on, so that a journal that was emptied,
/// lost or swapped is not quietly followed by another one.
pub(crate) fn hold_to_log(mut claim: &File, dir: &Path, log: LogId) -> Result<(), StoreError> {
    let path = dir.join(LOCK_FILE);
    let io = |e| StoreError::io(&path, &e);
    let mut expected = String::new();
    claim.rewind().map_err(io)?;
    claim.take(LOG_NAME_BYTES_MAX).read_to_string(&mut expected).map_err(io)?;
    let (expected, found) = (expected.trim_end().to_owned(), log.to_string());
    // Less than a whole name is one that a crash cut.
    if expected.len() < found.len() {
        claim.set_len(0).and_then(|()| claim.rewind()).map_err(io)?;
        claim.write_all(format!("{found}\n").as_bytes()).map_err(io)?;
        return claim.sync_all().and_then(|()| sync_dir(dir)).map_err(io);
    }
    if expected == found { Ok(()) } else { Err(StoreError::OtherLog { dir: dir.to_owned(), expected, found }) }
}

/// A transaction that is a writer's from its first statement, so that no upgrade can be refused in its middle. Its own
/// statements are prepared once: every commit needs them. Dropped, it rolls back.
pub(crate) struct Writing<'c> {
    conn: &'c Connection,
    open: bool,
}

pub(crate) fn begin(conn: &Connection) -> Result<Writing<'_>, StoreError> {
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(Writing { conn, open: true })
}

impl Writing<'_> {
    pub(crate) fn commit(mut self) -> Result<(), StoreError> {
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        self.open = false;
        Ok(())
    }
}

impl Deref for Writing<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.conn
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // Some failures have rolled back already.
        if self.open && !self.conn.is_autocommit() {
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}

fn make_private_dir(dir: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The writer's connection, at this program's schema.
pub(crate) fn open_for_writing(dir: &Path, pages_max: Option<u32>) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    make_private_file(&path).map_err(|e| StoreError::io(&path, &e))?;
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    prepare(&conn)?;
    let fresh = 0 == conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get::<_, i64>(0))?;
    if fresh {
        // Only before the first table does this take effect.
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
        conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let version = check_ours(&conn, &path)?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON")?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    if let Some(pages) = pages_max {
        // A pragma that answers with the limit in force.
        conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    migrate(&conn, dir, version, MIGRATIONS)?;
    Ok(conn)
}

/// A connection that can change nothing.
pub(crate) fn open_for_reading(dir: &Path) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    if !path.is_file() {
        return Err(StoreError::Missing { dir: dir.to_owned() });
    }
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    prepare(&conn)?;
    let version = check_ours(&conn, &path)?;
    if version == 0 {
        return Err(StoreError::Missing { dir: dir.to_owned() });
    }
    Ok(conn)
}

/// The only connection to a database: it has the log's index in memory, and so needs no room on the disk to read.
pub(crate) fn open_alone(dir: &Path) -> Result<Connection, StoreError> {
    let path = database_path(dir);
    let conn = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Before the first look at the log: later it would change nothing.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    prepare(&conn)?;
    let found = check_ours(&conn, &path)?;
    // Only what needs no migration, which would have to write.
    if found == version_after(MIGRATIONS) { Ok(conn) } else { Err(StoreError::Missing { dir: dir.to_owned() }) }
}

/// Whether the disk takes a durable write of some size again: what a store that failed must show before it goes on, so
/// that it does not fail at the first append once more.
pub(crate) fn probe(conn: &Connection) -> Result<(), StoreError> {
    conn.execute("INSERT OR REPLACE INTO probe VALUES (1, randomblob(?1))", [PROBE_BYTES])?;
    conn.execute("DELETE FROM probe", [])?;
    Ok(())
}

fn prepare(conn: &Connection) -> Result<(), StoreError> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    conn.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY")?;
    Ok(())
}

fn make_private_file(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn check_ours(conn: &Connection, path: &Path) -> Result<u32, StoreError> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |r| r.get(0))?;
    if id != APPLICATION_ID {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let found: u32 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    let known = version_after(MIGRATIONS);
    if found > known { Err(StoreError::Newer { found, known }) } else { Ok(found) }
}

fn version_after(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

fn migrate(conn: &Connection, dir: &Path, from: u32, migrations: &[&str]) -> Result<(), StoreError> {
    let to = version_after(migrations);
    if 0 < from && from < to {
        copy_aside(conn, dir, from)?;
    }
    for (version, step) in (1..=to).zip(migrations).skip(from as usize) {
        conn.execute_batch(&format!("BEGIN IMMEDIATE; {step}; PRAGMA user_version = {version}; COMMIT"))?;
    }
    Ok(())
}

/// `journal.v1.db`: what the older program can still open.
fn copy_aside(conn: &Connection, dir: &Path, version: u32) -> Result<(), StoreError> {
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let (part, whole) = (dir.join(format!("journal.v{version}.part")), dir.join(format!("journal.v{version}.db")));
    let copy = || -> std::io::Result<()> {
        std::fs::copy(database_path(dir), &part)?;
        File::open(&part)?.sync_all()?;
        std::fs::rename(&part, &whole)?;
        sync_dir(dir)
    };
    copy().map_err(|e| StoreError::io(&whole, &e))
}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(not(unix))]
fn sync_dir(_: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_keeps_a_copy_of_what_was() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_for_writing(dir.path(), None).unwrap();
        let steps = [MIGRATIONS[0], "ALTER TABLE log ADD COLUMN note TEXT"];
        migrate(&conn, dir.path(), 1, &steps).unwrap();
        assert_eq!(conn.pragma_query_value(None, "user_version", |r| r.get::<_, u32>(0)).unwrap(), 2);
        conn.prepare("SELECT note FROM log").unwrap();
        let copy = Connection::open(dir.path().join("journal.v1.db")).unwrap();
        assert_eq!(copy.pragma_query_value(None, "user_version", |r| r.get::<_, u32>(0)).unwrap(), 1);
        assert!(copy.prepare("SELECT note FROM log").is_err());
    }

    #[test]
    fn a_failing_step_leaves_the_version_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_for_writing(dir.path(), None).unwrap();
        let steps = [MIGRATIONS[0], "CREATE TABLE made (x); INSERT INTO missing VALUES (1)"];
        assert!(migrate(&conn, dir.path(), 1, &steps).is_err());
        drop(conn);
        let conn = open_for_writing(dir.path(), None).unwrap();
        assert_eq!(conn.pragma_query_value(None, "user_version", |r| r.get::<_, u32>(0)).unwrap(), 1);
        assert!(conn.prepare("SELECT * FROM made").is_err());
    }
}
