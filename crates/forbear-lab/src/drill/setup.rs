//! The drill's providers and the configuration that points a server at them under the user's policy.

use std::io;

use forbear_core::policy::Policy;
use serde_json::{Value, json};

use crate::provider::{Options, Provider, Scenario, ScenarioError};

/// What the crowd's scope may spend at most, so that ten tasks of three retries would want more.
const CROWD_RETRIES_PER_MINUTE: u32 = 10;

#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    #[error("a directory for the drill cannot be had: {0}")]
    Directory(io::Error),
    #[error("a fake provider cannot be started: {0}")]
    Provider(#[from] io::Error),
    #[error("a scenario of the drill is wrong: {0}")]
    Scenario(#[from] ScenarioError),
    #[error("the server did not start: {what}")]
    Server { what: String },
}

/// A fake provider and its name in the configuration.
pub struct Provided {
    pub name: &'static str,
    pub provider: Provider,
}

impl Provided {
    /// Starts one.
    ///
    /// # Errors
    /// When the scenario is wrong or no port is free.
    pub async fn start(name: &'static str, scenario: &str) -> Result<Self, DrillError> {
        let provider = Provider::start(Scenario::from_yaml(scenario)?, Options::default()).await?;
        Ok(Self { name, provider })
    }

    pub(super) fn target(&self, path: &str) -> String {
        format!("/{}{path}", self.name)
    }
}

/// One provider a step, so that each has its own scope and its own log.
pub(super) struct Providers {
    pub(super) quota: Provided,
    pub(super) ledger: Provided,
    pub(super) budget: Provided,
    pub(super) cancelled: Provided,
    pub(super) crowd: Provided,
}

impl Providers {
    pub(super) async fn start(policy: &Policy) -> Result<Self, DrillError> {
        Ok(Self {
            quota: Provided::start("quota", super::shared_quota::SCENARIO).await?,
            ledger: Provided::start("ledger", super::lost_answer::SCENARIO).await?,
            budget: Provided::start("budget", &super::told::budget_scenario(policy)).await?,
            cancelled: Provided::start("cancelled", super::told::CANCELLED_SCENARIO).await?,
            crowd: Provided::start("crowd", super::crowd::SCENARIO).await?,
        })
    }

    pub(super) fn configuration(&self, policy: &Policy) -> Value {
        let mut providers = serde_json::Map::new();
        for p in [&self.quota, &self.budget, &self.cancelled] {
            providers.insert(p.name.to_owned(), json!({"base_url": p.provider.base_url()}));
        }
        providers.insert(self.ledger.name.to_owned(), keyed(&self.ledger));
        let limit = json!({"max_retries_per_minute": crowd_retries_max(policy)});
        let crowd = json!({"base_url": self.crowd.provider.base_url(), "scope": limit});
        providers.insert(self.crowd.name.to_owned(), crowd);
        configuration(policy, Value::Object(providers))
    }
}

/// A provider that honours idempotency keys on its transfers.
pub(super) fn keyed(provided: &Provided) -> Value {
    json!({
        "base_url": provided.provider.base_url(),
        "idempotency": {"header": "Idempotency-Key", "retention_seconds": 86_400},
        "routes": [
            {"match": "POST /v1/transfers", "class": "idempotent_write", "idempotency_header": "Idempotency-Key"},
        ],
    })
}

/// The retries that the crowd's scope may spend: the policy's own bound where that is lower.
pub(super) fn crowd_retries_max(policy: &Policy) -> u32 {
    policy.shared_scope.max_retries_per_minute.unwrap_or(CROWD_RETRIES_PER_MINUTE).min(CROWD_RETRIES_PER_MINUTE)
}

/// A configuration file's content: the policy as it stands, with these providers. JSON is YAML.
#[must_use]
pub fn configuration(policy: &Policy, providers: Value) -> Value {
    let mut whole = serde_json::to_value(policy).unwrap_or_default();
    whole["providers"] = providers;
    without_nulls(whole)
}

/// What is not said must not be said as null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(name, member)| (name, without_nulls(member)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_stays_and_its_providers_go() {
        let mut policy = Policy::default();
        policy.providers.insert("stripe".into(), forbear_core::contract::Contract::default());
        policy.task.max_retries = 3;
        let written = configuration(&policy, json!({"quota": {"base_url": "http://127.0.0.1:1", "extends": null}}));
        assert_eq!(written["task"]["max_retries"], 3);
        assert_eq!(written["providers"], json!({"quota": {"base_url": "http://127.0.0.1:1"}}));
        assert!(!written.to_string().contains("null"));
    }

    #[tokio::test]
    async fn every_scenario_of_the_drill_loads_under_any_policy() {
        let mut policy = Policy::default();
        Providers::start(&policy).await.unwrap();
        policy.request_classes.get_mut("read").unwrap().max_wait_seconds = 0;
        Providers::start(&policy).await.unwrap();
        Scenario::from_yaml(super::super::crash::SCENARIO).unwrap();
    }
}
