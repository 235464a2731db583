//! The configuration: one YAML file over defaults that need none.
//!
//! It promises that a file with an unknown key, a value of the wrong kind or a rule that would be unsafe is refused at the
//! start, with file, line, key and a suggestion, and that every fault of a file is named in one run. It refuses to guess
//! units and to drop what it does not know. Reading order: `load` is the walk; `tree` reads, `shape` compares with the
//! schema, `merge` lays the user's values over the defaults; what makes sense is asked in the core.

mod built_in;
mod fault;
mod load;
mod merge;
mod own_address;
mod settings;
mod shape;
mod suggest;
mod tree;

use std::collections::BTreeMap;

use forbear_core::contract::Contract;
use forbear_core::policy::Policy;
use serde_json::Value as Json;

pub use fault::{Code, ConfigErrors, ConfigFault};
pub use load::{Config, Loaded, Overrides, load, load_again, load_text};
pub use settings::{JournalReads, LogFormat, Settings, Upstream};

/// The file with every key, its default and why.
#[must_use]
pub const fn default_text() -> &'static str {
    include_str!("../../../forbear.default.yaml")
}

/// Every contract that is known under this configuration: those in force, and the built-in ones that a `base_url` is
/// missing for.
#[must_use]
pub fn known_contracts(loaded: &Loaded) -> BTreeMap<String, Contract> {
    let shipped = built_in::contracts().map(|(shipped, _)| shipped).unwrap_or_default();
    let shipped =
        shipped.into_iter().filter_map(|(name, json)| Some((name.into(), serde_json::from_value(json).ok()?)));
    let mut known: BTreeMap<String, Contract> = shipped.collect();
    known.extend(loaded.compiled.policy.providers.clone());
    known
}

/// A contract as it could stand in a file.
#[must_use]
pub fn contract_yaml(contract: &Contract) -> String {
    serde_saphyr::to_string(contract).unwrap_or_default()
}

/// The names of the built-in contracts, those without a host included.
pub fn contract_names() -> impl Iterator<Item = &'static str> {
    built_in::CONTRACTS.iter().map(|(name, _)| *name)
}

/// The text of a built-in contract.
#[must_use]
pub fn contract_text(provider: &str) -> Option<&'static str> {
    built_in::CONTRACTS.iter().find(|(name, _)| *name == provider).map(|(_, text)| *text)
}

/// The JSON Schema of the file, for editors. What has a default need not be written, also within a class or a section
/// that is laid over one; required are only the parts of a rule in a list.
#[must_use]
pub fn schema() -> Json {
    let mut whole = merged_schema();
    if let Some(parts) = whole["$defs"].as_object_mut() {
        for (_, part) in parts.iter_mut().filter(|(name, _)| !RULES.contains(&name.as_str())) {
            if let Some(part) = part.as_object_mut() {
                part.remove("required");
            }
        }
    }
    if let Some(top) = whole.as_object_mut() {
        top.remove("required");
    }
    whole
}

/// The types whose values stand in lists, so that no default is under them.
const RULES: [&str; 6] = ["RouteRule", "LimitHeader", "CodeRule", "WaitRule", "AdviceRule", "LookupRule"];

/// The schema of the configuration with the defaults filled in, where everything must be there.
fn merged_schema() -> Json {
    let mut whole = Json::from(schemars::schema_for!(Settings));
    let policy = Json::from(schemars::schema_for!(Policy));
    whole["title"] = "Forbear".into();
    whole["description"] = "The configuration of Forbear".into();
    for part in ["properties", "$defs"] {
        if let (Some(all), Json::Object(more)) = (whole[part].as_object_mut(), policy[part].clone()) {
            all.extend(more);
        }
    }
    whole
}

#[cfg(test)]
mod tests;
