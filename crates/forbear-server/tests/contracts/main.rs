//! Every contract that ships, against answers as its provider gives them: how each is read, and over real sockets how often
//! the call goes out then. Counted at the provider.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

#[allow(dead_code, reason = "shared with other suites, which use other parts of it")]
#[path = "../governing/rig.rs"]
mod rig;

mod advice;
mod corpus;
mod disguise;
mod hosts;
mod keys;
mod lookups;
mod signature;

use std::collections::BTreeMap;

use forbear_core::classify::{
    Classification, Kind, Opening, ResponseFacts, classify, classify_event, is_event_stream, opening,
};
use forbear_core::contract::CodeRule;
use forbear_core::policy::{Compiled, Rank};
use forbear_core::time::{Mono, Now, Wall};
use forbear_lab::provider::{Arrival, credential_digest};
use forbear_server::config::{contract_names, load_text};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::{Value, json};

use rig::Rig;

const SECOND_MS: i64 = 1_796_000_001;
/// No throttled call goes out again sooner (`backoff.floor_ms`).
const FLOOR_NS: u64 = 1_000_000_000;
/// Calls that are open at once.
const TOGETHER: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    of: String,
    why: String,
    #[serde(default = "probe")]
    call: String,
    #[serde(default)]
    body_sent: Value,
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Value,
    means: Kind,
    sends: usize,
    /// Where it is not what follows from the meaning.
    outcome: Option<String>,
}

fn probe() -> String {
    "GET /probe".into()
}

impl Answer {
    fn body_bytes(&self) -> Vec<u8> {
        self.body.as_str().map_or_else(|| self.body.to_string(), String::from).into_bytes()
    }

    /// Read a second before the instants that it names.
    fn read(&self, compiled: &Compiled) -> Classification {
        let contract = &compiled.provider(&self.of).unwrap().contract;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let value = value.replace("{{epoch +1s}}", &SECOND_MS.to_string());
            let value = value.replace("{{epoch_ms +1s}}", &format!("{SECOND_MS}000"));
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let (method, path) = self.call.split_once(' ').unwrap();
        let is_looked_at =
            compiled.provider(&self.of).unwrap().routes.lookup(method, path).disguised || self.status >= 400;
        let body = self.body_bytes();
        let received = Now { mono: Mono(1), wall: Wall((SECOND_MS - 1) * 1_000) };
        let facts = |body| ResponseFacts { status: self.status, headers: &headers, body, received };
        match opening(&contract.stream, &body, true) {
            Opening::Error(data) if is_event_stream(&headers) => classify_event(contract, &facts(Some(&data))),
            _ => classify(contract, Rank::Read, &facts(is_looked_at.then_some(&body))),
        }
    }

    fn outcome(&self) -> &str {
        match (&self.outcome, self.means, self.sends) {
            (Some(outcome), ..) => outcome,
            (None, Kind::Success, _) | (None, _, 2..) => "succeeded",
            (None, Kind::Throttled, _) => "budget_exhausted",
            _ => "rejected",
        }
    }
}

fn answers() -> Vec<Answer> {
    serde_saphyr::from_str(include_str!("answers.yaml")).unwrap()
}

/// All contracts with a host, beside what else the text says.
fn configuration(base: &str) -> String {
    let entry = |name: &str| format!("  {name}: {{base_url: {base}/{name}}}\n");
    format!("providers:\n{}", contract_names().map(entry).collect::<String>())
}

#[test]
fn every_answer_is_read_as_what_it_is() {
    let compiled = load_text("t", &configuration("http://127.0.0.1:1")).unwrap().compiled;
    for answer in answers() {
        let read = answer.read(&compiled);
        assert_eq!(read.kind, answer.means, "{}, {}: {read:?}", answer.of, answer.why);
    }
}

#[test]
fn every_code_of_every_contract_is_met_by_an_answer() {
    let compiled = load_text("t", &configuration("http://127.0.0.1:1")).unwrap().compiled;
    let answers = answers();
    let read: Vec<(&Answer, String)> = answers.iter().map(|a| (a, a.read(&compiled).rule.into_owned())).collect();
    for name in contract_names() {
        let of = || read.iter().filter(|(answer, _)| answer.of == name);
        for kind in [Kind::Throttled, Kind::Exhausted] {
            let declared = compiled.provider(name).unwrap().contract.codes.iter().any(|rule| speaks(rule, kind));
            assert!(!declared || of().any(|(answer, _)| answer.means == kind), "{name}: {kind:?}");
        }
        for rule in &compiled.provider(name).unwrap().contract.codes {
            // Behind the rule stands the provider's verdict, where it gave one.
            let says = |read: &str, words: String| {
                read.strip_prefix(&words).is_some_and(|v| v.is_empty() || v.starts_with(", "))
            };
            let met = of().any(|(answer, read)| {
                let read = match read.strip_prefix("error event, ") {
                    Some(read) if rule.at.starts_with("event:") => read,
                    None if concerns(rule, answer.status) && !rule.at.starts_with("event:") => read,
                    _ => return false,
                };
                words(rule, answer.status).into_iter().any(|words| says(read, words))
            });
            assert!(met, "{name}: no answer meets {rule:?}");
        }
    }
}

fn speaks(rule: &CodeRule, kind: Kind) -> bool {
    serde_json::to_value(rule.means).unwrap() == serde_json::to_value(kind).unwrap()
}

fn concerns(rule: &CodeRule, status: u16) -> bool {
    if rule.statuses.is_empty() { status >= 400 } else { rule.statuses.contains(&status) }
}

/// What a classification by this rule says.
fn words(rule: &CodeRule, status: u16) -> Vec<String> {
    let at = rule.at.strip_prefix("body:").or(rule.at.strip_prefix("event:")).unwrap_or(&rule.at);
    let whole = rule.is.iter().chain(&rule.is_any).map(|word| format!("code {at}={word}"));
    let parts = rule.contains.iter().chain(&rule.contains_any).map(|word| format!("code {at}~{word}"));
    let words: Vec<String> = whole.chain(parts).collect();
    match rule.at.as_str() {
        "" => vec![format!("contract status {status}")],
        _ if words.is_empty() => vec![format!("code {at}")],
        _ => words,
    }
}

/// Each by an account of its own, so that no boundary of one holds up another.
#[tokio::test]
async fn every_call_goes_out_as_often_as_its_answer_allows() {
    let answers = answers();
    let routes: Vec<Value> = answers.iter().enumerate().map(|(n, answer)| route(n, answer)).collect();
    let policy = format!(
        "request_classes:\n  read: {{max_wait_seconds: 3}}\n  inference: {{max_wait_seconds: 3}}\n  \
         idempotent_write: {{max_wait_seconds: 3}}\n  uncertain_write: {{max_attempts: 2, max_wait_seconds: 3, \
         retry_statuses: [429]}}\n{}",
        configuration("$BASE")
    );
    let rig = Rig::new(&json!({"routes": routes}).to_string(), &policy).await;
    let outcomes = stream::iter(answers.iter().enumerate().map(|(n, answer)| ask(&rig, n, answer)));
    let outcomes: Vec<String> = outcomes.buffered(TOGETHER).collect().await;
    let mut sends: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    for arrival in rig.provider.arrivals() {
        sends.entry(arrival.credential.clone()).or_default().push(arrival);
    }
    let mut wrong = Vec::new();
    for (n, answer) in answers.iter().enumerate() {
        let arrivals = sends.remove(&credential_digest(&credential(n))).unwrap_or_default();
        if let ([first, second], Kind::Throttled) = (&arrivals[..], answer.means) {
            let gap_ns = second.at_ns.saturating_sub(first.head_written_at_ns.unwrap());
            assert!(gap_ns >= FLOOR_NS, "{}, {}: again after {gap_ns} ns", answer.of, answer.why);
        }
        let sent = arrivals.len();
        if (sent, outcomes[n].as_str()) != (answer.sends, answer.outcome()) {
            let Answer { of, why, .. } = answer;
            wrong.push(format!(
                "{of}, {why}: sent {sent} times, {}; {}, {}",
                outcomes[n],
                answer.sends,
                answer.outcome()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The answer once, and then a good one.
fn route(n: usize, answer: &Answer) -> Value {
    json!({
        "match": "* /{rest...}",
        "when": {"headers": {"x-answer": n.to_string()}},
        "then": [{"status": answer.status, "headers": answer.headers, "body": answer.body}, {"body": {"fine": true}}],
    })
}

fn credential(n: usize) -> String {
    format!("Bearer k{n}")
}

async fn ask(rig: &Rig, n: usize, answer: &Answer) -> String {
    let (method, path) = answer.call.split_once(' ').unwrap();
    let (number, credential) = (n.to_string(), credential(n));
    let fields = [("authorization", credential.as_str()), ("x-answer", &number), ("content-type", "application/json")];
    let body = if answer.body_sent.is_null() { String::new() } else { answer.body_sent.to_string() };
    let got = rig.call(method, &format!("/{}{path}", answer.of), &fields, &body).await;
    got.header("forbear-outcome").to_owned()
}
