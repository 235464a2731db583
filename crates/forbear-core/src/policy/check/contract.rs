//! Whether one provider's contract makes sense.

use http::{HeaderValue, Uri};

use super::header::{header_name, key_header, names};
use super::lookup::lookup;
use super::{Fault, FaultKind, SCOPE_MAX, bounds, is_name, seconds};
use crate::classify::TEXT;
use crate::contract::{AdviceRule, CodeRule, Contract, ScopeLimits, WaitRule};
use crate::policy::{Policy, Rank};
use crate::route::{RouteTable, TEMPLATE_BYTES_MAX};

/// Lists of a contract other than its routes.
const LIST_MAX: usize = 256;
/// What an advice says, on every answer that carries it.
const ADVICE_BYTES_MAX: usize = 200;
/// Each is replaced every few seconds: more would be a load on the provider of its own.
const WARM_CONNECTIONS_MAX: u64 = 8;

pub(super) fn scope(at: &[&str], limits: ScopeLimits, faults: &mut Vec<Fault>) {
    let mut bound = |key, is: Option<u32>, least| {
        if let Some(is) = is {
            bounds(&[at, &[key]].concat(), is.into(), least, SCOPE_MAX.into(), faults);
        }
    };
    bound("max_delayed_requests", limits.max_delayed_requests, 0);
    bound("max_concurrent_requests", limits.max_concurrent_requests, 1);
    bound("max_retries_per_minute", limits.max_retries_per_minute, 0);
    bound("kept_for_interactive", limits.kept_for_interactive, 0);
}

pub(super) fn contract(policy: &Policy, name: &str, contract: &Contract, faults: &mut Vec<Fault>) {
    let root: &[&str] = &["providers", name];
    let at = |key| [root, &[key]].concat();
    if !is_name(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.')) {
        faults.push(Fault::new(
            root,
            FaultKind::BadName,
            format!("`{name}` cannot be the name of a provider: it is the first segment of the path that agents use"),
            "lower-case letters, digits, `-`, `_` and `.`, 64 at most, a letter or digit first",
        ));
    }
    if let Err((kind, happened, hint)) = base_url(&contract.base_url) {
        let like = contract.hosts.iter().find_map(|host| host.strip_prefix("*."));
        let like = like.filter(|_| contract.base_url.is_empty());
        let hint =
            like.map_or_else(|| hint.to_owned(), |host| format!("it is your own: base_url: https://<name>.{host}"));
        faults.push(Fault::new(&at("base_url"), kind, happened, hint));
    }
    bounds(&at("warm_connections"), contract.warm_connections.into(), 0, WARM_CONNECTIONS_MAX, faults);
    if let Some(lives) = contract.signature_seconds {
        seconds(&at("signature_seconds"), lives, faults);
    }
    scope(&at("scope"), contract.scope, faults);
    for (i, rule) in contract.routes.iter().enumerate() {
        if let Some(header) = &rule.idempotency_header {
            let place = i.to_string();
            let at = [root, &["routes", &place, "idempotency_header"]].concat();
            key_header(&at, header, &contract.credential_headers, faults);
        }
    }
    super::quota::quota(root, contract, policy.pacing, faults);
    routes(policy, root, contract, faults);
    names(&at("credential_headers"), contract.credential_headers.iter(), faults);
    names(&at("verdict_headers"), contract.verdict_headers.iter(), faults);
    names(&at("url_headers"), contract.url_headers.iter(), faults);
    for (header, value) in &contract.no_retry_headers {
        let at = [root, &["no_retry_headers", header]].concat();
        header_name(&at, header, faults);
        if HeaderValue::from_str(value).is_err() {
            faults.push(Fault::new(&at, FaultKind::BadHeader, "this is no header value", "printable ASCII only"));
        }
    }
    for (i, limit) in contract.limit_headers.iter().enumerate() {
        header_name(&[root, &["limit_headers", &i.to_string(), "name"]].concat(), &limit.name, faults);
    }
    for (i, field) in contract.attempts_below.iter().enumerate() {
        header_name(&[root, &["attempts_below", &i.to_string(), "header"]].concat(), &field.header, faults);
    }
    for (i, rule) in contract.codes.iter().enumerate() {
        code(&[root, &["codes", &i.to_string()]].concat(), rule, faults);
    }
    for (i, rule) in contract.waits.iter().enumerate() {
        wait(&[root, &["waits", &i.to_string()]].concat(), rule, faults);
    }
    for (i, rule) in contract.advice.iter().enumerate() {
        advice(&[root, &["advice", &i.to_string()]].concat(), rule, faults);
    }
    for (i, rule) in contract.lookups.iter().enumerate() {
        lookup(&[root, &["lookups", &i.to_string()]].concat(), rule, faults);
    }
    for (i, host) in contract.hosts.iter().enumerate() {
        if !is_host(host) {
            let happened = format!("`{host}` is no host");
            let hint = "a name without scheme, port and path; a leading `*.` is a customer's own";
            faults.push(Fault::new(&[root, &["hosts", &i.to_string()]].concat(), FaultKind::BadUrl, happened, hint));
        }
    }
    for (key, length) in [
        ("codes", contract.codes.len()),
        ("limit_headers", contract.limit_headers.len()),
        ("waits", contract.waits.len()),
        ("hosts", contract.hosts.len()),
        ("advice", contract.advice.len()),
        ("attempts_below", contract.attempts_below.len()),
        ("lookups", contract.lookups.len()),
    ] {
        if length > LIST_MAX {
            let happened = format!("{length} entries; {LIST_MAX} is the most");
            faults.push(Fault::new(&at(key), FaultKind::TooMany, happened, "remove some"));
        }
    }
    if let Some(idempotency) = &contract.idempotency {
        let at = at("idempotency");
        match &idempotency.member {
            None => {
                let at = [&at[..], &["header"]].concat();
                key_header(&at, &idempotency.header, &contract.credential_headers, faults);
            }
            Some(path) if idempotency.header.is_empty() => {
                member_path(&[&at[..], &["member"]].concat(), path, faults);
            }
            Some(_) => faults.push(Fault::new(
                &[&at[..], &["member"]].concat(),
                FaultKind::Contradiction,
                "a key stands in a header or in the body, not in both",
                "keep one of the two",
            )),
        }
        if let Some(path) = &idempotency.only_with {
            member_path(&[&at[..], &["only_with"]].concat(), path, faults);
        }
        if let Some(replay) = &idempotency.replay_header {
            header_name(&[&at[..], &["replay_header"]].concat(), replay, faults);
        }
        // Years are fine: a provider may keep keys for good.
        bounds(&[&at[..], &["retention_seconds"]].concat(), idempotency.retention_seconds, 1, u64::MAX, faults);
        for (i, method) in idempotency.methods.iter().enumerate() {
            if !is_method(method) {
                let place = i.to_string();
                let at = [&at[..], &["methods", &place]].concat();
                let happened = format!("`{method}` is no method");
                faults.push(Fault::new(&at, FaultKind::BadRoute, happened, "upper-case letters: POST"));
            }
        }
    }
}

fn is_method(method: &str) -> bool {
    !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
}

type Refusal = (FaultKind, String, &'static str);

fn base_url(text: &str) -> Result<(), Refusal> {
    let bad = |happened: String, hint| Err((FaultKind::BadUrl, happened, hint));
    if text.is_empty() {
        return bad("no base_url".into(), "say where the provider is: base_url: https://api.example.com");
    }
    // Asked first: no message may repeat the text then.
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest).split(['/', '?', '#']).next();
    if authority.is_some_and(|a| a.contains('@')) {
        return Err((
            FaultKind::CredentialInUrl,
            "a credential stands in the URL".into(),
            "remove it; agents send their own, in a header",
        ));
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return bad(format!("`{text}` is no URL"), "scheme, host and maybe a path: https://api.example.com/v1");
    };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return bad(format!("`{text}` has no scheme"), "write it in full: https://api.example.com");
    };
    if !matches!(scheme, "http" | "https") {
        return bad(format!("`{scheme}` is no scheme that Forbear speaks"), "https, or http on this machine");
    }
    if uri.query().is_some() || text.contains('#') {
        return bad("a base URL has no query and no fragment".into(), "remove everything from `?` or `#` on");
    }
    if text.ends_with('/') {
        return bad(
            format!("`{text}` ends with a slash"),
            "remove it: the path that an agent asks for begins with one",
        );
    }
    // `Authority::port` is silent about a port that does not fit.
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let bad_port = !port.is_empty() && !port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok_and(|p| p > 0));
    if authority.host().is_empty() || bad_port {
        return bad(format!("`{authority}` is no host"), "a name or an address, and maybe a port below 65536");
    }
    if scheme == "http" && !is_loopback(authority.host()) {
        return Err((
            FaultKind::PlainHttp,
            "credentials and contents will cross the network unencrypted".into(),
            "use https, unless this network is yours",
        ));
    }
    Ok(())
}

/// Whether a host of a URL is this machine by its spelling; names are not looked up here.
fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let is_address = bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_address || bare.eq_ignore_ascii_case("localhost")
}

/// It goes out in a header field, and speaks of calls that may be made again.
fn advice(at: &[&str], rule: &AdviceRule, faults: &mut Vec<Fault>) {
    if !rule.route.starts_with("GET /") || rule.route.len() > TEMPLATE_BYTES_MAX {
        let happened = format!("`{}` names no route that is read", rule.route);
        faults.push(Fault::new(&[at, &["route"]].concat(), FaultKind::BadRoute, happened, "GET /v1/things/{id}"));
    }
    let texts = [("say", Some(&rule.say), ADVICE_BYTES_MAX), ("see", rule.see.as_ref(), TEMPLATE_BYTES_MAX)];
    for (key, text, most) in texts {
        let is_line =
            |text: &String| (1..=most).contains(&text.len()) && text.bytes().all(|b| matches!(b, b' '..=b'~'));
        if text.is_some_and(|text| !is_line(text)) {
            let happened = "this cannot be said in a header field";
            let hint = format!("one line of 1 to {most} printable ASCII characters");
            faults.push(Fault::new(&[at, &[key]].concat(), FaultKind::BadHeader, happened, hint));
        }
    }
}

fn routes(policy: &Policy, root: &[&str], contract: &Contract, faults: &mut Vec<Fault>) {
    let at = |i: usize, key| -> Vec<String> {
        root.iter().copied().chain(["routes", &i.to_string(), key]).map(String::from).collect()
    };
    let mut push = |at: Vec<String>, kind, happened: String, hint: &str, candidates| {
        faults.push(Fault { at, kind, happened, hint: hint.into(), candidates });
    };
    if let Err(bad) = RouteTable::compile(contract) {
        for (i, fault) in bad {
            let pattern = &contract.routes[i].pattern;
            let happened = format!("`{pattern}` is no route: {fault}");
            push(
                at(i, "match"),
                FaultKind::BadRoute,
                happened,
                "for example POST /v1/charges/{id}/capture",
                Vec::new(),
            );
        }
    }
    for (i, rule) in contract.routes.iter().enumerate() {
        let own = policy.request_classes.get(&rule.class);
        if own.is_none() {
            let happened = format!("there is no class `{}`", rule.class);
            let known = policy.request_classes.keys().cloned().collect();
            push(at(i, "class"), FaultKind::UnknownClass, happened, "one of the request_classes", known);
        }
        for (n, member) in rule.content_ignores.iter().enumerate() {
            if member.split('.').any(str::is_empty) {
                let mut place = at(i, "content_ignores");
                place.push(n.to_string());
                let happened = format!("`{member}` is no member of a JSON body");
                push(
                    place,
                    FaultKind::BadCode,
                    happened,
                    "members joined by dots, for example meta.attempt",
                    Vec::new(),
                );
            }
        }
        let rank = Rank::built_in(&rule.class).or_else(|| own.and_then(|o| o.rank));
        if rule.coalescable && rank.is_some_and(|rank| rank != Rank::Read) {
            let happened = format!("`{}` is no read, and each of its calls is one of its own", rule.pattern);
            push(
                at(i, "coalescable"),
                FaultKind::Contradiction,
                happened,
                "only reads can be one send for several",
                Vec::new(),
            );
        }
        let method = rule.pattern.split(' ').next().unwrap_or_default();
        let by_contract = contract.idempotency.as_ref().is_some_and(|k| k.methods.iter().any(|m| m == method));
        if rank == Some(Rank::IdempotentWrite) && rule.idempotency_header.is_none() && !by_contract && !rule.repeatable
        {
            push(
                at(i, "class"),
                FaultKind::NoKey,
                format!("`{}` is called idempotent, but no header carries a key", rule.pattern),
                "add `idempotency_header:` where the provider honours one, or `repeatable: true` where repeating the call \
                 is harmless; else the class is uncertain_write",
                Vec::new(),
            );
        }
    }
}

/// `api.example.com`, or `*.example.com` where each customer has a name of its own.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    name.contains('.')
        && name.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

pub(super) fn member_path(at: &[&str], path: &str, faults: &mut Vec<Fault>) {
    if path.split('.').any(str::is_empty) {
        let happened = format!("`{path}` is no member of a JSON body");
        faults.push(Fault::new(
            at,
            FaultKind::BadCode,
            happened,
            "members joined by dots, for example error.limit.reset",
        ));
    }
}

fn wait(at: &[&str], rule: &WaitRule, faults: &mut Vec<Fault>) {
    member_path(&[at, &["at"]].concat(), &rule.at, faults);
    for (key, path) in [("has", &rule.has), ("per_second", &rule.per_second)] {
        path.iter().for_each(|path| member_path(&[at, &[key]].concat(), path, faults));
    }
    if rule.has.is_some() != rule.per_second.is_some() {
        let happened = "a bucket that refills says what it `has` and what comes in `per_second`";
        faults.push(Fault::new(&[at, &["has"]].concat(), FaultKind::Contradiction, happened, "say both or neither"));
    }
}

fn code(at: &[&str], rule: &CodeRule, faults: &mut Vec<Fault>) {
    let member = |key| [at, &[key]].concat();
    let words = [rule.is.is_some(), !rule.is_any.is_empty(), rule.contains.is_some(), !rule.contains_any.is_empty()];
    let words = words.into_iter().filter(|there| *there).count();
    let hint = "`body:` and members of a JSON body joined by dots (body:error.code), `event:` and those of a stream's error event, `header:` and a name, or `text`";
    match rule.at.split_once(':') {
        Some(("body" | "event", path)) if !path.is_empty() && path.split('.').all(|m| !m.is_empty()) => {}
        Some(("header", name)) => header_name(&member("at"), name, faults),
        None if rule.at == TEXT && words > 0 => {}
        None if rule.at.is_empty() && words == 0 && !rule.statuses.is_empty() => {}
        _ => {
            let happened = match rule.at.as_str() {
                "" => "no place says where the code stands".to_owned(),
                TEXT => "a body as text always is there: nothing says what it contains".to_owned(),
                at => format!("`{at}` is no place to read a code from"),
            };
            faults.push(Fault::new(&member("at"), FaultKind::BadCode, happened, hint));
        }
    }
    if words > 1 {
        faults.push(Fault::new(
            &member("contains"),
            FaultKind::Contradiction,
            "a code `is` something or `contains` it, and is it or one of several, not both",
            "keep one of is, is_any, contains and contains_any",
        ));
    }
    for (i, status) in rule.statuses.iter().enumerate() {
        bounds(&[at, &["statuses", &i.to_string()]].concat(), (*status).into(), 100, 599, faults);
    }
    if let Some(wait) = rule.wait_seconds {
        seconds(&member("wait_seconds"), wait, faults);
    }
}
