//! Sealing of contents: what a request or an answer said, kept so that only the holder of the master key reads it.
//!
//! ```text
//! sealed = version      1 byte, 1
//!        ‖ key id       8 bytes: which master key, without telling anything of it
//!        ‖ nonce       24 bytes, random, from the caller
//!        ‖ ciphertext   as long as the content
//!        ‖ tag         16 bytes
//! ```
//!
//! XChaCha20-Poly1305 under the subkey `content`. The associated data are the domain `"forbear-seal-v1\0"`, the version,
//! the key id, the log id (16 bytes) and the action id (16 bytes): a sealed content that is moved to another action or
//! another log does not open.
//!
//! It promises that what opens is what was sealed, for that action of that log. It draws no randomness: a nonce must
//! never be given twice. It refuses to say more than "does not open" about what was changed.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::chain::LogId;

const VERSION: u8 = 1;
const SEAL_DOMAIN: &[u8] = b"forbear-seal-v1\0";
const SUBKEY_DOMAIN: &[u8] = b"forbear-subkey-v1\0";
const CONTENT: &str = "content";
const KEY_ID: &str = "key-id";

const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;

/// How much longer the sealed form is than the content.
pub const SEAL_OVERHEAD_BYTES: usize = HEAD_BYTES + TAG_BYTES;

/// The one secret that everything else is derived from. Wiped when dropped; shown nowhere.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

/// A key for one purpose. Knowing it tells nothing of the master key or of another purpose's key.
#[derive(Clone)]
pub struct Subkey {
    bytes: [u8; 32],
    /// Begun with the key, so that each message costs half as much.
    mac: Hmac<Sha256>,
}

/// 24 bytes that must never be used twice with one key: random ones are long enough.
#[derive(Debug, Clone, Copy)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

/// A sealed content, safe to store. Nothing but its length can be learned from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed(Vec<u8>);

/// What a content belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub log: LogId,
    /// The action's id, big-endian.
    pub action: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("a master key is 32 bytes, not {0}")]
    KeyLength(usize),
    #[error("the content is too long to seal")]
    TooLong,
    #[error("this is not a sealed content: it is shorter than its own head")]
    Short,
    #[error("the content is sealed in format {0}, this program reads 1: a newer program wrote it")]
    Version(u8),
    #[error("the content is sealed under another master key")]
    OtherKey,
    #[error("the content does not open: it was changed, or it belongs to another action or log")]
    DoesNotOpen,
}

impl MasterKey {
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn from_slice(bytes: &[u8]) -> Result<Self, SealError> {
        bytes.try_into().map(Self).map_err(|_| SealError::KeyLength(bytes.len()))
    }

    /// `HMAC-SHA256(master key, "forbear-subkey-v1\0" ‖ purpose)`. The purpose comes last, so that no two collide.
    #[must_use]
    pub fn subkey(&self, purpose: &str) -> Subkey {
        let mut mac = hmac(&self.0);
        mac.update(SUBKEY_DOMAIN);
        mac.update(purpose.as_bytes());
        let bytes = mac.finalize().into_bytes().into();
        Subkey { mac: hmac(&bytes), bytes }
    }

    fn key_id(&self) -> [u8; KEY_ID_BYTES] {
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&self.subkey(KEY_ID).bytes[..KEY_ID_BYTES]);
        id
    }
}

impl Subkey {
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// `HMAC-SHA256(this key, message)`: for names and keys that must be the same again for the same input.
    #[must_use]
    pub fn authenticate(&self, message: &[u8]) -> [u8; 32] {
        let mut mac = self.mac.clone();
        mac.update(message);
        mac.finalize().into_bytes().into()
    }
}

impl Sealed {
    /// Takes bytes that were stored; whether they open is seen by opening them.
    #[must_use]
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Seals contents with one master key: derives once, seals often.
#[derive(Clone)]
pub struct Sealer {
    cipher: XChaCha20Poly1305,
    key_id: [u8; KEY_ID_BYTES],
}

impl Sealer {
    #[must_use]
    pub fn new(master: &MasterKey) -> Self {
        let subkey = master.subkey(CONTENT);
        Self { cipher: XChaCha20Poly1305::new(subkey.as_bytes().into()), key_id: master.key_id() }
    }

    pub fn seal(&self, place: &Place, nonce: Nonce, content: &[u8]) -> Result<Sealed, SealError> {
        let aad = associated_data(self.key_id, place);
        let boxed = self
            .cipher
            .encrypt(&XNonce::from(nonce.0), Payload { msg: content, aad: &aad })
            .map_err(|_| SealError::TooLong)?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + boxed.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.key_id);
        sealed.extend_from_slice(&nonce.0);
        sealed.extend_from_slice(&boxed);
        Ok(Sealed(sealed))
    }

    pub fn open(&self, place: &Place, sealed: &Sealed) -> Result<Vec<u8>, SealError> {
        let (version, rest) = sealed.0.split_first().ok_or(SealError::Short)?;
        if *version != VERSION {
            return Err(SealError::Version(*version));
        }
        let (key_id, rest) = rest.split_first_chunk::<KEY_ID_BYTES>().ok_or(SealError::Short)?;
        let (nonce, boxed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Short)?;
        if *key_id != self.key_id {
            return Err(SealError::OtherKey);
        }
        let aad = associated_data(*key_id, place);
        self.cipher
            .decrypt(&XNonce::from(*nonce), Payload { msg: boxed, aad: &aad })
            .map_err(|_| SealError::DoesNotOpen)
    }
}

fn associated_data(key_id: [u8; KEY_ID_BYTES], place: &Place) -> Vec<u8> {
    [SEAL_DOMAIN, &[VERSION], &key_id, &place.log.0, &place.action].concat()
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC pads a short key with zeros to its block; done here, so that there is no length to fail on.
    let mut block = [0u8; 64];
    block[..32].copy_from_slice(key);
    let mac = Hmac::<Sha256>::new(&block.into());
    block.zeroize();
    mac
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Subkey {
    fn drop(&mut self) {
        // What was begun with it wipes itself.
        self.bytes.zeroize();
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

impl fmt::Debug for Subkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subkey(..)")
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: Place = Place { log: LogId([1; 16]), action: [2; 16] };
    const NONCE: Nonce = Nonce([3; 24]);

    fn sealer(byte: u8) -> Sealer {
        Sealer::new(&MasterKey::new([byte; 32]))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Computed with another implementation of HMAC and XChaCha20-Poly1305 over the layout in the module's header.
    #[test]
    fn the_format_is_fixed() {
        let master = MasterKey::new([9; 32]);
        assert_eq!(
            hex(master.subkey("content").as_bytes()),
            "8a0c7d39d72f2bc508b15fad8744fdbfb3f39f1c14cef7edbe825513cd507311"
        );
        let sealed = Sealer::new(&master).seal(&PLACE, NONCE, b"hello").unwrap();
        assert_eq!(
            hex(sealed.as_bytes()),
            "01609af446df40e4a3030303030303030303030303030303030303030303030303fd428ca0bfe3dd92ef464e4d4452256d22bf147550"
        );
    }

    #[test]
    fn opens_only_in_its_place_and_under_its_key() {
        let sealed = sealer(9).seal(&PLACE, NONCE, b"{\"amount\":5}").unwrap();
        assert_eq!(sealed.as_bytes().len(), 12 + SEAL_OVERHEAD_BYTES);
        assert_eq!(sealer(9).open(&PLACE, &sealed), Ok(b"{\"amount\":5}".to_vec()));
        let other_action = Place { action: [4; 16], ..PLACE };
        let other_log = Place { log: LogId([4; 16]), ..PLACE };
        assert_eq!(sealer(9).open(&other_action, &sealed), Err(SealError::DoesNotOpen));
        assert_eq!(sealer(9).open(&other_log, &sealed), Err(SealError::DoesNotOpen));
        assert_eq!(sealer(8).open(&PLACE, &sealed), Err(SealError::OtherKey));
    }

    #[test]
    fn another_version_and_a_stump_are_told_apart() {
        let mut bytes = sealer(9).seal(&PLACE, NONCE, b"x").unwrap().as_bytes().to_vec();
        for length in 0..HEAD_BYTES {
            assert_eq!(sealer(9).open(&PLACE, &Sealed::from_bytes(bytes[..length].to_vec())), Err(SealError::Short));
        }
        let stump = Sealed::from_bytes(bytes[..HEAD_BYTES + 3].to_vec());
        assert_eq!(sealer(9).open(&PLACE, &stump), Err(SealError::DoesNotOpen));
        bytes[0] = 2;
        assert_eq!(sealer(9).open(&PLACE, &Sealed::from_bytes(bytes)), Err(SealError::Version(2)));
    }

    #[test]
    fn keys_are_never_shown() {
        let master = MasterKey::new([0xab; 32]);
        let shown = format!("{master:?} {:?} {:?}", master.subkey("x"), Sealer::new(&master));
        assert_eq!(shown, "MasterKey(..) Subkey(..) Sealer(..)");
        assert!(matches!(MasterKey::from_slice(&[1; 31]), Err(SealError::KeyLength(31))));
    }

    #[test]
    fn purposes_do_not_share_keys() {
        let master = MasterKey::new([9; 32]);
        assert_ne!(master.subkey("content").as_bytes(), master.subkey("idempotency").as_bytes());
        assert_ne!(master.subkey("a").authenticate(b"m"), master.subkey("b").authenticate(b"m"));
        assert_eq!(master.subkey("a").authenticate(b"m"), master.subkey("a").authenticate(b"m"));
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_and_any_flipped_bit_does_not(
            content in prop::collection::vec(any::<u8>(), 0..200), nonce in any::<[u8; 24]>(),
            at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let sealed = sealer(9).seal(&PLACE, Nonce(nonce), &content).unwrap();
            prop_assert_eq!(sealer(9).open(&PLACE, &sealed), Ok(content));
            let mut bytes = sealed.as_bytes().to_vec();
            let i = at.index(bytes.len());
            bytes[i] ^= 1 << bit;
            prop_assert!(sealer(9).open(&PLACE, &Sealed::from_bytes(bytes)).is_err());
        }
    }
}
