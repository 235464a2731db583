//! What can go wrong with the store: what happened, apart from what to do. Every code has its page in `docs/errors/`.

use std::path::{Path, PathBuf};

use forbear_audit::chain::Broken;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("another server uses {}", .dir.display())]
    InUse { dir: PathBuf },
    #[error("the store has schema version {found}, this program knows up to {known}")]
    Newer { found: u32, known: u32 },
    #[error("the journal does not verify from event {} on: {why}", .why.first_bad_seq())]
    Broken { why: Broken },
    #[error("the database is damaged: {message}")]
    Damaged { message: String },
    #[error("no space is left for the journal: {message}")]
    Full { message: String },
    #[error("the journal cannot be read or written: {message}")]
    Io { message: String },
    #[error("event {seq} cannot be read: {message}")]
    Unreadable { seq: u64, message: String },
    #[error("{} is not a store of Forbear", .path.display())]
    Foreign { path: PathBuf },
    #[error("{what} has {bytes} bytes, at most {bytes_max} are stored")]
    TooLarge { what: &'static str, bytes: usize, bytes_max: usize },
    #[error("the store accepts nothing: {message}")]
    Stopped { message: String },
    #[error("there is no store in {}", .dir.display())]
    Missing { dir: PathBuf },
    #[error("no snapshot can be read, and the events before {base_seq} are no longer kept")]
    SnapshotLost { base_seq: u64 },
    #[error("the database stays locked by another program: {message}")]
    Busy { message: String },
    #[error("event {found} was given where {expected} comes next")]
    OutOfOrder { expected: u64, found: u64 },
    #[error("{} holds log {found}, it was made for log {expected}", .dir.display())]
    OtherLog { dir: PathBuf, expected: String, found: String },
}

/// How an append failed, as far as the core has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    Full,
    Io,
    Corrupt,
    TooLarge,
}

impl StoreError {
    /// The stable code, with a page of its own.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "FB2001",
            Self::Newer { .. } => "FB2002",
            Self::Broken { .. } => "FB2003",
            Self::Damaged { .. } => "FB2004",
            Self::Full { .. } => "FB2005",
            Self::Io { .. } => "FB2006",
            Self::Unreadable { .. } => "FB2007",
            Self::Foreign { .. } => "FB2008",
            Self::TooLarge { .. } => "FB2009",
            Self::Stopped { .. } => "FB2010",
            Self::Missing { .. } => "FB2011",
            Self::SnapshotLost { .. } => "FB2012",
            Self::Busy { .. } => "FB2013",
            Self::OutOfOrder { .. } => "FB2014",
            Self::OtherLog { .. } => "FB2015",
        }
    }

    /// One line for the person who meets it.
    #[must_use]
    pub const fn what_to_do(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "Stop the other server, or give this one another data directory.",
            Self::Newer { .. } => "Use the newer program, or the copy that it made before it migrated the store.",
            Self::Broken { .. } | Self::Damaged { .. } | Self::SnapshotLost { .. } => {
                "Keep the directory as it is, check the disk, and restore the last good copy into another directory."
            }
            Self::Full { .. } => {
                "Free space on the disk or raise the limit: a server that runs goes on by itself then, one that was refused its first start is started again."
            }
            Self::Io { .. } => {
                "Check the disk and the directory's permissions: a server that runs tries again by itself, one that ended is started again."
            }
            Self::Unreadable { .. } => "Use the program version that wrote the event, or a newer one.",
            Self::Foreign { .. } => "Give a directory that is empty or that Forbear made.",
            Self::TooLarge { .. } => "Lower `body_bytes_max`, or report this as a fault if no body is concerned.",
            Self::Stopped { .. } => "Look at the failure that was reported before; the store opens again after it.",
            Self::Missing { .. } => "Start `forbear serve` once with this data directory, or name the right one.",
            Self::Busy { .. } => "Close the other program that has the database open for writing.",
            Self::OtherLog { .. } => {
                "The journal was removed or replaced: restore it, or remove the rest of the directory to begin a new one."
            }
            Self::OutOfOrder { .. } => "This is a fault of Forbear's own: report it with the log.",
        }
    }

    #[must_use]
    pub const fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Full { .. } => FailureKind::Full,
            Self::TooLarge { .. } => FailureKind::TooLarge,
            Self::Broken { .. }
            | Self::Damaged { .. }
            | Self::Unreadable { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::SnapshotLost { .. }
            | Self::OtherLog { .. }
            | Self::OutOfOrder { .. } => FailureKind::Corrupt,
            Self::InUse { .. } | Self::Io { .. } | Self::Stopped { .. } | Self::Missing { .. } | Self::Busy { .. } => {
                FailureKind::Io
            }
        }
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("{}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full { message },
            _ => Self::Io { message },
        }
    }
}

impl From<Broken> for StoreError {
    fn from(why: Broken) -> Self {
        Self::Broken { why }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        let message = error.to_string();
        // The log's index is a file too, and this says that there was no room to make it.
        if error.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE) {
            return Self::Full { message };
        }
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::Full { message },
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy { message },
            Some(Code::TooBig) => Self::Damaged { message },
            Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::TypeMismatch | Code::ConstraintViolation) => {
                Self::Damaged { message }
            }
            Some(_) => Self::Io { message },
            // Not from SQLite: a column of another type or length than ours.
            None => Self::Damaged { message },
        }
    }
}
