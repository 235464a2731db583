//! Whether a contract names header fields that can mean what it wants of them.
//!
//! What frames a message or belongs to one hop is no provider's word and reaches none; what begins with `forbear-` is between
//! agents and Forbear. An idempotency key is recorded as it is, so it stands in no field that holds a credential.

use http::HeaderName;

use super::{Fault, FaultKind};

/// Fields of a message's framing, its connection and its routing.
const OF_THE_HOP: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Fields that hold credentials, whichever provider it is.
const CREDENTIALS: [&str; 9] = [
    "api-key",
    "authorization",
    "cookie",
    "private-token",
    "set-cookie",
    "x-amz-security-token",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
];

pub(super) fn names<'a>(at: &[&str], headers: impl Iterator<Item = &'a String>, faults: &mut Vec<Fault>) {
    for (i, header) in headers.enumerate() {
        header_name(&[at, &[&i.to_string()]].concat(), header, faults);
    }
}

pub(super) fn header_name(at: &[&str], name: &str, faults: &mut Vec<Fault>) {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        let happened = format!("`{name}` is no header name");
        faults.push(Fault::new(at, FaultKind::BadHeader, happened, "letters, digits and `-`, without the colon"));
        return;
    };
    let name = name.as_str();
    let (happened, hint) = if name.starts_with("forbear-") {
        ("is Forbear's own, and no provider's", "name the field that the provider itself reads or sends")
    } else if OF_THE_HOP.contains(&name) || name.starts_with("proxy-") {
        ("belongs to the connection, and does not pass through Forbear", "name a field that goes from end to end")
    } else {
        return;
    };
    faults.push(Fault::new(at, FaultKind::BadHeader, format!("`{name}` {happened}"), hint));
}

/// As [`header_name`], for the field of an idempotency key.
pub(super) fn key_header(at: &[&str], name: &str, credentials: &[String], faults: &mut Vec<Fault>) {
    let before = faults.len();
    header_name(at, name, faults);
    let is_credential = CREDENTIALS.iter().copied().chain(credentials.iter().map(String::as_str));
    if faults.len() == before && is_credential.into_iter().any(|other| other.eq_ignore_ascii_case(name)) {
        let happened = format!("`{name}` holds a credential, and a key is recorded as it is");
        faults.push(Fault::new(at, FaultKind::BadHeader, happened, "a field for the key alone: Idempotency-Key"));
    }
}
