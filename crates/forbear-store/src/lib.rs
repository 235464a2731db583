//! The memory of Forbear: an append-only journal of [`Event`]s in SQLite, snapshots of the state that they make, sealed
//! contents, and a queryable table of actions that is rebuilt from the journal.
//!
//! ```text
//!   shard's lock ──append──▶ outgoing queue ──▶ writer thread ──▶ SQLite (WAL, FULL)
//!                            bounded, memory    one group = one transaction:
//!                                 ▲             rows + contents + projection
//!                                 │                       │
//!                              refuses                on_durable(seq | failure)
//!
//!   Reader (own connection, short read transactions) ──▶ actions, events, contents, verify
//! ```
//!
//! What it promises:
//! - The order of the journal is the order of `append`. What was reported durable is there after a crash, whole groups
//!   at a time; what was not may be missing, always as a suffix.
//! - `append` never blocks on the disk.
//! - After one failed append nothing more is accepted until [`Store::reopen`]: the caller's state and the journal's
//!   would differ.
//! - A store that is newer, damaged or in use is refused with a code and with what to do. Nothing is deleted but by
//!   retention and [`Store::delete_content`].
//!
//! [`Event`]: forbear_core::event::Event

mod error;
mod options;
mod outgoing;
mod projection;
mod reader;
mod recover;
mod retention;
mod routes_seen;
mod row;
mod schema;
mod snapshot;
mod store;
mod tally;
mod writer;

pub use error::{FailureKind, StoreError};
pub use forbear_audit::chain::{EntryHash, LogId};
pub use forbear_audit::seal::Sealed;
pub use options::Options;
pub use outgoing::{AppendError, Batch};
pub use projection::ActionRow;
pub use reader::{ActionFilter, ActionPage, ActionStory, Reader, Verified};
pub use recover::Tail;
pub use retention::Retained;
pub use routes_seen::RoutesSeen;
pub use snapshot::Snapshot;
pub use store::{OnDurable, Opened, Progress, Reopened, Store};
pub use tally::{Decided, Since, Sums, Tally, Waits, provider_of};
