//! What a server is given of the world: clocks, chance, connections and a journal. [`Outside::real`] is the world as it
//! is; tests give one that is all their own, so that a run is the same every time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forbear_core::ids::ActionId;
use forbear_core::time::Wall;
use forbear_store::{LogId, OnDurable, Options, Reopened, Store, StoreError};

use crate::clock::Clock;
use crate::http::socket::{Dialler, Listener};
use crate::journal::Journal;
use crate::keys;

/// A journal that was opened, and what it gives back.
pub struct Opened {
    pub journal: Box<dyn Journal>,
    pub recovered: Reopened,
    pub log_id: LogId,
}

/// Opens the journal. It may wait for the disk.
pub type OpenJournal = Box<dyn FnOnce(Options, OnDurable) -> Result<Opened, StoreError> + Send>;

pub struct Outside {
    pub clock: Clock,
    pub chance: Chance,
    pub listener: Listener,
    pub dialler: Dialler,
    pub open_journal: OpenJournal,
}

impl Outside {
    #[must_use]
    pub fn real(listener: impl Into<Listener>) -> Self {
        let open = |options, on_durable| {
            let opened = Store::open(options, on_durable)?;
            let forbear_store::Opened { store, snapshot, tail, last_seq, log_id } = opened;
            Ok(Opened { journal: Box::new(store), recovered: Reopened { snapshot, tail, last_seq }, log_id })
        };
        Self {
            clock: Clock::default(),
            chance: Chance::System,
            listener: listener.into(),
            dialler: Dialler::Tcp,
            open_journal: Box::new(open),
        }
    }
}

/// Where ids and the seed of jitter come from. Keys and nonces are always the system's.
#[derive(Debug, Clone)]
pub enum Chance {
    System,
    /// Ids in turn; the number counts up.
    Seeded {
        seed: u64,
        turn: Arc<AtomicU64>,
    },
}

impl Chance {
    /// # Errors
    /// When the system gives no randomness.
    pub fn seed(&self) -> Result<u64, getrandom::Error> {
        match self {
            Self::System => {
                let mut seed = [0; 8];
                getrandom::fill(&mut seed)?;
                Ok(u64::from_le_bytes(seed))
            }
            Self::Seeded { seed, .. } => Ok(*seed),
        }
    }

    /// 48 bits of wall time, 80 of randomness.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn action_id(&self, wall: Wall) -> Result<ActionId, getrandom::Error> {
        let mut bytes = [0u8; 16];
        match self {
            Self::System => keys::random(&mut bytes[6..])?,
            Self::Seeded { turn, .. } => {
                bytes[8..].copy_from_slice(&turn.fetch_add(1, Ordering::Relaxed).to_be_bytes());
            }
        }
        bytes[..6].copy_from_slice(&wall.0.to_be_bytes()[2..]);
        Ok(ActionId(u128::from_be_bytes(bytes)))
    }
}
