//! What the shard asks of a journal. The server's is [`Store`]; tests put one before it whose disk fails and lingers when
//! they say so.

use forbear_core::ids::{ActionId, Seq};
use forbear_core::time::Wall;
use forbear_store::{AppendError, Batch, Reopened, Retained, Store, StoreError};

pub trait Journal: Send + Sync {
    /// Takes a batch, in the order of calls, and never waits for the disk.
    ///
    /// # Errors
    /// When nothing is taken; the caller's state must not go on as if it had been.
    fn append(&self, batch: Batch) -> Result<(), AppendError>;

    /// Why it takes nothing, where that is known.
    fn failure(&self) -> Option<StoreError>;

    /// Forgets an action's sealed content some time soon.
    ///
    /// # Errors
    /// When nothing is taken; the content stays sealed.
    fn delete_content(&self, action: ActionId) -> Result<(), AppendError>;

    /// Saves state as of `seq` and waits until it is durable.
    ///
    /// # Errors
    /// When it is not; the next start replays more.
    fn save_snapshot(&self, seq: Seq, bytes: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes whole days beyond the retention, but nothing from `oldest_needed` on.
    ///
    /// # Errors
    /// When it could not be done; it may be asked again.
    fn retain(&self, now: Wall, oldest_needed: Seq) -> Result<Retained, StoreError>;

    /// Opens again after a failure.
    ///
    /// # Errors
    /// When it still cannot be written.
    fn reopen(&self) -> Result<Reopened, StoreError>;

    /// What it takes on the disk, as of the last commit.
    fn usage_bytes(&self) -> u64;

    /// Makes all that was appended durable and ends.
    ///
    /// # Errors
    /// When not all of it is.
    fn flush_and_close(&self) -> Result<Seq, StoreError>;

    /// Whether calls that wait are made where waiting holds up nobody. One that takes no time may be asked in place, so
    /// that everything happens in one order.
    fn waits(&self) -> bool;
}

impl Journal for Store {
    fn append(&self, batch: Batch) -> Result<(), AppendError> {
        Self::append(self, batch)
    }

    fn failure(&self) -> Option<StoreError> {
        Self::failure(self)
    }

    fn delete_content(&self, action: ActionId) -> Result<(), AppendError> {
        Self::delete_content(self, action)
    }

    fn save_snapshot(&self, seq: Seq, bytes: Vec<u8>) -> Result<(), StoreError> {
        Self::save_snapshot(self, seq, bytes)
    }

    fn retain(&self, now: Wall, oldest_needed: Seq) -> Result<Retained, StoreError> {
        Self::retain(self, now, oldest_needed)
    }

    fn reopen(&self) -> Result<Reopened, StoreError> {
        Self::reopen(self)
    }

    fn usage_bytes(&self) -> u64 {
        Self::usage_bytes(self)
    }

    fn flush_and_close(&self) -> Result<Seq, StoreError> {
        Self::flush_and_close(self)
    }

    fn waits(&self) -> bool {
        true
    }
}
