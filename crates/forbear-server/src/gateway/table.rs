//! The providers in force, made ready for the hot path: origins parsed, classes shared, header values built.

use std::collections::BTreeMap;
use std::sync::Arc;

use forbear_core::advice::Way;
use forbear_core::contract::Contract;
use forbear_core::ids::ClassName;
use forbear_core::policy::{ClassRule, Compiled, CompiledProvider, Rank};
use http::{HeaderName, HeaderValue};

use crate::http::origin::{Origin, OriginError};

/// A request class, shared by all requests of it.
#[derive(Debug, Clone)]
pub struct Class {
    pub name: ClassName,
    pub rank: Rank,
    pub rule: Arc<ClassRule>,
}

#[derive(Debug)]
pub struct Provider {
    pub compiled: CompiledProvider,
    pub origin: Origin,
    /// Path of the base URL, without a trailing slash.
    pub base_path: String,
    pub credentials: Vec<HeaderName>,
    /// Response fields whose URLs of the provider's own host come back to Forbear.
    pub url_fields: Vec<HeaderName>,
    /// Better ways than many calls, by the name of the route.
    pub advice: BTreeMap<String, Arc<[Way]>>,
    /// What tells this provider's clients not to retry.
    pub no_retry: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Debug)]
pub struct Table {
    pub compiled: Arc<Compiled>,
    providers: BTreeMap<String, Arc<Provider>>,
    classes: BTreeMap<String, Class>,
}

/// A provider that cannot be reached by its base URL.
#[derive(Debug, thiserror::Error)]
#[error("provider `{provider}`: {source}")]
pub struct BadProvider {
    pub provider: String,
    pub source: OriginError,
}

impl Table {
    /// # Errors
    /// When a base URL names no origin. The configuration's check finds that first.
    pub fn new(compiled: Arc<Compiled>) -> Result<Self, BadProvider> {
        let mut providers = BTreeMap::new();
        for (name, provider) in &compiled.providers {
            let bad = |source| BadProvider { provider: name.to_string(), source };
            let contract = &provider.contract;
            let (origin, base_path) = Origin::parse(&contract.base_url).map_err(bad)?;
            let origin = if contract.http2_prior_knowledge { origin.with_http2_prior_knowledge() } else { origin };
            let fields = contract.no_retry_headers.iter();
            let entry = Provider {
                credentials: contract.credential_headers.iter().filter_map(|h| h.parse().ok()).collect(),
                url_fields: contract.url_headers.iter().filter_map(|h| h.parse().ok()).collect(),
                no_retry: fields.filter_map(|(k, v)| Some((k.parse().ok()?, v.parse().ok()?))).collect(),
                advice: ways(contract),
                compiled: provider.clone(),
                origin,
                base_path,
            };
            providers.insert(name.to_string(), Arc::new(entry));
        }
        let classes = compiled.classes.iter().map(|(name, class)| {
            let shared = Class { name: name.as_str().into(), rank: class.rank, rule: Arc::new(class.rule.clone()) };
            (name.clone(), shared)
        });
        Ok(Self { classes: classes.collect(), providers, compiled })
    }

    #[must_use]
    pub fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.get(name)
    }

    pub fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    pub fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }
}

fn ways(contract: &Contract) -> BTreeMap<String, Arc<[Way]>> {
    let mut ways: BTreeMap<String, Vec<Way>> = BTreeMap::new();
    for rule in &contract.advice {
        let see = rule.see.as_ref().map_or(String::new(), |see| format!("; see {see}"));
        let text = format!("{}: {}{see}", rule.when.as_str(), rule.say).into();
        ways.entry(rule.route.clone()).or_default().push(Way { when: rule.when, text });
    }
    ways.into_iter().map(|(route, ways)| (route, ways.into())).collect()
}
