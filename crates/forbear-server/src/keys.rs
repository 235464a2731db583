//! The master key and what is derived from it: the seal of contents, the fingerprint of credentials, made idempotency
//! keys. The key file is the owner's alone; it is made at the first start and never written anywhere else.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use forbear_audit::seal::{MasterKey, Nonce, Sealer, Subkey};
use forbear_core::ids::{ActionId, Key};
use zeroize::Zeroize as _;

/// The only permissions a secret file may have.
const OWNER_ONLY: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("FB3001: the master key {} cannot be used: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("FB3002: the master key {} may be read by others (mode {mode:03o}); `chmod 600` it", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("FB3003: the master key {} has {bytes} bytes instead of 32; restore it from a backup", path.display())]
    Length { path: PathBuf, bytes: usize },
    #[error("FB3004: no randomness could be had from the system: {0}")]
    Random(getrandom::Error),
    #[error(
        "FB3005: the master key {} is missing, and the journal has contents sealed with it; restore it from a backup",
        path.display()
    )]
    Lost { path: PathBuf },
}

/// What to do where there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing was ever sealed: make one.
    Make,
    /// Another one would open nothing that was sealed, and make other idempotency keys of the same words.
    Refuse,
}

/// What the gateway signs and seals with.
pub struct Keys {
    pub sealer: Sealer,
    accounts: Subkey,
    idempotency: Subkey,
}

impl Keys {
    /// Reads the master key, or makes one where there is none yet and none can have been.
    ///
    /// # Errors
    /// When the file cannot be read or made, is open to others, is no key, or is lost.
    pub fn load(path: &Path, missing: Missing) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        let mut bytes = match File::open(path) {
            Ok(file) => read_secret(path, file)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if missing == Missing::Refuse {
                    return Err(KeyError::Lost { path: path.to_owned() });
                }
                let mut fresh = vec![0; 32];
                getrandom::fill(&mut fresh).map_err(KeyError::Random)?;
                write_secret(path, &fresh).map_err(io)?;
                fresh
            }
            Err(e) => return Err(io(e)),
        };
        let length = bytes.len();
        let master = MasterKey::from_slice(&bytes);
        bytes.zeroize();
        let master = master.map_err(|_| KeyError::Length { path: path.to_owned(), bytes: length })?;
        Ok(Self {
            sealer: Sealer::new(&master),
            accounts: master.subkey("account-fingerprint"),
            idempotency: master.subkey("idempotency-key"),
        })
    }

    /// The account of a scope: a keyed digest of the credential, so that no one can test a guess without the key.
    #[must_use]
    pub fn account(&self, provider: &str, credential: &[u8]) -> String {
        let mut message = Vec::with_capacity(provider.len() + 1 + credential.len());
        message.extend_from_slice(provider.as_bytes());
        message.push(0);
        message.extend_from_slice(credential);
        let digest = self.accounts.authenticate(&message);
        message.zeroize();
        hex(&digest[..6])
    }

    /// A key that the agent's own words give again, also after the journal is lost.
    #[must_use]
    pub fn derived_key(&self, scope: &str, task: &str, reference: &str) -> Key {
        let parts = [b"reference".as_slice(), scope.as_bytes(), task.as_bytes(), reference.as_bytes()];
        self.key(&parts)
    }

    /// A key for one action only: it dies with the journal.
    #[must_use]
    pub fn made_key(&self, action: ActionId) -> Key {
        self.key(&[b"action", &action.0.to_be_bytes()])
    }

    /// Parts are length-prefixed, so that no two lists of them give the same message.
    fn key(&self, parts: &[&[u8]]) -> Key {
        let mut message = Vec::new();
        for part in parts {
            message.extend_from_slice(&(part.len() as u64).to_be_bytes());
            message.extend_from_slice(part);
        }
        Key::new(&format!("fb1-{}", hex(&self.idempotency.authenticate(&message)[..16])))
    }
}

/// Randomness fetched from the system at once, a page of small draws.
const DRAWS_BYTES: usize = 1024;

thread_local! {
    /// What was fetched, and how much of it was given away: no byte is given twice.
    static DRAWS: RefCell<([u8; DRAWS_BYTES], usize)> = const { RefCell::new(([0; DRAWS_BYTES], DRAWS_BYTES)) };
}

/// The system's randomness, for what is drawn with every call: asking the system each time costs more than the rest of
/// understanding a request. Not for keys.
///
/// # Errors
/// When the system gives no randomness.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    DRAWS.with_borrow_mut(|(drawn, given)| {
        if bytes.len() > DRAWS_BYTES {
            return getrandom::fill(bytes);
        }
        if bytes.len() > DRAWS_BYTES - *given {
            getrandom::fill(drawn)?;
            *given = 0;
        }
        bytes.copy_from_slice(&drawn[*given..*given + bytes.len()]);
        *given += bytes.len();
        Ok(())
    })
}

/// A nonce for one sealing.
///
/// # Errors
/// When the system gives no randomness.
pub fn nonce() -> Result<Nonce, KeyError> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
    Ok(Nonce(bytes))
}

/// Writes a new file that only its owner can read; fails where there is one. It is there whole or not at all, whatever
/// disk or power do.
pub fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let fresh = path.with_extension(format!("new.{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // Unlike a rename this puts itself in nobody's place.
        fs::hard_link(&fresh, path)
    })();
    // Not there where it could not be made; a copy that stays is as safe as the key.
    let _ = fs::remove_file(&fresh);
    written?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn read_secret(path: &Path, mut file: File) -> Result<Vec<u8>, KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let found = file.metadata().map_err(io)?;
    if !found.is_file() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidData, "it is not a file")));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::with_capacity(33);
    // One byte more than a key shows that it is none; no more of a wrong file is read.
    Read::take(&mut file, 33).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|nibble| char::from(HEX[usize::from(nibble)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/master.key");
        let first = Keys::load(&path, Missing::Make).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        assert_eq!(write_secret(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let again = Keys::load(&path, Missing::Refuse).unwrap();
        assert_eq!(first.account("p", b"secret"), again.account("p", b"secret"));
        assert_ne!(first.account("p", b"secret"), first.account("q", b"secret"));
        let task = "t";
        assert_eq!(first.derived_key("s", task, "r"), again.derived_key("s", task, "r"));
        assert_ne!(first.derived_key("s", task, "r"), first.derived_key("s", task, "r2"));
        assert_ne!(first.derived_key("ab", task, "c"), first.derived_key("a", "bt", "c"));
    }

    #[test]
    fn a_lost_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        assert!(matches!(Keys::load(&path, Missing::Refuse), Err(KeyError::Lost { .. })));
        assert!(!path.exists());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        Keys::load(&path, Missing::Make).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(Keys::load(&path, Missing::Make), Err(KeyError::Open { mode: 0o640, .. })));
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        fs::write(&path, b"short").unwrap();
        assert!(matches!(Keys::load(&path, Missing::Make), Err(KeyError::Length { bytes: 5, .. })));
    }
}
