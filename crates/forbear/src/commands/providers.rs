//! `forbear providers` and `forbear provider NAME`: what is known of whom, and from where.

use std::collections::BTreeMap;

use forbear_core::contract::{Contract, Idempotency};
use forbear_server::config::{Overrides, contract_text, contract_yaml, known_contracts, load};
use serde_json::json;

use crate::cli::OfConfiguration;
use crate::failure::{Exit, NotSo};
use crate::output::{Output, wrapped};

pub(crate) fn list(of: &OfConfiguration, output: Output) -> anyhow::Result<Exit> {
    let known = known(of)?;
    if output.json() {
        let rows: Vec<_> = known.iter().map(|(name, contract)| row(name, contract)).collect();
        output.document(&json!({"items": rows}))?;
        return Ok(Exit::Done);
    }
    output.line(&format!("{}{HEADING}{}", output.strong(), output.plain()));
    known.iter().for_each(|(name, contract)| output.line(&line(name, contract)));
    output.line(&format!("{}{}{}", output.dim(), wrapped(LEGEND, ""), output.plain()));
    Ok(Exit::Done)
}

pub(crate) fn show(name: &str, of: &OfConfiguration, output: Output) -> anyhow::Result<Exit> {
    let known = known(of)?;
    let contract = named(&known, name)?;
    if output.json() {
        output.document(contract)?;
    } else {
        // As it ships it says why; what a configuration makes of it has only what holds.
        let shipped = contract_text(name).filter(|_| of.config.is_none());
        output.line(shipped.map_or_else(|| contract_yaml(contract), String::from).trim_end());
    }
    Ok(Exit::Done)
}

pub(super) fn known(of: &OfConfiguration) -> anyhow::Result<BTreeMap<String, Contract>> {
    Ok(known_contracts(&load(of.config.as_deref(), &Overrides::default())?))
}

pub(super) fn named<'a>(known: &'a BTreeMap<String, Contract>, name: &str) -> Result<&'a Contract, NotSo> {
    known.get(name).ok_or_else(|| NotSo {
        exit: Exit::NotFound,
        happened: format!("no provider is named `{name}`"),
        to_do: "`forbear providers` lists them; one of your own stands in a file: add --config FILE".into(),
    })
}

const HEADING: &str = "provider          base URL, by https                    routes limits   key   ?";
const LEGEND: &str = "limits: headers that say how much is left. key: how long an idempotency key is kept. ?: what no \
                      primary source confirmed; `forbear provider NAME` says it. (yours): it holds once your \
                      configuration says its base_url.";

fn line(name: &str, contract: &Contract) -> String {
    let (routes, limits, open) = (contract.routes.len(), contract.limit_headers.len(), contract.unverified.len());
    let key = contract.idempotency.as_ref().map_or_else(|| "-".to_owned(), |rule| kept(rule.retention_seconds));
    let place = place(contract);
    // A base URL of a user's may be of any length: it keeps its line, and the rest comes below.
    let gap = if place.len() > 37 { format!("\n{:56}", "") } else { " ".repeat(38 - place.len()) };
    format!("{name:<17} {place}{gap}{routes:>6} {limits:>6} {key:>5} {open:>3}")
}

fn place(contract: &Contract) -> String {
    match (contract.base_url.as_str(), contract.hosts.first()) {
        ("", Some(host)) => format!("{host} (yours)"),
        ("", None) => "(yours)".into(),
        (url, _) => url.strip_prefix("https://").unwrap_or(url).into(),
    }
}

fn kept(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn row(name: &str, contract: &Contract) -> serde_json::Value {
    let key = |rule: &Idempotency| {
        let place = rule.member.as_ref().map_or_else(|| json!({"header": rule.header}), |m| json!({"member": m}));
        json!({"at": place, "retention_seconds": rule.retention_seconds})
    };
    json!({
        "name": name,
        "base_url": (!contract.base_url.is_empty()).then_some(&contract.base_url),
        "hosts": contract.hosts,
        "routes": contract.routes.len(),
        "limit_headers": contract.limit_headers.len(),
        "codes": contract.codes.len(),
        "idempotency": contract.idempotency.as_ref().map(key),
        "lookups": contract.lookups.len(),
        "sources": contract.sources,
        "unverified": contract.unverified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_and_says_whose_host_it_is() {
        let known = known(&OfConfiguration { config: None }).unwrap();
        for (name, contract) in &known {
            let line = line(name, contract);
            assert!(line.chars().count() <= 80 && !line.contains('\n'), "{line}");
        }
        assert!(line("zendesk", &known["zendesk"]).contains("*.zendesk.com (yours)"));
        assert!(line("stripe", &known["stripe"]).contains(" 24 h "), "{}", line("stripe", &known["stripe"]));
        let long = Contract { base_url: format!("http://{}.example", "x".repeat(60)), ..Contract::default() };
        assert!(line("mine", &long).lines().last().unwrap().ends_with("0      0     -   0"), "{}", line("mine", &long));
    }
}
