//! What ships: the contracts, as they stand in `providers/`, and the defaults under any file.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use forbear_core::contract::Contract;
use forbear_core::policy::Policy;
use serde_json::Value as Json;

use super::fault::{Code, ConfigFault};
use super::merge::merge;
use super::settings::Settings;
use super::tree::{self, Node};

macro_rules! shipped {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../../../providers/", $name, ".yaml")))),*] };
}

/// Name and text of each.
pub(super) const CONTRACTS: &[(&str, &str)] = shipped!(
    "adyen" "airtable" "anthropic" "aws" "azure_openai" "bedrock" "cloudflare" "cohere" "deepseek" "discord" "gemini"
    "github" "gitlab" "google_workspace" "groq" "hubspot" "huggingface" "intercom" "jira" "linear" "mistral" "msgraph"
    "notion" "okta" "openai" "openrouter" "pagerduty" "paypal" "reddit" "s3" "salesforce" "sendgrid" "shopify" "slack" "square"
    "stripe" "together" "twilio" "vercel" "vertex" "x" "xai" "zendesk"
);

/// They never change, and reading them is most of loading a configuration.
static READ: LazyLock<Vec<(&str, Result<Node, String>)>> =
    LazyLock::new(|| CONTRACTS.iter().map(|(name, text)| (*name, tree::read(text).map_err(|e| e.said))).collect());

pub(super) type Contracts = (BTreeMap<&'static str, Json>, Json);

/// The contracts that ship, and the one of a provider that nothing is known of.
pub(super) fn contracts() -> Result<Contracts, Box<ConfigFault>> {
    let broken = |name: &str, what: String| {
        let path = ["providers".to_owned(), name.to_owned()];
        Box::new(ConfigFault::new(Code::FB1002, &path, what, "this binary is broken: build it again"))
    };
    let no_contract = serde_json::to_value(Contract::default()).map_err(|e| broken("", e.to_string()))?;
    let mut shipped = BTreeMap::new();
    for (name, node) in READ.iter() {
        let node = node.as_ref().map_err(|said| broken(name, said.clone()))?;
        let (mut whole, _) = merge(&no_contract, &BTreeMap::new(), &no_contract, node);
        if let Some(members) = whole.as_object_mut() {
            members.remove("providers");
        }
        shipped.insert(*name, whole);
    }
    Ok((shipped, no_contract))
}

/// Everything that holds where a file says nothing, as one level of keys.
pub(super) fn defaults(shipped: &BTreeMap<&str, Json>) -> Json {
    let mut whole = serde_json::to_value(Settings::default()).unwrap_or_default();
    let policy = serde_json::to_value(Policy::default()).unwrap_or_default();
    if let (Some(whole), Json::Object(policy)) = (whole.as_object_mut(), policy) {
        whole.extend(policy);
        whole["providers"] = shipped.iter().map(|(name, c)| ((*name).to_owned(), c.clone())).collect();
    }
    whole
}
