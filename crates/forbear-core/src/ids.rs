//! Names of things. Ids are given by the driver (the core has no randomness) and order by time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One logical effect. 48 bits of Unix milliseconds, then 80 random bits; written as `act_` and 26 characters of
/// Crockford's base 32, so that text order is time order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u128);

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const HEX: &[u8; 16] = b"0123456789abcdef";
const PREFIX: &str = "act_";

/// An id as it is written, without a place of its own in memory.
#[derive(Debug, Clone, Copy)]
pub struct ActionText([u8; 30]);

impl ActionText {
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl ActionId {
    #[must_use]
    pub fn text(self) -> ActionText {
        let mut text = [0u8; 30];
        let (prefix, digits) = text.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX.as_bytes());
        let mut rest = self.0;
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        ActionText(text)
    }
}

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

/// The text was not an action id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an action id is `act_` and 26 characters of Crockford's base 32")]
pub struct NotAnId;

impl FromStr for ActionId {
    type Err = NotAnId;

    fn from_str(s: &str) -> Result<Self, NotAnId> {
        let digits = s.strip_prefix(PREFIX).filter(|d| d.len() == 26).ok_or(NotAnId)?;
        let mut value = 0u128;
        for (i, b) in digits.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|a| *a == b).ok_or(NotAnId)? as u128;
            if i == 0 && digit > 7 {
                return Err(NotAnId);
            }
            value = value << 5 | digit;
        }
        Ok(Self(value))
    }
}

impl Serialize for ActionId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.text().as_str())
    }
}

impl<'de> Deserialize<'de> for ActionId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A position in the journal. The first event is 1; 0 means "before everything".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// Which send of an action, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AttemptNo(pub u32);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Arc<str>);

        impl $name {
            #[must_use]
            pub fn new(s: &str) -> Self {
                Self(Arc::from(s))
            }
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(s: &str) -> Self {
                Self::new(s)
            }
        }
        impl From<String> for $name {
            fn from(s: String) -> Self {
                Self(Arc::from(s))
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d).map(|s| Self(Arc::from(s)))
            }
        }
    };
}

name!(
    /// What an agent was asked to achieve; owns a retry budget.
    TaskId
);
name!(
    /// One execution of a task.
    RunId
);
name!(
    /// Whose agents they are: the account of the credential where nothing else says.
    TenantId
);
name!(
    /// A quota domain: `provider/account`, the account being a keyed digest of the credential.
    ScopeId
);
name!(
    /// An upstream API known by name.
    ProviderName
);

impl ScopeId {
    /// The name of the provider whose quota it is.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(provider, _)| provider)
    }
}

name!(
    /// A route template, `POST /v1/charges/{id}`; never a path with identifiers in it.
    Route
);
name!(
    /// A request class, by its name in the policy.
    ClassName
);
name!(
    /// The policy in force (contracts included): the first 8 bytes of its digest, in hex.
    PolicyMark
);
name!(
    /// An idempotency key by the value that two are compared by: without a structured field's quotes.
    Key
);

/// SHA-256 of something, written in hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    fn hex(&self) -> [u8; 64] {
        let mut text = [0u8; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let bad = || serde::de::Error::custom("a digest is 64 hex digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut out = [0u8; 32];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_ids_read_back_and_order_as_text() {
        let (a, b) = (ActionId(1 << 80), ActionId(u128::MAX));
        assert_eq!(a.to_string().parse(), Ok(a));
        assert_eq!(b.to_string().parse(), Ok(b));
        assert!(a.to_string() < b.to_string());
        for bad in ["", "act_", "act_zzzzzzzzzzzzzzzzzzzzzzzzzz", "act_0123456789abcdefghijklmnop", "x"] {
            assert_eq!(bad.parse::<ActionId>(), Err(NotAnId), "{bad}");
        }
    }
}
