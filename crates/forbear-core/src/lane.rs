//! The narrower scopes of an action, below its home: the model, the endpoint family, the method, as the contract cuts them.
//!
//! Whoever shares all of them stands in one lane, because one answer opens or closes all of it.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::ids::ScopeId;
use crate::pacer::Rate;

/// A scope below the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrow {
    /// `home/name` or `home/name=value`.
    pub scope: ScopeId,
    /// Attempts in flight at once, where that is bounded here.
    pub max_concurrent_requests: Option<u32>,
    pub rates: Arc<[Rate]>,
}

/// All narrower scopes of an action, broad to narrow. Two are one lane if their scopes are the same.
#[derive(Debug, Clone, Default)]
pub struct Lane(Option<Arc<[Narrow]>>);

impl Lane {
    #[must_use]
    pub fn new(narrow: Vec<Narrow>) -> Self {
        Self((!narrow.is_empty()).then(|| narrow.into()))
    }

    #[must_use]
    pub fn narrow(&self) -> &[Narrow] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn scopes(&self) -> impl Iterator<Item = &ScopeId> {
        self.narrow().iter().map(|narrow| &narrow.scope)
    }

    #[must_use]
    pub fn narrowest(&self) -> Option<&ScopeId> {
        self.narrow().last().map(|narrow| &narrow.scope)
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Lane {}

impl PartialOrd for Lane {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Lane {
    fn cmp(&self, other: &Self) -> Ordering {
        self.scopes().cmp(other.scopes())
    }
}
