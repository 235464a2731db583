//! What it costs to make a small append durable where the data lies: the unit in which a journaled write is judged.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use super::BenchError;
use super::histogram::Histogram;

const FLUSHES: usize = 200;
/// A page of a write-ahead log.
const APPEND: [u8; 4096] = [0x5a; 4096];

/// The median of so many appends, each with its own `fdatasync`.
pub(super) fn measured_ns(directory: &Path) -> Result<u64, BenchError> {
    let io = || BenchError::io("measuring a flush");
    let mut file = OpenOptions::new().create(true).append(true).open(directory.join("flushes")).map_err(io())?;
    let mut taken = Histogram::default();
    for _ in 0..FLUSHES {
        let begun = Instant::now();
        file.write_all(&APPEND).and_then(|()| file.sync_data()).map_err(io())?;
        taken.record_ns(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(taken.per_mille_ns(500))
}
