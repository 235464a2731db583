//! Which route a request belongs to, whose sequence it takes part in, and what its idempotency key is.

use std::collections::BTreeMap;

use super::request::Request;
use super::scenario::{Idempotency, Per, Route, When};

/// With `body: None` conditions on the body are taken to hold.
pub(crate) fn route_matches(route: &Route, request: &Request, body: Option<&[u8]>) -> Option<BTreeMap<String, String>> {
    let values = route.pattern.matches(&request.method, request.path())?;
    let When { headers, without_headers, query, body: pointers } = &route.when;
    let holds = headers
        .iter()
        .all(|(name, wanted)| request.header(name).is_some_and(|is| wanted == "*" || is == wanted))
        && without_headers.iter().all(|name| request.header(name).is_none())
        && query.iter().all(|(name, wanted)| request.query_value(name).is_some_and(|is| wanted == "*" || is == wanted));
    if !holds {
        return None;
    }
    if let Some(body) = body
        && !pointers.is_empty()
    {
        let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let absent = serde_json::Value::Null;
        if pointers.iter().any(|(pointer, wanted)| value.pointer(pointer).unwrap_or(&absent) != wanted) {
            return None;
        }
    }
    Some(values)
}

pub(crate) fn scope(
    per: &Per,
    request: &Request,
    path_values: Option<&BTreeMap<String, String>>,
    body: &[u8],
) -> String {
    match per {
        Per::Global => String::new(),
        Per::Credential => request.credential.clone(),
        Per::Connection => request.connection.to_string(),
        Per::Header(name) => request.header(name).unwrap_or_default().to_owned(),
        Per::Path(name) => path_values.and_then(|values| values.get(name)).cloned().unwrap_or_default(),
        Per::Query(name) => request.query_value(name).unwrap_or_default().to_owned(),
        Per::Body(pointer) => body_text(body, pointer),
    }
}

pub(crate) fn key_of(rules: &Idempotency, request: &Request, body: &[u8]) -> Option<String> {
    let key = match (&rules.header, &rules.body) {
        (Some(name), _) => request.header(name).unwrap_or_default().to_owned(),
        (_, Some(pointer)) => body_text(body, pointer),
        _ => String::new(),
    };
    (!key.is_empty()).then_some(key)
}

fn body_text(body: &[u8], pointer: &str) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    match value.pointer(pointer) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
