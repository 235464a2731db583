//! Route templates: the lines up to an empty one are the patterns of a contract, those behind it calls. The first pattern that
//! a slow and plain matcher finds is the rule that the table finds.

use forbear_core::contract::{Contract, RouteRule};
use forbear_core::route::{RouteTable, TEMPLATE_BYTES_MAX, template};

const LINES_MAX: usize = 32;

pub(super) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (patterns, calls) = text.split_once("\n\n").unwrap_or(("", text));
    let patterns: Vec<&str> = patterns.lines().take(LINES_MAX).collect();
    let table = RouteTable::compile(&Contract { routes: patterns.iter().map(rule).collect(), ..Contract::default() });
    for call in calls.lines().take(LINES_MAX) {
        let (method, path) = call.split_once(' ').unwrap_or(("GET", call));
        is_a_name(template(method, path).as_str(), "template");
        if let Ok(table) = &table {
            check_call(table, &patterns, method, path);
        }
    }
    let Err(faults) = table else { return };
    assert!(!faults.is_empty() && faults.iter().all(|(place, _)| *place < patterns.len()));
}

fn check_call(table: &RouteTable, patterns: &[&str], method: &str, path: &str) {
    let found = table.lookup(method, path);
    is_a_name(found.template.as_str(), "lookup");
    let first = patterns.iter().position(|pattern| matches(pattern, method, path));
    match found.rule {
        // What is escaped or could be read in two ways is beyond the plain matcher.
        _ if path.contains(['%', '\\', ';']) => {}
        None if is_ambiguous(path) => assert_eq!(found.class, "uncertain_write", "{method} {path}"),
        rule => assert_eq!(rule, first, "{patterns:?}: {method} {path}"),
    }
    if found.rule.is_none() && found.class == "read" {
        assert!(matches!(method, "GET" | "HEAD" | "OPTIONS"), "{method} {path}");
    }
}

fn rule(pattern: &&str) -> RouteRule {
    RouteRule { pattern: (*pattern).into(), class: "read".into(), ..RouteRule::default() }
}

fn is_a_name(name: &str, by: &str) {
    // A pattern is the contract's own text, up to its own bound.
    assert!(name.len() <= TEMPLATE_BYTES_MAX.max(256 + 17), "{by}: {} bytes", name.len());
    assert!(!name.contains(['?', '\n']) || by == "template", "{by}: {name}");
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

fn is_ambiguous(path: &str) -> bool {
    let path = without_query(path);
    path.contains("//") || path.split('/').any(|s| matches!(s, "." | ".."))
}

fn matches(pattern: &str, method: &str, path: &str) -> bool {
    let (own, template) = pattern.split_once(' ').unwrap();
    let path = without_query(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if own != "*" && own != method && (own, method) != ("GET", "HEAD") {
        return false;
    }
    let split = |text: &str| -> Option<Vec<String>> {
        match text.strip_prefix('/') {
            None if text.is_empty() => Some(Vec::new()),
            None => None,
            Some(inner) => Some(inner.split('/').map(String::from).collect()),
        }
    };
    let template = template.trim_start_matches(' ');
    let template = if template == "/" { "" } else { template };
    let (Some(parts), Some(segments)) = (split(template), split(path)) else { return false };
    if parts.last().is_some_and(|last| last.ends_with("...}")) {
        let before = parts.len() - 1;
        return segments.len() > before && parts[..before].iter().zip(&segments).all(|(part, own)| segment(part, own));
    }
    parts.len() == segments.len() && parts.iter().zip(&segments).all(|(part, own)| segment(part, own))
}

fn segment(part: &str, own: &str) -> bool {
    match part.strip_prefix('{').and_then(|p| p.split_once('}')) {
        None => part == own,
        Some((_, "")) => !own.is_empty(),
        Some((_, verb)) => own.len() > verb.len() && own.ends_with(verb) && !verb[1..].contains(':'),
    }
}
