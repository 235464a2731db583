//! The user's values over the defaults, key by key.
//!
//! What is named wins and what is not stays. A list replaces a list, except the rules of a provider (`routes`, `codes`,
//! `limit_headers`, `waits`, `advice`, `lookups`): the user's stand before those of the contract they are laid over, since the first match wins. A
//! provider is laid over what `extends` names, else over the built-in one of its own name, else over no contract at all.
//! A built-in contract without a `base_url`, whose host is each customer's own, holds only where the file speaks of it.
//! Of a scope's limits the built-in contract's give way to the user's `shared_scope`, and that to the provider's own.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::tree::{Node, Value};

/// How long a chain of `extends` may be.
const EXTENDS_MAX: usize = 8;

/// Lists of a contract in which the user's entries come first and the base's follow.
const RULES: [&str; 6] = ["routes", "codes", "limit_headers", "waits", "advice", "lookups"];

/// A chain of `extends` that leads nowhere.
#[derive(Debug)]
pub(super) enum BadBase {
    Unknown { provider: String, base: String },
    Circle { provider: String },
}

/// Lay the file over the defaults. `built_in` holds the contracts that ship.
pub(super) fn merge(
    defaults: &Json,
    built_in: &BTreeMap<&str, Json>,
    no_contract: &Json,
    file: &Node,
) -> (Json, Vec<BadBase>) {
    let mut whole = defaults.clone();
    let empty = Node { value: Value::Nothing, place: file.place };
    let written = file.get("providers").unwrap_or(&empty);
    if let Value::Map(entries) = &file.value {
        for entry in entries.iter().filter(|e| e.key != "providers") {
            lay(&mut whole[&entry.key], &entry.node);
        }
    }
    let providers = Providers { built_in, no_contract, shared_scope: file.get("shared_scope"), written };
    let mut faults = Vec::new();
    let mut merged = Map::new();
    let is_reachable = |name: &&str| built_in[*name]["base_url"] != "" || written.get(name).is_some();
    for name in built_in.keys().copied().filter(is_reachable).chain(providers.names()) {
        match providers.resolve(name, EXTENDS_MAX) {
            Ok(contract) => drop(merged.insert(name.to_owned(), contract)),
            Err(fault) => faults.push(fault),
        }
    }
    whole["providers"] = Json::Object(merged);
    (whole, faults)
}

/// One value over another. A key without a value changes nothing.
fn lay(base: &mut Json, over: &Node) {
    match (&over.value, base) {
        (Value::Nothing, _) => {}
        (Value::Map(entries), Json::Object(members)) => {
            for entry in entries.iter().filter(|e| !matches!(e.node.value, Value::Nothing)) {
                lay(members.entry(&entry.key).or_insert(Json::Null), &entry.node);
            }
        }
        (Value::Map(_), base) => {
            *base = Json::Object(Map::new());
            lay(base, over);
        }
        (_, base) => *base = over.to_json(),
    }
}

struct Providers<'a> {
    built_in: &'a BTreeMap<&'a str, Json>,
    no_contract: &'a Json,
    shared_scope: Option<&'a Node>,
    written: &'a Node,
}

impl<'a> Providers<'a> {
    fn names(&self) -> impl Iterator<Item = &'a str> {
        let entries = match &self.written.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|e| e.key.as_str()).filter(|name| !self.built_in.contains_key(name))
    }

    fn resolve(&self, name: &str, left: usize) -> Result<Json, BadBase> {
        if left == 0 {
            return Err(BadBase::Circle { provider: name.into() });
        }
        let own = self.written.get(name);
        let base = own.and_then(|o| o.get("extends")).and_then(|n| match &n.value {
            Value::Text(base) => Some(base.as_str()),
            _ => None,
        });
        let mut contract = match base {
            Some(base) if base != name && self.written.get(base).is_some() => self.resolve(base, left - 1)?,
            Some(base) if self.built_in.contains_key(base) => self.shipped(base),
            Some(base) if base == name => return Err(BadBase::Circle { provider: name.into() }),
            Some(base) => return Err(BadBase::Unknown { provider: name.into(), base: base.into() }),
            None => self.shipped(name),
        };
        if let Some(own) = own {
            let rules = RULES.map(|key| (key, contract[key].take()));
            lay(&mut contract, own);
            for (key, mut of_base) in rules {
                let mut mine = contract[key].take();
                if let (Some(mine), Some(of_base)) = (mine.as_array_mut(), of_base.as_array_mut()) {
                    mine.append(of_base);
                }
                contract[key] = if mine.is_null() { of_base } else { mine };
            }
        }
        Ok(contract)
    }

    /// A contract that ships, or none, under the user's shared scope.
    fn shipped(&self, name: &str) -> Json {
        let Some(contract) = self.built_in.get(name) else { return self.no_contract.clone() };
        let mut contract = contract.clone();
        if let Some(shared) = self.shared_scope {
            lay(&mut contract["scope"], shared);
        }
        contract
    }
}
