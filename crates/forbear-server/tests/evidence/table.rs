//! Rows, how they are called, and what is compared.

use std::fmt::Write as _;
use std::sync::Arc;

use forbear_core::event::{Event, Fact};
use forbear_server::serve::Running;
use forbear_store::Reader;
use futures_util::StreamExt as _;

use crate::agent::{PATIENCE, Raw, raw_field};
use crate::peer::{Peer, Play};
use crate::rig;

/// Rows called at once.
const AT_ONCE: usize = 12;
/// Above the kept bodies of these tests, so that a half-sent one is streamed.
const REPLAY_BYTES_MAX: usize = 4096;
const DECLARED_BYTES: usize = 20_000;

/// The classes each row is called in, by their paths.
const CLASSES: [&str; 3] = ["read", "uncertain", "keyed"];

/// How much of the body the agent sends before it waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sends {
    Whole,
    Half,
}

/// What is on record of one call, and what its agent was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Of every recorded result, in order. A read that went straight has none.
    pub(crate) evidence: &'static str,
    pub(crate) effect: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) status: u16,
}

const fn told(evidence: &'static str, effect: &'static str, outcome: &'static str, status: u16) -> Told {
    Told { evidence, effect, outcome, status }
}

/// By class: read, uncertain write, write with an honoured key.
pub(crate) type ByClass = [Told; 3];

pub(crate) const UNSENT: ByClass = [
    told("not_sent not_sent not_sent", "not_applied", "budget_exhausted", 504),
    told("not_sent not_sent not_sent", "not_applied", "not_applied", 422),
    told("not_sent not_sent not_sent", "not_applied", "not_applied", 422),
];
pub(crate) const REFUSED: ByClass = [
    told("refused refused refused", "not_applied", "budget_exhausted", 504),
    told("refused refused refused", "not_applied", "not_applied", 422),
    told("refused refused refused", "not_applied", "not_applied", 422),
];
pub(crate) const UNKNOWN: ByClass = [
    told("unknown unknown unknown unknown", "unknown", "budget_exhausted", 504),
    told("unknown", "unknown", "outcome_unknown", 422),
    told("unknown unknown unknown", "unknown", "outcome_unknown", 422),
];
/// The same for a body that could be streamed only once.
pub(crate) const UNKNOWN_ONCE: ByClass = [
    told("unknown", "unknown", "budget_exhausted", 504),
    told("unknown", "unknown", "outcome_unknown", 422),
    told("unknown", "unknown", "outcome_unknown", 422),
];
pub(crate) const DONE: ByClass = done(200);
pub(crate) const CUT: ByClass = [
    told("", "applied", "stream_incomplete", 200),
    told("answered answered_partially", "unknown", "outcome_unknown", 200),
    told("answered answered_partially", "unknown", "outcome_unknown", 200),
];

pub(crate) const fn done(status: u16) -> ByClass {
    [
        told("", "applied", "succeeded", status),
        told("answered", "applied", "succeeded", status),
        told("answered", "applied", "succeeded", status),
    ]
}

pub(crate) const fn rejected(status: u16) -> ByClass {
    [told("answered", "not_applied", "rejected", status); 3]
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) sends: Sends,
    /// None: nobody listens.
    pub(crate) play: Option<Play>,
    pub(crate) expects: ByClass,
    /// Connections, heads and whole bodies of one attempt.
    pub(crate) an_attempt: (usize, usize, usize),
    /// All attempts of a call come on one connection.
    pub(crate) is_shared: bool,
}

pub(crate) fn row(name: &'static str, play: Play, expects: ByClass, an_attempt: (usize, usize, usize)) -> Row {
    Row { name, sends: Sends::Whole, play: Some(play), expects, an_attempt, is_shared: false }
}

impl Row {
    pub(crate) fn half(self) -> Self {
        Self { sends: Sends::Half, ..self }
    }

    pub(crate) fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }
}

/// A server before providers of these names and base URLs, with short waits.
pub(crate) async fn gateway(
    providers: impl IntoIterator<Item = (String, String)>,
    more: &str,
    dir: &tempfile::TempDir,
) -> Running {
    let mut policy = format!(
        "backoff: {{base_ms: 10, cap_ms: 50, floor_ms: 10}}\npacing: {{release_gap_ms: 0, jitter_ms: 0}}\n\
         body_replay_bytes_max: {REPLAY_BYTES_MAX}\n{more}providers:\n"
    );
    for (name, keys) in providers {
        let _ = write!(
            policy,
            "  {name}:\n    {keys}\n    routes:\n      - {{match: 'POST /read', class: read}}\n      \
             - {{match: 'POST /keyed', class: idempotent_write, idempotency_header: Idempotency-Key}}\n"
        );
    }
    rig::serve("", &policy, dir).await
}

/// Calls every row in every class, and says of all at once what was not as expected.
pub(crate) async fn check(rows: Vec<Row>, keys: impl Fn(&Peer) -> String, more: &str) {
    let (mut calls, mut providers) = (Vec::new(), Vec::new());
    for (n, row) in rows.into_iter().map(Arc::new).enumerate() {
        for (class, path) in CLASSES.into_iter().enumerate() {
            let peer = match &row.play {
                Some(play) => Peer::start(Arc::clone(play)).await,
                None => Peer::nobody(),
            };
            let name = format!("p{n}-{path}");
            providers.push((name.clone(), keys(&peer)));
            calls.push((Arc::clone(&row), class, name, peer));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let running = gateway(providers, more, &dir).await;
    let each = calls.into_iter().map(|(row, class, name, peer)| {
        let running = &running;
        async move { one(running, &row, class, &name, &peer).await }
    });
    let faults: Vec<String> =
        futures_util::stream::iter(each).buffer_unordered(AT_ONCE).filter_map(async |f| f).collect().await;
    assert!(faults.is_empty(), "{} are not as expected:\n{}", faults.len(), faults.join("\n"));
    running.stop().await;
}

/// Calls one row in one class; gives what differs.
async fn one(running: &Running, row: &Row, class: usize, name: &str, peer: &Peer) -> Option<String> {
    let expected = row.expects[class];
    let mut agent = Raw::connect(running.addr()).await;
    agent.write(request(&format!("/{name}/{}", CLASSES[class]), row.sends)).await;
    let head = agent.head().await;
    peer.head_was_read.add_permits(1);
    agent.rest().await;
    let action = raw_field(&head, "forbear-action").unwrap_or_else(|| panic!("{}: {head:?}", row.name)).to_owned();
    let events = events(running, &action).await;
    let (connections, heads, bodies) = row.an_attempt;
    let tries = tries(expected.evidence);
    let expected_arrivals =
        (if row.is_shared { connections } else { connections * tries }, heads * tries, bodies * tries);
    let is = (on_record(&events, &head), charged(&events), peer.counts.seen());
    let should = (describe(expected), tries - 1, expected_arrivals);
    (is != should).then(|| {
        let transport: Vec<_> = events.iter().filter_map(transport).collect();
        format!("{} as {}:\n  is     {is:?}\n  should {should:?}\n  {transport:?}", row.name, CLASSES[class])
    })
}

pub(crate) fn request(path: &str, sends: Sends) -> Vec<u8> {
    let (declared, body) = match sends {
        Sends::Whole => (2, "hi".to_owned()),
        Sends::Half => (DECLARED_BYTES, "x".repeat(DECLARED_BYTES / 2)),
    };
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {declared}\r\n\r\n{body}").into()
}

fn tries(evidence: &str) -> usize {
    evidence.split(' ').filter(|e| !e.is_empty() && *e != "answered_partially").count().max(1)
}

fn describe(told: Told) -> String {
    format!("[{}] effect {} outcome {} status {}", told.evidence, told.effect, told.outcome, told.status)
}

fn on_record(events: &[Event], head: &str) -> String {
    let evidence: Vec<String> = events.iter().filter_map(evidence).collect();
    let finished = events.iter().find_map(|e| match &e.fact {
        Fact::ActionFinished(finished) => Some(finished),
        _ => None,
    });
    let finished = finished.unwrap();
    let status = head.split(' ').nth(1).unwrap_or_default();
    let word = |v: serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    let effect = word(serde_json::to_value(finished.effect).unwrap());
    format!("[{}] effect {effect} outcome {} status {status}", evidence.join(" "), finished.outcome.as_str())
}

pub(crate) fn evidence(event: &Event) -> Option<String> {
    match &event.fact {
        Fact::ActionResult(result) => serde_json::to_value(result.evidence).unwrap().as_str().map(str::to_owned),
        _ => None,
    }
}

fn transport(event: &Event) -> Option<String> {
    match &event.fact {
        Fact::ActionResult(result) => result.transport.clone(),
        _ => None,
    }
}

fn charged(events: &[Event]) -> usize {
    events.iter().filter(|e| matches!(e.fact, Fact::RetryScheduled { .. })).count()
}

/// The events of an action that has its outcome.
pub(crate) async fn events(running: &Running, action: &str) -> Vec<Event> {
    let reader = Reader::open(running.data_dir()).unwrap();
    let action = action.parse().unwrap();
    let waiting = async {
        loop {
            match reader.action(action).unwrap() {
                Some(story) if story.action.outcome.is_some() => return story.events,
                // sleep: between looks at the journal, within PATIENCE.
                _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the outcome is on record within patience")
}
