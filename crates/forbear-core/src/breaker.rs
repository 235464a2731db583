//! Breakers: what fails in the same way again and again is not sent any more, for a while, and who asks is told why.
//!
//! Two kinds of DESIGN section 4. One stops *identical failures*: a request that is refused unchanged, a path on which changed
//! requests fail alike, a credential that nobody takes. The other guards a *scope's health*: a provider that answers nobody.
//! An open circuit lets one call through when its time is up, as a probe; who else asks meanwhile is refused.
//!
//! What is open is on record ([`Circuits`], [`crate::durable`]) and survives the process; what is only counted does not. A call
//! whose run has no name is known by its content alone, within its credential: what others of that credential do on the same
//! path says nothing of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{Digest, Route, RunId, ScopeId, TenantId};
use crate::time::Wall;

mod counted;

pub(crate) use counted::{Breakers, CallEnd, is_lasting};

/// Open circuits that are remembered; at the bound the one that opens again first is forgotten.
pub const CIRCUITS_MAX: usize = 10_000;

/// How often what has to fail before it is not sent any more, and for how long. 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BreakerRule {
    /// The same request of a run, refused in the same way.
    pub equal_failures: u32,
    /// Requests of a run on one route, each another, refused in the same way without a success between.
    pub changed_failures: u32,
    /// Answers of 401 to one credential, with no other answer between.
    pub unauthorized: u32,
    /// Attempts on one route of a scope, or on several of its routes together, that came to nothing in a row: no answer, or
    /// one that says that the provider is down.
    pub scope_failures: u32,
    /// How long the circuits of identical failures stay open.
    pub open_seconds: u64,
    /// How long those of a scope's health do.
    pub scope_open_seconds: u64,
}

impl Default for BreakerRule {
    fn default() -> Self {
        // Three of the same are no accident, and eight variations of one mistake no search. A provider that let down twenty
        // attempts in a row is down for everybody; half a minute is soon enough to hear that it is back.
        Self {
            equal_failures: 3,
            changed_failures: 8,
            unauthorized: 5,
            scope_failures: 20,
            open_seconds: 600,
            scope_open_seconds: 30,
        }
    }
}

impl BreakerRule {
    #[must_use]
    pub const fn open_ms(&self, circuit: &Circuit) -> u64 {
        let seconds = if circuit.is_health() { self.scope_open_seconds } else { self.open_seconds };
        seconds.saturating_mul(1_000)
    }
}

/// What is not sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Circuit {
    /// One request, within its run, or where that has no name within its credential.
    Request {
        owner: TenantId,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        run: Option<RunId>,
        route: Route,
        digest: Digest,
    },
    /// Whatever a run asks on this route.
    Path {
        owner: TenantId,
        run: RunId,
        route: Route,
    },
    Credential {
        owner: TenantId,
    },
    /// One route of a scope, whoever asks.
    Endpoint {
        scope: ScopeId,
        route: Route,
    },
    Scope {
        scope: ScopeId,
    },
}

impl Circuit {
    /// It guards who answers, and not what is asked.
    #[must_use]
    pub const fn is_health(&self) -> bool {
        matches!(self, Self::Endpoint { .. } | Self::Scope { .. })
    }

    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Path { .. } => "path",
            Self::Credential { .. } => "credential",
            Self::Endpoint { .. } => "endpoint",
            Self::Scope { .. } => "scope",
        }
    }
}

/// Why a circuit is open, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    pub circuit: Circuit,
    /// The last failure's status and code; none where no answer came.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub code: Option<String>,
    pub failures: u32,
    pub until: Wall,
}

impl Opened {
    /// In words, for who asked: what failed, how often, and what would be something else.
    #[must_use]
    pub fn reason(&self) -> String {
        let n = self.failures;
        let with = match (self.status, &self.code) {
            (Some(status), Some(code)) => format!("with {status} ({code})"),
            (Some(status), None) => format!("with {status}"),
            _ => "without an answer".to_owned(),
        };
        match &self.circuit {
            Circuit::Request { .. } => format!("the same request failed {n} times {with}; unchanged it fails again"),
            Circuit::Path { route, .. } => {
                format!("{n} requests of this run to {} failed {with}, however they were changed", route.as_str())
            }
            Circuit::Credential { .. } => {
                format!("its credential was refused {n} times {with}; a person must look at it")
            }
            Circuit::Endpoint { route, .. } => {
                format!("the last {n} attempts on {} came to nothing, at last {with}", route.as_str())
            }
            Circuit::Scope { .. } => format!("the last {n} attempts in its scope came to nothing, at last {with}"),
        }
    }
}

/// The open ones, by what they are about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Opened>", into = "Vec<Opened>")]
pub struct Circuits(BTreeMap<Circuit, Opened>);

impl From<Vec<Opened>> for Circuits {
    fn from(all: Vec<Opened>) -> Self {
        Self(all.into_iter().map(|opened| (opened.circuit.clone(), opened)).collect())
    }
}

impl From<Circuits> for Vec<Opened> {
    fn from(circuits: Circuits) -> Self {
        circuits.0.into_values().collect()
    }
}

impl Circuits {
    pub(crate) fn open(&mut self, opened: &Opened) {
        self.0.insert(opened.circuit.clone(), opened.clone());
        if self.0.len() > CIRCUITS_MAX {
            let first = self.0.iter().min_by_key(|(_, opened)| opened.until).map(|(circuit, _)| circuit.clone());
            first.map(|circuit| self.0.remove(&circuit));
        }
    }

    pub(crate) fn close(&mut self, circuit: &Circuit) {
        self.0.remove(circuit);
    }

    #[must_use]
    pub fn get(&self, circuit: &Circuit) -> Option<&Opened> {
        self.0.get(circuit)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Opened> {
        self.0.values()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
