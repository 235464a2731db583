//! Whether a lookup can be asked, and can tell the write that it looks for from others.

use super::contract::member_path;
use super::{Fault, FaultKind, seconds};
use crate::contract::{Contract, LookupRule, RouteRule};
use crate::lookup::{Path, placeholders};
use crate::route::{RouteTable, TEMPLATE_BYTES_MAX};

pub(super) fn lookup(at: &[&str], rule: &LookupRule, faults: &mut Vec<Fault>) {
    let member = |key| [at, &[key]].concat();
    if !is_write(&rule.of) {
        let happened = format!("`{}` names no write", rule.of);
        faults.push(Fault::new(&member("of"), FaultKind::BadRoute, happened, "as a route's match: POST /v1/charges"));
    }
    let segments = segments(&rule.of);
    carried(&member("carried_at"), &rule.carried_at, &segments, faults);
    let is_path =
        |path: &str| path.starts_with('/') && path.len() <= TEMPLATE_BYTES_MAX && !path.contains([' ', '?', '#']);
    if !rule.ask.strip_prefix("GET ").is_some_and(is_path) {
        let happened = format!("`{}` is no read that can be asked", rule.ask);
        faults.push(Fault::new(
            &member("ask"),
            FaultKind::BadRoute,
            happened,
            "GET /v1/charges/{name}; the query stands in `query`",
        ));
    }
    filled(&member("ask"), &rule.ask, &segments, faults);
    for (name, text) in &rule.query {
        filled(&[at, &["query", name]].concat(), text, &segments, faults);
    }
    if let Some(path) = &rule.found_at {
        json_path(&member("found_at"), path, true, faults);
    }
    if let Some(path) = &rule.made_at {
        json_path(&member("made_at"), path, false, faults);
    }
    for (path, text) in &rule.is {
        let at = [at, &["is", path]].concat();
        json_path(&at, path, false, faults);
        filled(&at, text, &segments, faults);
    }
    let mut texts = [&rule.ask].into_iter().chain(rule.query.values()).chain(rule.is.values());
    if !texts.any(|text| text.contains("{name}")) {
        let happened = "nothing of it says which write is looked for";
        let hint = "`{name}` in `ask`, `query` or `is` is what the lookup goes by";
        faults.push(Fault::new(at, FaultKind::Contradiction, happened, hint));
    }
    seconds(&member("visible_within_seconds"), rule.visible_within_seconds, faults);
    if rule.absence_is_proof && rule.unverified {
        let happened = "what no primary source confirmed proves nothing by what it does not find";
        let hint = "leave one of the two out";
        faults.push(Fault::new(&member("absence_is_proof"), FaultKind::Contradiction, happened, hint));
    }
    if rule.source.trim().is_empty() {
        let happened = "a lookup decides whether a write is sent again, so it says where it was read";
        faults.push(Fault::new(&member("source"), FaultKind::Contradiction, happened, "name the page"));
    }
}

fn is_write(pattern: &str) -> bool {
    let rule = RouteRule { pattern: pattern.into(), ..RouteRule::default() };
    let reads = ["GET ", "HEAD ", "OPTIONS "].iter().any(|method| pattern.starts_with(method));
    !reads && RouteTable::compile(&Contract { routes: vec![rule], ..Contract::default() }).is_ok()
}

/// How a template calls its segments.
fn segments(pattern: &str) -> Vec<&str> {
    pattern.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0)).collect()
}

fn carried(at: &[&str], text: &str, segments: &[&str], faults: &mut Vec<Fault>) {
    match text.split_once(':') {
        Some(("body", path)) => member_path(at, path, faults),
        Some(("form", name)) if !name.is_empty() => {}
        Some(("header", name)) => super::header::header_name(at, name, faults),
        Some(("path", segment)) if segments.contains(&segment) => {}
        _ => {
            let happened = format!("`{text}` is no place in a call");
            let hint =
                "`body:` and members of a JSON body, `form:` or `header:` and a name, or `path:` and a segment of `of`";
            faults.push(Fault::new(at, FaultKind::BadCode, happened, hint));
        }
    }
}

fn filled(at: &[&str], text: &str, segments: &[&str], faults: &mut Vec<Fault>) {
    let wrong = match placeholders(text) {
        Err(fault) => Some(fault.to_string()),
        Ok(places) => places.iter().find_map(|place| {
            let segment = place.strip_prefix("path.")?;
            (!segments.contains(&segment)).then(|| format!("`of` has no segment that is called `{segment}`"))
        }),
    };
    if let Some(happened) = wrong {
        let hint = "`{name}` is what the lookup goes by, `{path.owner}` a segment of `of`, `{body.amount}` a member of its body";
        faults.push(Fault::new(at, FaultKind::BadCode, format!("`{text}` cannot be filled: {happened}"), hint));
    }
}

fn json_path(at: &[&str], text: &str, is_list: bool, faults: &mut Vec<Fault>) {
    let happened = match Path::parse(text) {
        Err(fault) => format!("`{text}` is no path: {fault}"),
        Ok(path) if path.is_list() != is_list && !is_list => format!("`{text}` names more than one place"),
        Ok(path) if path.is_list() != is_list => format!("`{text}` names no list of candidates"),
        Ok(_) => return,
    };
    let hint = if is_list { "$.data[*]" } else { "$.metadata.reference" };
    faults.push(Fault::new(at, FaultKind::BadCode, happened, hint));
}
