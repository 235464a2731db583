//! The hash chain over the log's entries.
//!
//! ```text
//! entry_hash = SHA-256( "forbear-log-v1\0"   15 bytes: the domain, so that no other hash can be taken for this one
//!                     ‖ log id              16 bytes
//!                     ‖ seq                  8 bytes, big-endian
//!                     ‖ previous hash       32 bytes, all zero before entry 1
//!                     ‖ entry               the rest: the entry's bytes exactly as they are stored )
//! ```
//!
//! All parts before the entry have a fixed length and the entry comes last, so that two different inputs never hash the
//! same bytes. The log id keeps entries of one log out of another, the sequence number keeps them in place.
//!
//! It promises that a change, a removal or a swap of an entry before a recorded hash is found, and names the first
//! entry that cannot be vouched for. It cannot see a cut tail: that takes a head that was noted elsewhere.

use std::fmt;

use sha2::{Digest, Sha256};

const DOMAIN: &[u8; 15] = b"forbear-log-v1\0";

/// Which log: 16 random bytes, drawn when the log was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub [u8; 16]);

/// The hash of an entry, and through it of all before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryHash(pub [u8; 32]);

impl EntryHash {
    /// What stands before entry 1.
    pub const ORIGIN: Self = Self([0; 32]);
}

/// The hash of one entry.
#[must_use]
pub fn entry_hash(log: LogId, seq: u64, previous: EntryHash, entry: &[u8]) -> EntryHash {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    hash.update(log.0);
    hash.update(seq.to_be_bytes());
    hash.update(previous.0);
    hash.update(entry);
    EntryHash(hash.finalize().into())
}

/// The end of a chain: what the next entry is hashed onto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub log: LogId,
    /// The last entry; 0 before the first.
    pub seq: u64,
    pub hash: EntryHash,
}

impl Head {
    /// The head of an empty log.
    #[must_use]
    pub const fn origin(log: LogId) -> Self {
        Self { log, seq: 0, hash: EntryHash::ORIGIN }
    }

    /// The head after one more entry.
    #[must_use]
    pub fn then(self, entry: &[u8]) -> Self {
        let seq = self.seq.saturating_add(1);
        Self { log: self.log, seq, hash: entry_hash(self.log, seq, self.hash, entry) }
    }
}

/// One entry as it is stored. Not every entry needs its hash recorded beside it.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub seq: u64,
    pub bytes: &'a [u8],
    pub recorded: Option<EntryHash>,
}

/// Why a chain does not hold, and from which entry on nothing can be vouched for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("entry {expected} is missing: after it comes {found}")]
    Gap { expected: u64, found: u64 },
    #[error("entries {first_bad} to {last_bad} are not what was recorded: their hash differs")]
    Changed { first_bad: u64, last_bad: u64 },
}

impl Broken {
    /// The first entry that cannot be vouched for.
    #[must_use]
    pub const fn first_bad_seq(&self) -> u64 {
        match self {
            Self::Gap { expected, .. } => *expected,
            Self::Changed { first_bad, .. } => *first_bad,
        }
    }
}

/// A check in progress. Entries are pushed in order; every recorded hash vouches for those since the one before.
#[derive(Debug, Clone)]
pub struct Verifier {
    head: Head,
    vouched: u64,
}

impl Verifier {
    /// Starts after `base`, which the caller trusts.
    #[must_use]
    pub const fn new(base: Head) -> Self {
        Self { head: base, vouched: base.seq }
    }

    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), Broken> {
        let expected = self.head.seq.saturating_add(1);
        if entry.seq != expected {
            return Err(Broken::Gap { expected, found: entry.seq });
        }
        self.head = self.head.then(entry.bytes);
        match entry.recorded {
            Some(recorded) if recorded != self.head.hash => {
                Err(Broken::Changed { first_bad: self.vouched.saturating_add(1), last_bad: entry.seq })
            }
            Some(_) => {
                self.vouched = entry.seq;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The last entry that a recorded hash vouches for.
    #[must_use]
    pub const fn vouched_seq(&self) -> u64 {
        self.vouched
    }

    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }
}

/// Checks a run of entries that follows `base` and gives the head after it.
pub fn verify<'a>(base: Head, entries: impl IntoIterator<Item = Entry<'a>>) -> Result<Head, Broken> {
    let mut verifier = Verifier::new(base);
    entries.into_iter().try_for_each(|entry| verifier.push(&entry))?;
    Ok(verifier.head())
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for EntryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: LogId = LogId([7; 16]);

    fn log_of(entries: &[Vec<u8>]) -> Vec<(u64, Vec<u8>, EntryHash)> {
        let mut head = Head::origin(LOG);
        let chain = entries.iter().map(|bytes| {
            head = head.then(bytes);
            (head.seq, bytes.clone(), head.hash)
        });
        chain.collect()
    }

    /// Every `every`-th entry, and the last, has its hash recorded.
    fn check(log: &[(u64, Vec<u8>, EntryHash)], every: usize) -> Result<Head, Broken> {
        let entries = log.iter().enumerate().map(|(i, (seq, bytes, hash))| Entry {
            seq: *seq,
            bytes,
            recorded: ((i + 1) % every == 0 || i + 1 == log.len()).then_some(*hash),
        });
        verify(Head::origin(LOG), entries)
    }

    /// Computed with another implementation of SHA-256 over the layout in the module's header.
    #[test]
    fn the_format_is_fixed() {
        let head = Head::origin(LOG).then(b"{\"v\":1}");
        assert_eq!(head.hash.to_string(), "fceaa63665abf9a5d9fe062008093a813341e9a2ccd0e96a5380b84e8698fe89");
        assert_eq!(head.then(b"").hash.to_string(), "5cb14b5058cacb7d5be196887ff4a9613f30a9f9add1c8f7650a558acd22f3af");
    }

    #[test]
    fn a_change_is_named_by_the_first_entry_in_doubt() {
        let mut log = log_of(&(0..10u8).map(|i| vec![i; 3]).collect::<Vec<_>>());
        assert_eq!(check(&log, 4).map(|h| h.seq), Ok(10));
        log[5].1[0] ^= 1;
        assert_eq!(check(&log, 1), Err(Broken::Changed { first_bad: 6, last_bad: 6 }));
        assert_eq!(check(&log, 4), Err(Broken::Changed { first_bad: 5, last_bad: 8 }));
    }

    #[test]
    fn a_missing_entry_and_a_foreign_one_are_seen() {
        let mut log = log_of(&[b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
        let foreign = verify(
            Head::origin(LogId([8; 16])),
            log.iter().map(|(seq, bytes, hash)| Entry { seq: *seq, bytes, recorded: Some(*hash) }),
        );
        assert_eq!(foreign, Err(Broken::Changed { first_bad: 1, last_bad: 1 }));
        log.remove(1);
        assert_eq!(check(&log, 1), Err(Broken::Gap { expected: 2, found: 3 }));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_found(
            entries in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..20),
            every in 1usize..6, at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let mut log = log_of(&entries);
            prop_assert!(check(&log, every).is_ok());
            let i = at.index(log.len());
            let j = at.index(log[i].1.len());
            log[i].1[j] ^= 1 << bit;
            let broken = check(&log, every).unwrap_err();
            prop_assert!(broken.first_bad_seq() <= log[i].0);
        }

        #[test]
        fn any_swap_is_found(n in 2usize..12, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
            let mut log = log_of(&(0..n).map(|i| vec![u8::try_from(i).unwrap()]).collect::<Vec<_>>());
            let (a, b) = (a.index(n), b.index(n));
            prop_assume!(a != b);
            let kept = (log[a].1.clone(), log[b].1.clone());
            (log[b].1, log[a].1) = kept;
            prop_assert!(check(&log, n).is_err());
        }
    }
}
