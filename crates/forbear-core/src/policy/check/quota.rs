//! Whether the rates and scopes of a contract make sense.

use std::collections::BTreeSet;

use super::header::header_name;
use super::{Fault, FaultKind, SCOPE_MAX, SECONDS_MAX, bounds, is_name};
use crate::contract::{Contract, RateRule, ScopeRule};
use crate::policy::{CompiledScope, PacingRule, ScopeFault};
use crate::route::PatternFault;

/// Kinds of scopes below one account, and rates of one scope: each is asked at every send.
const SCOPES_MAX: usize = 8;
const RATES_MAX: usize = 8;
/// Accounts of several credentials, and credentials of one.
const ACCOUNTS_MAX: usize = 256;
const CREDENTIALS_MAX: usize = 1_024;
/// What a credential is shown by: a digest of so many hexadecimal digits.
const DIGEST_DIGITS: usize = 12;
/// Units of one rate.
const AMOUNT_MAX: u64 = 1_000_000_000_000;

pub(super) fn quota(root: &[&str], contract: &Contract, pacing: PacingRule, faults: &mut Vec<Fault>) {
    accounts(root, contract, faults);
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

fn accounts(root: &[&str], contract: &Contract, faults: &mut Vec<Fault>) {
    let at = [root, &["accounts"]].concat();
    if contract.accounts.len() > ACCOUNTS_MAX {
        let happened = format!("{} accounts; {ACCOUNTS_MAX} is the most", contract.accounts.len());
        faults.push(Fault::new(&at, FaultKind::TooMany, happened, "remove some"));
    }
    let is_digest = |s: &str| s.len() == DIGEST_DIGITS && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut seen = BTreeSet::new();
    for (name, credentials) in &contract.accounts {
        let at = [&at[..], &[name]].concat();
        let is_own = is_name(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
        if !is_own || is_digest(name) || name == "anonymous" {
            let happened = format!("`{name}` cannot be the name of an account");
            let hint = "lower-case letters, digits, `-` and `_`; not what a credential is shown by";
            faults.push(Fault::new(&at, FaultKind::BadName, happened, hint));
        }
        if !(1..=CREDENTIALS_MAX).contains(&credentials.len()) {
            let happened = format!("{} credentials; 1 to {CREDENTIALS_MAX} make an account", credentials.len());
            faults.push(Fault::new(&at, FaultKind::OutOfBounds, happened, "name its credentials"));
        }
        for (i, credential) in credentials.iter().enumerate() {
            let place = i.to_string();
            let at = [&at[..], &[&place]].concat();
            if !is_digest(credential) {
                // Never shown: it may be the credential itself.
                let happened = format!("this is not {DIGEST_DIGITS} hexadecimal digits");
                let hint = "make a call with the credential; `forbear scopes` shows it as provider/DIGEST";
                faults.push(Fault::new(&at, FaultKind::BadName, happened, hint));
            } else if !seen.insert(credential) {
                let happened = format!("`{credential}` is there twice");
                faults.push(Fault::new(&at, FaultKind::Contradiction, happened, "a credential is of one account"));
            }
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
