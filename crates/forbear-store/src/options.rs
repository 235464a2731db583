//! What bounds the store, each with its default.

use std::path::PathBuf;

/// How the store behaves. [`Options::new`] gives the default of everything but the place.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of the journal; made (for the owner only) where it is missing.
    pub dir: PathBuf,
    /// Where [`Progress::Durable`](crate::Progress) begins to say `over_limit`. The store itself goes on, so that what
    /// must be recorded of actions under way can be.
    pub store_bytes_max: u64,
    /// Whole UTC days that are kept.
    pub retention_days: u32,
    /// Of one transaction and of one journal row, as lines. At the bound a further row or transaction is begun.
    pub group_bytes_max: usize,
    /// How long a batch that does not wake the writer may lie in memory.
    pub behind_flush_ms: u64,
    /// How much of such batches may lie in memory before the writer is woken after all.
    pub behind_bytes_max: usize,
    /// What may lie in memory undurable. At the bound `append` refuses.
    pub outgoing_bytes_max: usize,
    /// A hard limit on the database file, in pages of 4,096 bytes, for a quota that is to hold whatever happens: at the
    /// bound an append fails as on a full disk.
    pub store_pages_max: Option<u32>,
}

/// The longest line that one event may be.
pub(crate) const EVENT_BYTES_MAX: usize = 1 << 20;
/// The most that [`Options::group_bytes_max`] may be.
pub(crate) const GROUP_BYTES_CAP: usize = 8 << 20;
/// The longest row that this program reads.
pub(crate) const ROW_BYTES_MAX: usize = GROUP_BYTES_CAP + EVENT_BYTES_MAX + 1;
/// One sealed content.
pub(crate) const CONTENT_BYTES_MAX: usize = 64 << 20;
/// One snapshot.
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 512 << 20;

impl Options {
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            store_bytes_max: 10 << 30,
            retention_days: 30,
            group_bytes_max: 1 << 20,
            behind_flush_ms: 10,
            behind_bytes_max: 256 << 10,
            outgoing_bytes_max: 64 << 20,
            store_pages_max: None,
        }
    }

    pub(crate) fn group_bytes(&self) -> usize {
        self.group_bytes_max.clamp(1, GROUP_BYTES_CAP)
    }
}
