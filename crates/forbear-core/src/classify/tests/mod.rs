//! What whole answers mean: the vectors of the standards, and what went wrong elsewhere.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::*;
use crate::contract::{CodeMeaning, CodeRule, ValueFormat, WaitRule};
use crate::time::Mono;

mod arbitrary;
mod bodies;
mod faults;
mod kinds;
mod limits;
mod waits;

/// 784111747, thirty seconds before the samples of RFC 9110.
const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:07 GMT");
const SERVER_MS: i64 = 784_111_747_000;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

/// Our clock is right unless a test says otherwise.
fn at(wall_ms: i64) -> Now {
    Now { mono: Mono(5), wall: Wall(wall_ms) }
}

fn ask(contract: &Contract, status: u16, fields: &[(&str, &str)], body: &str) -> Classification {
    let headers = headers(fields);
    let body = (!body.is_empty()).then_some(body.as_bytes());
    classify(contract, Rank::Read, &ResponseFacts { status, headers: &headers, body, received: at(SERVER_MS) })
}

fn generic(status: u16, fields: &[(&str, &str)]) -> Classification {
    ask(&Contract::default(), status, fields, "")
}

fn with_body(status: u16, fields: &[(&str, &str)], body: &Value) -> Classification {
    ask(&Contract::default(), status, fields, &body.to_string())
}

fn wait(answer: &Classification) -> Option<u64> {
    answer.boundary.as_ref().map(|boundary| boundary.wait_ms)
}

fn code(at: &str, is: &str, means: CodeMeaning) -> CodeRule {
    CodeRule {
        at: at.into(),
        is: Some(is.into()),
        is_any: Vec::new(),
        contains: None,
        contains_any: Vec::new(),
        statuses: Vec::new(),
        means,
        before_work: None,
        closes: None,
        wait_seconds: None,
    }
}

fn codes(codes: Vec<CodeRule>) -> Contract {
    Contract { codes, ..Contract::default() }
}
