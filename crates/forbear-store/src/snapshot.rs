//! Snapshots: the core's open state as of a sequence number, so that recovery need not read the journal from its
//! beginning. What is in them is the caller's; here they are bytes with a digest.
//!
//! The newest two are kept: if the newest does not read back, the one before it and a longer tail give the same state.

use forbear_audit::chain::LogId;
use forbear_core::ids::Seq;
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::options::SNAPSHOT_BYTES_MAX;
use crate::schema;

const DOMAIN: &[u8] = b"forbear-snapshot-v1\0";
const KEPT: i64 = 2;

/// State as of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The last event that is in it.
    pub seq: Seq,
    pub bytes: Vec<u8>,
}

fn digest(log: LogId, seq: u64, bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(log.0);
    hash.update(seq.to_be_bytes());
    hash.update(bytes);
    hash.finalize().into()
}

pub(crate) fn save(conn: &Connection, log: LogId, snapshot: &Snapshot) -> Result<(), StoreError> {
    let bytes = snapshot.bytes.len();
    if bytes > SNAPSHOT_BYTES_MAX {
        return Err(StoreError::TooLarge { what: "a snapshot", bytes, bytes_max: SNAPSHOT_BYTES_MAX });
    }
    let tx = schema::begin(conn)?;
    let digest = digest(log, snapshot.seq.0, &snapshot.bytes);
    tx.execute(
        "INSERT OR REPLACE INTO snapshots (seq, digest, state) VALUES (?1, ?2, ?3)",
        params![snapshot.seq.0.cast_signed(), digest, snapshot.bytes],
    )?;
    tx.execute(
        "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?1)",
        [KEPT],
    )?;
    tx.commit()?;
    Ok(())
}

/// The newest that reads back, or none where the journal is whole without one.
pub(crate) fn load(conn: &Connection, log: LogId, base_seq: u64) -> Result<Option<Snapshot>, StoreError> {
    let mut statement = conn.prepare("SELECT seq FROM snapshots ORDER BY seq DESC")?;
    let seqs = statement.query_map([], |r| r.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()?;
    for seq in seqs {
        match read(conn, log, seq.cast_unsigned()) {
            Ok(Some(snapshot)) if snapshot.seq.0 >= base_seq => return Ok(Some(snapshot)),
            Ok(_) => tracing::warn!(seq, "a snapshot is not what was saved; going on with the one before it"),
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::warn!(seq, %error, "a snapshot cannot be read; going on with the one before it");
            }
            Err(error) => return Err(error),
        }
    }
    if base_seq == 0 { Ok(None) } else { Err(StoreError::SnapshotLost { base_seq }) }
}

/// None where it is not what was saved.
fn read(conn: &Connection, log: LogId, seq: u64) -> Result<Option<Snapshot>, StoreError> {
    let (told, bytes): ([u8; 32], Vec<u8>) =
        conn.query_row("SELECT digest, state FROM snapshots WHERE seq = ?1", [seq.cast_signed()], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })?;
    Ok((told == digest(log, seq, &bytes)).then_some(Snapshot { seq: Seq(seq), bytes }))
}

/// Before which event nothing is needed by any kept snapshot; none where there is no snapshot.
pub(crate) fn oldest_seq(conn: &Connection) -> Result<Option<u64>, StoreError> {
    let seq: Option<i64> = conn.query_row("SELECT min(seq) FROM snapshots", [], |r| r.get(0)).optional()?.flatten();
    Ok(seq.map(i64::cast_unsigned))
}
