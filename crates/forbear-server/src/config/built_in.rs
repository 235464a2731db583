//! What ships: the contracts, as they stand in `providers/`, and the defaults under any file.

use std::collections::BTreeMap;

use forbear_core::contract::Contract;
use forbear_core::policy::Policy;
use serde_json::Value as Json;

use super::fault::{Code, ConfigFault};
use super::merge::merge;
use super::settings::Settings;
use super::tree;

/// Name and text of each.
pub(super) const CONTRACTS: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../../../providers/anthropic.yaml")),
    ("github", include_str!("../../../../providers/github.yaml")),
    ("openai", include_str!("../../../../providers/openai.yaml")),
    ("stripe", include_str!("../../../../providers/stripe.yaml")),
];

pub(super) type Contracts = (BTreeMap<&'static str, Json>, Json);

/// The contracts that ship, and the one of a provider that nothing is known of.
pub(super) fn contracts() -> Result<Contracts, Box<ConfigFault>> {
    let broken = |name: &str, what: String| {
        let path = ["providers".to_owned(), name.to_owned()];
        Box::new(ConfigFault::new(Code::FB1002, &path, what, "this binary is broken: build it again"))
    };
    let no_contract = serde_json::to_value(Contract::default()).map_err(|e| broken("", e.to_string()))?;
    let mut shipped = BTreeMap::new();
    for (name, text) in CONTRACTS {
        let node = tree::read(text).map_err(|e| broken(name, e.said))?;
        let (mut whole, _) = merge(&no_contract, &BTreeMap::new(), &no_contract, &node);
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
