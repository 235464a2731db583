//! Whether the rates and scopes of a contract make sense.

use super::header::header_name;
use super::{Fault, FaultKind, SCOPE_MAX, SECONDS_MAX, bounds, is_name};
use crate::contract::{Contract, RateRule, ScopeRule};
use crate::policy::{CompiledScope, PacingRule, ScopeFault};
use crate::route::PatternFault;

/// Kinds of scopes below one account, and rates of one scope: each is asked at every send.
const SCOPES_MAX: usize = 8;
const RATES_MAX: usize = 8;
/// Units of one rate.
const AMOUNT_MAX: u64 = 1_000_000_000_000;

pub(super) fn quota(root: &[&str], contract: &Contract, pacing: PacingRule, faults: &mut Vec<Fault>) {
    rates(&[root, &["rates"]].concat(), &contract.rates, faults);
    if contract.scopes.len() > SCOPES_MAX {
        let happened = format!("{} kinds of scopes; {SCOPES_MAX} is the most", contract.scopes.len());
        faults.push(Fault::new(&[root, &["scopes"]].concat(), FaultKind::TooMany, happened, "remove some"));
    }
    for (i, rule) in contract.scopes.iter().enumerate() {
        let place = i.to_string();
        let at = [root, &["scopes", &place]].concat();
        scope(&at, rule, pacing, faults);
        if contract.scopes[..i].iter().any(|other| other.name == rule.name) {
            let happened = format!("`{}` is there twice", rule.name);
            let at = [&at[..], &["name"]].concat();
            faults.push(Fault::new(&at, FaultKind::Contradiction, happened, "one kind of scopes, one name"));
        }
    }
}

fn scope(at: &[&str], rule: &ScopeRule, pacing: PacingRule, faults: &mut Vec<Fault>) {
    let of = |key| [at, &[key]].concat();
    if !is_name(&rule.name, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-')) {
        let happened = format!("`{}` cannot be the name of a scope", rule.name);
        faults.push(Fault::new(&of("name"), FaultKind::BadName, happened, "lower-case letters, digits, `-` and `_`"));
    }
    if let Some(most) = rule.max_concurrent_requests {
        bounds(&of("max_concurrent_requests"), most.into(), 1, SCOPE_MAX.into(), faults);
    }
    rates(&of("rates"), &rule.rates, faults);
    match CompiledScope::compile(rule, pacing) {
        Ok(_) => {}
        Err(ScopeFault::Routes(bad)) => patterns(&of("routes"), &bad, faults),
        Err(ScopeFault::Except(bad)) => patterns(&of("except"), &bad, faults),
        Err(ScopeFault::NoSegment(i)) => {
            let happened = format!("`{}` has no segment of that name", rule.routes[i]);
            let hint = "each of `routes` names the segment: by: \"path:id\" and `GET /v1/items/{id}`";
            faults.push(Fault::new(&of("by"), FaultKind::BadRoute, happened, hint));
        }
        Err(ScopeFault::By) => {
            if let Some(name) = rule.by.as_deref().and_then(|by| by.strip_prefix("header:")) {
                return header_name(&of("by"), name, faults);
            }
            let happened = format!("`{}` tells no scopes apart", rule.by.as_deref().unwrap_or_default());
            let hint = "route, method, body:member, header:name, or path:segment where `routes` are named";
            faults.push(Fault::new(&of("by"), FaultKind::BadCode, happened, hint));
        }
    }
}

fn patterns(at: &[&str], bad: &[(usize, PatternFault)], faults: &mut Vec<Fault>) {
    for (i, fault) in bad {
        let place = i.to_string();
        let at = [at, &[place.as_str()]].concat();
        faults.push(Fault::new(&at, FaultKind::BadRoute, fault.to_string(), "as in `POST /v1/charges/{id}`"));
    }
}

fn rates(at: &[&str], rules: &[RateRule], faults: &mut Vec<Fault>) {
    if rules.len() > RATES_MAX {
        let happened = format!("{} rates; {RATES_MAX} is the most", rules.len());
        faults.push(Fault::new(at, FaultKind::TooMany, happened, "keep the tightest"));
    }
    for (i, rule) in rules.iter().enumerate() {
        let place = i.to_string();
        let of = |key| [at, &[place.as_str(), key]].concat();
        bounds(&of("amount"), rule.amount, 1, AMOUNT_MAX, faults);
        bounds(&of("per_seconds"), rule.per_seconds, 1, SECONDS_MAX, faults);
        if let Some(burst) = rule.burst {
            bounds(&of("burst"), burst, 1, rule.amount.max(1), faults);
        }
    }
}
