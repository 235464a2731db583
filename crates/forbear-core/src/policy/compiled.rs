//! A policy that may be used: checked, its limits resolved, its routes compiled, its digest taken.
//!
//! It promises that every class a route names exists and that every limit has a value; what reads it need not ask again.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::scopes::{CompiledScope, rates};
use super::{ClassRule, FairnessRule, Fault, Mode, Policy, Rank, check};
use crate::canonical;
use crate::contract::{Contract, ScopeLimits};
use crate::ids::{Digest, ProviderName, ScopeId};
use crate::pacer::Rate;
use crate::route::{Matched, RouteTable};

/// The policy in force, contracts included.
#[derive(Debug, Clone)]
pub struct Compiled {
    pub policy: Policy,
    /// SHA-256 of the policy as canonical JSON (RFC 8785).
    pub digest: Digest,
    /// The first 8 bytes of the digest in hex, as events carry it.
    pub tag: String,
    pub classes: BTreeMap<String, Class>,
    pub providers: BTreeMap<ProviderName, CompiledProvider>,
}

/// One provider, ready to be asked.
#[derive(Debug, Clone)]
pub struct CompiledProvider {
    pub name: ProviderName,
    pub contract: Contract,
    pub routes: RouteTable,
    /// The home scope of a credential that shares an account, by its digest.
    pub accounts: BTreeMap<String, ScopeId>,
    pub limits: Limits,
    pub rates: Arc<[Rate]>,
    pub scopes: Vec<CompiledScope>,
    /// Its calls are only watched.
    pub observes: bool,
}

/// Limits of one scope, none left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max_delayed_requests: u32,
    pub max_concurrent_requests: u32,
    pub max_retries_per_minute: u32,
    /// Slots that only interactive work may use.
    pub kept_for_interactive: u32,
    /// Turns of interactive, normal and background work beside each other.
    pub weights: [u32; 3],
}

/// One request class with the rank that its evidence is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    pub rank: Rank,
    pub rule: ClassRule,
}

impl Class {
    /// Whether a further attempt may be made after this status, as far as the class goes.
    #[must_use]
    pub fn retries(&self, status: u16) -> bool {
        self.rule.retry_statuses.contains(&status)
    }

    /// Whether this class allows nothing that `other` does not.
    #[must_use]
    pub fn is_as_strict_as(&self, other: &Self) -> bool {
        self.rank > other.rank
            || (self.rank == other.rank
                && self.rule.max_attempts <= other.rule.max_attempts
                && self.rule.unknown_resends <= other.rule.unknown_resends
                && self.rule.retry_statuses.iter().all(|s| other.retries(*s)))
    }
}

impl Compiled {
    /// The policy, ready, or everything that is wrong with it. Warnings do not stand in the way.
    pub fn new(policy: Policy) -> Result<Self, Vec<Fault>> {
        let faults = check(&policy);
        if faults.iter().any(|f| !f.is_warning()) {
            return Err(faults);
        }
        let digest = digest(&policy);
        let pacing = policy.pacing;
        let providers = policy
            .providers
            .iter()
            .map(|(name, contract)| {
                let provider = CompiledProvider {
                    name: ProviderName::new(name),
                    // `check` compiled it already and found nothing.
                    routes: RouteTable::compile(contract).unwrap_or_default(),
                    accounts: accounts(name, contract),
                    limits: Limits::resolve(contract.scope, policy.shared_scope, policy.fairness),
                    rates: rates(&contract.rates, pacing),
                    // `check` asked for each of them and found nothing.
                    scopes: contract.scopes.iter().filter_map(|s| CompiledScope::compile(s, pacing).ok()).collect(),
                    observes: contract.mode.unwrap_or(policy.mode) == Mode::Observe,
                    contract: contract.clone(),
                };
                (provider.name.clone(), provider)
            })
            .collect();
        let classes = policy
            .request_classes
            .iter()
            .map(|(name, rule)| {
                let rank = Rank::built_in(name).or(rule.rank).unwrap_or(Rank::UncertainWrite);
                (name.clone(), Class { name: name.clone(), rank, rule: rule.clone() })
            })
            .collect();
        let tag = digest.to_string().chars().take(16).collect();
        Ok(Self { policy, digest, tag, classes, providers })
    }

    #[must_use]
    pub fn provider(&self, name: &str) -> Option<&CompiledProvider> {
        self.providers.get(name)
    }

    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// The class of a call: its route's, or the one the agent asks for where that one is at least as strict.
    ///
    /// `None` only for a route of another policy.
    #[must_use]
    pub fn class_of(&self, matched: &Matched<'_>, asked: Option<&str>) -> Option<&Class> {
        let own = self.class(matched.class)?;
        let asked = asked.and_then(|name| self.class(name)).filter(|class| class.is_as_strict_as(own));
        Some(asked.unwrap_or(own))
    }
}

impl Default for Limits {
    /// What ships, where neither contract nor configuration says anything.
    fn default() -> Self {
        Self::resolve(ScopeLimits::default(), ScopeLimits::default(), Policy::default().fairness)
    }
}

impl Limits {
    fn resolve(own: ScopeLimits, shared: ScopeLimits, fairness: FairnessRule) -> Self {
        let limits = own.over(shared).over(Policy::default().shared_scope);
        Self {
            max_delayed_requests: limits.max_delayed_requests.unwrap_or(0),
            max_concurrent_requests: limits.max_concurrent_requests.unwrap_or(1),
            max_retries_per_minute: limits.max_retries_per_minute.unwrap_or(0),
            kept_for_interactive: limits.kept_for_interactive.unwrap_or(0),
            weights: fairness.weights(),
        }
    }
}

fn accounts(provider: &str, contract: &Contract) -> BTreeMap<String, ScopeId> {
    let home = |name: &String| ScopeId::new(&[provider, "/", name].concat());
    let shared = contract.accounts.iter().map(|(name, credentials)| (home(name), credentials));
    shared
        .flat_map(|(home, credentials)| credentials.iter().map(move |digest| (digest.clone(), home.clone())))
        .collect()
}

fn digest(policy: &Policy) -> Digest {
    // A policy is made of maps with text keys, numbers and lists: it always has a JSON form.
    let canonical = serde_json::to_value(policy).and_then(|value| canonical::of(&value)).unwrap_or_default();
    Digest(Sha256::digest(canonical).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::RouteRule;

    fn policy() -> Policy {
        let route = |pattern: &str, class: &str| RouteRule {
            pattern: pattern.into(),
            class: class.into(),
            ..RouteRule::default()
        };
        let contract = Contract {
            base_url: "https://api.example.com".into(),
            scope: ScopeLimits { max_concurrent_requests: Some(2), ..ScopeLimits::default() },
            routes: vec![route("POST /v1/searches", "read"), route("POST /v1/chat", "inference")],
            ..Contract::default()
        };
        Policy { providers: BTreeMap::from([("shop".into(), contract)]), ..Policy::default() }
    }

    #[test]
    fn limits_fall_from_the_contract_to_the_shared_scope_to_what_ships() {
        let mut policy = policy();
        policy.shared_scope =
            ScopeLimits { max_concurrent_requests: Some(9), max_delayed_requests: Some(7), ..ScopeLimits::default() };
        let compiled = Compiled::new(policy).unwrap();
        assert_eq!(
            compiled.provider("shop").unwrap().limits,
            Limits {
                max_concurrent_requests: 2,
                max_delayed_requests: 7,
                max_retries_per_minute: 60,
                kept_for_interactive: 0,
                weights: [8, 4, 1],
            }
        );
        assert!(compiled.provider("none").is_none());
    }

    #[test]
    fn an_agent_can_only_make_its_class_stricter() {
        let mut policy = policy();
        let mut eager = policy.request_classes["read"].clone();
        (eager.rank, eager.max_attempts) = (Some(Rank::Read), 9);
        let mut calm = policy.request_classes["read"].clone();
        (calm.rank, calm.max_attempts) = (Some(Rank::Read), 2);
        policy.request_classes.extend([("eager".into(), eager), ("calm".into(), calm)]);
        let compiled = Compiled::new(policy).unwrap();
        let provider = compiled.provider("shop").unwrap();
        let class =
            |path, asked| compiled.class_of(&provider.routes.lookup("POST", path), asked).map(|c| c.name.as_str());
        assert_eq!(class("/v1/searches", None), Some("read"));
        assert_eq!(class("/v1/searches", Some("calm")), Some("calm"));
        assert_eq!(class("/v1/searches", Some("eager")), Some("read"));
        assert_eq!(class("/v1/searches", Some("uncertain_write")), Some("uncertain_write"));
        assert_eq!(class("/v1/chat", Some("read")), Some("inference"));
        assert_eq!(class("/v1/other", Some("inference")), Some("uncertain_write"));
        assert_eq!(class("/v1/searches", Some("nothing")), Some("read"));
    }

    #[test]
    fn the_digest_is_that_of_the_content() {
        let (a, b) = (Compiled::new(policy()).unwrap(), Compiled::new(policy()).unwrap());
        assert_eq!(a.digest, b.digest);
        assert_eq!(a.tag.len(), 16);
        assert!(a.digest.to_string().starts_with(&a.tag));
        let mut other = policy();
        other.task.max_retries += 1;
        assert_ne!(Compiled::new(other).unwrap().digest, a.digest);
    }
}
