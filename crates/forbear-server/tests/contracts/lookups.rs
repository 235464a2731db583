//! Every lookup of every contract, against an answer as its provider gives it: the write is found in it, and not in one that tells
//! of another.

use std::collections::BTreeMap;

use forbear_core::contract::{Contract, LookupRule};
use forbear_core::lookup::{Found, Names, fill, find};
use forbear_core::route::RouteTable;
use forbear_core::time::Wall;
use forbear_server::config::{known_contracts, load_text};
use serde::Deserialize;
use serde_json::Value;

/// 2026-11-30T00:53:20Z, as the answers have it.
const SENT: Wall = Wall(1_796_000_000_000);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    of: String,
    /// Method and path of the write.
    call: String,
    #[serde(default)]
    body_sent: Value,
    name: String,
    /// What is asked then: the path, and its query by names in their order.
    asks: String,
    answer: Value,
}

fn examples() -> Vec<Example> {
    serde_saphyr::from_str(include_str!("lookups.yaml")).unwrap()
}

fn contracts() -> BTreeMap<String, Contract> {
    known_contracts(&load_text("t", "").unwrap())
}

/// The rule that finds this write, by its place.
fn rule_of<'c>(contract: &'c Contract, call: &str) -> (usize, &'c LookupRule) {
    let (method, path) = call.split_once(' ').unwrap();
    let found = contract.lookups.iter().enumerate().find(|(_, rule)| {
        let (own, template) = rule.of.split_once(' ').unwrap();
        own == method && segments(template, path).is_some()
    });
    found.unwrap_or_else(|| panic!("no lookup finds {call}"))
}

fn segments<'t>(template: &'t str, path: &'t str) -> Option<BTreeMap<&'t str, &'t str>> {
    let (parts, own) = (template.split('/'), path.split('/'));
    if parts.clone().count() != own.clone().count() {
        return None;
    }
    let mut named = BTreeMap::new();
    for (part, own) in parts.zip(own) {
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => _ = named.insert(name, own),
            None if part == own => {}
            None => return None,
        }
    }
    Some(named)
}

#[test]
fn every_lookup_finds_its_write_and_no_other() {
    let contracts = contracts();
    let mut met: Vec<(String, usize)> = Vec::new();
    for example in examples() {
        let (place, rule) = rule_of(&contracts[&example.of], &example.call);
        let (template, path) = (rule.of.split_once(' ').unwrap().1, example.call.split_once(' ').unwrap().1);
        let body = Some(&example.body_sent);
        let names = Names { name: &example.name, path: segments(template, path).unwrap(), body, sent: SENT };
        let query = rule.query.iter().map(|(name, text)| format!("{name}={}", fill(text, &names).unwrap()));
        let query: Vec<String> = query.collect();
        let asked = fill(&rule.ask, &names).unwrap();
        let asked = if query.is_empty() { asked } else { format!("{asked}?{}", query.join("&")) };
        assert_eq!(asked, format!("GET {}", example.asks), "{}", example.of);
        let found = find(rule, &names, &example.answer);
        assert!(matches!(found, Found::One(_)), "{} {}: {found:?}", example.of, example.call);
        let other = Names { name: "another", ..names };
        assert_eq!(find(rule, &other, &example.answer), Found::Nothing, "{} {}", example.of, example.call);
        met.push((example.of, place));
    }
    for (name, contract) in &contracts {
        for place in 0..contract.lookups.len() {
            assert!(met.contains(&(name.clone(), place)), "{name}: no answer shows lookup {place}");
        }
    }
}

#[test]
fn what_is_looked_up_is_a_write_and_the_asking_a_read() {
    for (name, contract) in &contracts() {
        let routes = RouteTable::compile(contract).unwrap();
        for rule in &contract.lookups {
            let class = |text: &str| {
                let (method, path) = text.split_once(' ').unwrap();
                let path: Vec<&str> = path.split('/').map(|s| if s.starts_with('{') { "1" } else { s }).collect();
                routes.lookup(method, &path.join("/")).class.to_owned()
            };
            assert!(class(&rule.of).ends_with("_write"), "{name}: {}", rule.of);
            assert_eq!(class(&rule.ask), "read", "{name}: {}", rule.ask);
        }
    }
}
