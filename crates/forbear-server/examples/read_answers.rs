//! What reading one answer costs: `cargo run --release -p forbear-server --example read_answers`.
//!
//! For each kind of answer how many are read a second by one thread, and how many allocations one takes. The contract is
//! the one that ships; bodies are read where the gateway reads them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use forbear_core::classify::{ResponseFacts, classify, may_disguise};
use forbear_core::contract::Contract;
use forbear_core::policy::Rank;
use forbear_core::time::{Mono, Now, Wall};
use forbear_server::config::{known_contracts, load_text};
use http::HeaderMap;

const ROUND: Duration = Duration::from_millis(500);

type Failure = Box<dyn std::error::Error>;

struct Sample {
    what: &'static str,
    provider: &'static str,
    status: u16,
    fields: &'static [(&'static str, &'static str)],
    body: &'static str,
}

const SAMPLES: [Sample; 7] = [
    Sample { what: "a success without signals", provider: "openai", status: 200, fields: PLAIN, body: "" },
    Sample { what: "a success with two windows", provider: "openai", status: 200, fields: WINDOWS, body: "" },
    Sample {
        what: "a success that may be an error in disguise",
        provider: "slack",
        status: 200,
        fields: PLAIN,
        body: r#"{"ok":true,"channel":"C123","ts":"1503435956.000247","message":{"text":"Here is a message for you"}}"#,
    },
    Sample {
        what: "a 429 with Retry-After",
        provider: "notion",
        status: 429,
        fields: &[("retry-after", "7")],
        body: "",
    },
    Sample { what: "a 429 with windows and a code", provider: "openai", status: 429, fields: WINDOWS, body: SPENT },
    Sample {
        what: "a day's quota of Google's",
        provider: "gemini",
        status: 429,
        fields: PLAIN,
        body: r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"PerDay"}]}]}}"#,
    },
    Sample { what: "a 500 without a body", provider: "aws", status: 500, fields: PLAIN, body: "" },
];

const PLAIN: &[(&str, &str)] = &[
    ("date", "Mon, 30 Nov 2026 00:53:20 GMT"),
    ("content-type", "application/json"),
    ("content-length", "120"),
    ("server", "origin"),
    ("x-request-id", "req_0123456789"),
];
const WINDOWS: &[(&str, &str)] = &[
    ("date", "Mon, 30 Nov 2026 00:53:20 GMT"),
    ("content-type", "application/json"),
    ("x-ratelimit-limit-requests", "500"),
    ("x-ratelimit-remaining-requests", "499"),
    ("x-ratelimit-reset-requests", "120ms"),
    ("x-ratelimit-limit-tokens", "30000"),
    ("x-ratelimit-remaining-tokens", "29000"),
    ("x-ratelimit-reset-tokens", "2s"),
    ("x-request-id", "req_0123456789"),
];
const SPENT: &str = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;

fn main() -> Result<(), Failure> {
    let known = known_contracts(&load_text("(no file)", "")?);
    for sample in &SAMPLES {
        let contract = known.get(sample.provider).ok_or("no such contract")?;
        let mut headers = HeaderMap::new();
        for (name, value) in sample.fields {
            headers.append(*name, value.parse()?);
        }
        let (per_second, allocations) = measured(contract, sample, &headers);
        println!("{per_second:>9} a second, {allocations:>3} allocations: {}", sample.what);
    }
    Ok(())
}

fn measured(contract: &Contract, sample: &Sample, headers: &HeaderMap) -> (u128, u64) {
    let is_read = sample.status >= 400 || may_disguise(contract, sample.status);
    let facts = ResponseFacts {
        status: sample.status,
        headers,
        body: is_read.then_some(sample.body.as_bytes()),
        received: Now { mono: Mono(1), wall: Wall(1_796_000_000_000) },
    };
    let read = || drop(black_box(classify(contract, Rank::Read, black_box(&facts))));
    let allocations = allocation_counter::measure(read).count_total;
    let (start, mut times) = (Instant::now(), 0_u128);
    while start.elapsed() < ROUND {
        (0..256).for_each(|_| read());
        times += 256;
    }
    (times * 1_000_000_000 / start.elapsed().as_nanos(), allocations)
}
