//! The process is killed at random moments under mixed load and started again on the same data, while agents repeat what
//! was not answered. What must hold is counted at the provider and compared with the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forbear_lab::provider::{Arrival, Options, Provider, Scenario};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::agent::{Answer, Call, ask};
use crate::journal::Journal;
use crate::rig::{Home, provider};

const KILLS: u64 = 30;
const KILLS_LONG: u64 = 500;
/// The process lives so long between two kills.
const LIFE_MS: std::ops::Range<u64> = 30..550;
const ARRIVALS_MAX: usize = 2_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// What every 429 of the scenario says.
const RETRY_AFTER_S: u64 = 1;

const SCENARIO: &str = "
routes:
  - match: 'POST /transfers'
    idempotency: {header: Idempotency-Key}
    loop: true
    then:
      - {status: 201, times: 3, process_ms: 4, effect: {name: transfer}, body: {ok: true}}
      - {status: 201, effect: {name: transfer}, fault: {at: after_commit, end: rst}}
      - {status: 201, delay_ms: 30, effect: {name: transfer}, body: {ok: true}}
      - {fault: {at: after_body, end: rst}}
      - {status: 503}
  - match: 'POST /notes'
    loop: true
    then:
      - {status: 201, times: 5, process_ms: 6, effect: {name: note}, body: {ok: true}}
      - {status: 201, delay_ms: 25, effect: {name: note}, body: {ok: true}}
      - {status: 201, effect: {name: note}, fault: {at: after_commit, end: rst}}
      - {status: 500}
  - match: 'GET /things'
    loop: true
    then:
      - {times: 3, process_ms: 3, body: {ok: true}}
      - {status: 503}
      - {fault: {at: after_body, end: rst}}
  - match: 'POST /chat'
    respond:
      event_gap_ms: 5
      events: [{data: one, repeat: 5}, {data: '[DONE]'}]
  - match: 'GET /limited'
    loop: true
    then:
      - {times: 2, body: {ok: true}}
      - {status: 429, headers: {Retry-After: '1'}}
";

const CONFIG: &str = "
request_classes:
  once: {rank: read, max_attempts: 1, max_wait_seconds: 0, retry_statuses: []}
shared_scope: {max_retries_per_minute: 1000000}
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    idempotency: {header: Idempotency-Key, retention_seconds: 86400}
    routes:
      - {match: 'POST /transfers', class: idempotent_write, idempotency_header: Idempotency-Key}
      - {match: 'POST /chat', class: inference}
      - {match: 'GET /limited', class: once}
";

/// What an agent asks for, again and again, each time something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// A write with the agent's own key.
    Keyed,
    /// A write whose key Forbear makes of the agent's reference.
    Referred,
    /// A write with nothing that a repeat could be known by but its content.
    Plain,
    Read,
    Stream,
    Limited,
}

const LANES: [Lane; 9] = [
    Lane::Keyed,
    Lane::Keyed,
    Lane::Referred,
    Lane::Plain,
    Lane::Plain,
    Lane::Plain,
    Lane::Read,
    Lane::Stream,
    Lane::Limited,
];

impl Lane {
    fn call(self, name: &str) -> Call {
        let body = format!("{{\"ref\":\"{name}\"}}");
        let call = match self {
            Self::Keyed => Call::post("/p/transfers", body).with("idempotency-key", format!("key-{name}")),
            Self::Referred => Call::post("/p/transfers", body).with("forbear-reference", name),
            Self::Plain => Call::post("/p/notes", body),
            Self::Read => Call::get(&format!("/p/things?n={name}")),
            Self::Stream => Call::post("/p/chat", body),
            Self::Limited => Call::get(&format!("/p/limited?n={name}")),
        };
        call.with("authorization", format!("Bearer {self:?}")).with("forbear-task", name)
    }

    const fn writes(self) -> bool {
        matches!(self, Self::Keyed | Self::Referred | Self::Plain)
    }
}

#[derive(Clone)]
struct Agents {
    server: watch::Receiver<Option<SocketAddr>>,
    stop: Arc<AtomicBool>,
    repeats: Arc<AtomicU64>,
    /// What the agents were told last of each of their calls.
    told: Arc<Mutex<BTreeMap<String, Answer>>>,
}

impl Agents {
    /// Works through one lane until told to stop; what was begun is asked until it is answered.
    async fn work(mut self, agent: usize, lane: Lane) {
        for n in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let name = format!("{lane:?}-{agent}-{n}");
            let call = lane.call(&name);
            loop {
                let answer = self.answered(&call).await;
                let unsent = answer.json()["sent"] == false && answer.status == 429;
                self.told.lock().expect("no agent panicked").insert(name.clone(), answer);
                // An answer that says that nothing was sent and that it may be asked again.
                if !(unsent && lane.writes()) || self.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }

    async fn answered(&mut self, call: &Call) -> Answer {
        loop {
            let server = *self.server.wait_for(Option::is_some).await.expect("the test goes on");
            match ask(server.expect("waited for"), call).await {
                Ok(answer) => return answer,
                Err(_) => self.repeats.fetch_add(1, Ordering::Relaxed),
            };
        }
    }
}

/// Enough randomness for moments; the seed is said, so that a run's moments can be had again.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(LIFE_MS.start + self.0 % (LIFE_MS.end - LIFE_MS.start))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_makes_a_second_effect_or_loses_an_action_a_key_or_a_boundary() {
    let long = std::env::var_os("FORBEAR_TEST_LONG").is_some();
    let seed = std::env::var("FORBEAR_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5EED_u64);
    println!("FORBEAR_TEST_SEED={seed}");
    let options = Options { arrivals_kept_max: ARRIVALS_MAX, ..Options::default() };
    let provider = Provider::start(Scenario::from_yaml(SCENARIO).unwrap(), options).await.unwrap();
    let home = Home::new(CONFIG, &provider.base_url());

    let (at, server) = watch::channel(None);
    let agents = Agents { server, stop: Arc::default(), repeats: Arc::default(), told: Arc::default() };
    let mut working = JoinSet::new();
    for (n, lane) in LANES.into_iter().enumerate() {
        working.spawn(agents.clone().work(n, lane));
    }
    let mut moments = Moments(seed);
    for _ in 0..if long { KILLS_LONG } else { KILLS } {
        let server = home.start().await;
        at.send_replace(Some(server.addr));
        // sleep: the moment of the kill is what is tried out.
        tokio::time::sleep(moments.next()).await;
        at.send_replace(None);
        server.kill().await;
    }
    let server = home.start().await;
    agents.stop.store(true, Ordering::Relaxed);
    at.send_replace(Some(server.addr));
    let ended = tokio::time::timeout(Duration::from_secs(60), async { while working.join_next().await.is_some() {} });
    ended.await.expect("every agent is answered in the end");
    server.stop().await;

    let told = agents.told.lock().unwrap().clone();
    let repeats = agents.repeats.load(Ordering::Relaxed);
    assert!(repeats >= 10, "the kills hit nobody: {repeats} calls were repeated");
    let journal = Journal::read(&home);
    println!(
        "{} calls, {repeats} repeats, {} arrivals, {} events",
        told.len(),
        provider.arrivals().len(),
        journal.events
    );
    journal.check();
    at_most_one_effect(&provider, &journal);
    every_arrival_is_on_record_under_one_key(&provider, &journal);
    told_refusals_close_their_scope(&provider, &told);
}

fn at_most_one_effect(provider: &Provider, journal: &Journal) {
    let mut effects: BTreeMap<String, u64> = BTreeMap::new();
    for name in provider.arrivals().iter().filter(|a| a.effect.is_some()).filter_map(reference) {
        *effects.entry(name).or_default() += 1;
    }
    assert_eq!(effects.values().sum::<u64>(), provider.effects().count);
    let doubled: Vec<_> = effects.iter().filter(|(_, n)| **n > 1).collect();
    let told: Vec<_> = doubled.iter().map(|(r, n)| format!("{r}: {n} effects, {:?}", journal.outcomes(r))).collect();
    assert!(doubled.is_empty(), "{told:#?}");
    assert!(effects.len() > 50, "only {} writes came through", effects.len());
}

fn reference(arrival: &Arrival) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(arrival.body.as_deref()?).ok()?;
    Some(body["ref"].as_str()?.to_owned())
}

fn every_arrival_is_on_record_under_one_key(provider: &Provider, journal: &Journal) {
    let mut arrived: BTreeMap<String, (u64, BTreeSet<Option<String>>)> = BTreeMap::new();
    for arrival in provider.arrivals().iter().filter(|a| a.method == "POST" && !a.target.ends_with("/chat")) {
        let Some(name) = reference(arrival) else { continue };
        let (count, keys) = arrived.entry(name).or_default();
        *count += 1;
        keys.insert(arrival.header("idempotency-key").map(str::to_owned));
    }
    for (name, (count, keys)) in &arrived {
        let sent = journal.sent.get(name).copied().unwrap_or_default();
        assert!(sent >= *count, "{name} arrived {count} times, and {sent} sends are on record");
        assert_eq!(keys.len(), 1, "{name} came under several keys: {keys:?}");
        let key = keys.first().cloned().flatten();
        match name.split('-').next() {
            Some("Keyed") => assert_eq!(key, Some(format!("key-{name}"))),
            Some("Referred") => assert!(key.is_some_and(|k| k.starts_with("fb1-"))),
            _ => assert_eq!(key, None),
        }
    }
    let several = arrived.values().filter(|(count, _)| *count > 1).count();
    assert!(several >= 5, "only {several} writes came more than once: the kills tried nothing out");
}

/// A refusal that an agent was told of was recorded first, so that nothing arrives before it allows, whatever was killed.
fn told_refusals_close_their_scope(provider: &Provider, told: &BTreeMap<String, Answer>) {
    let arrivals = provider.arrivals();
    let limited: Vec<&Arrival> = arrivals.iter().filter(|a| a.target.starts_with("/limited")).collect();
    let mut checked = 0;
    for refused in limited.iter().filter(|a| a.status == Some(429)) {
        let name = refused.target.trim_start_matches("/limited?n=");
        let knows = told.get(name).is_some_and(|a| a.status == 429 && a.field("forbear-attempts") == "1");
        let Some(head) = refused.head_written_at_ns.filter(|_| knows) else { continue };
        checked += 1;
        let opens = head + RETRY_AFTER_S * NS_PER_S;
        let early = limited.iter().find(|a| a.n > refused.n && a.at_ns < opens);
        assert!(
            early.is_none(),
            "{name} was refused, and {early:?} came {} ns early",
            opens - early.map_or(0, |a| a.at_ns)
        );
    }
    assert!(checked >= 3, "only {checked} refusals were told");
}

/// The sharpest moment for a boundary: the process is gone as soon as its refusal was told.
#[tokio::test]
async fn a_refusal_that_was_told_holds_after_the_kill() {
    let provider =
        provider("routes: [{match: 'GET /limited', then: [{status: 429, headers: {Retry-After: '1'}}, {}]}]");
    let provider = provider.await;
    for round in 1..=5 {
        provider.reset();
        let home = Home::new(CONFIG, &provider.base_url());
        let server = home.start().await;
        let told = server.ask(&Lane::Limited.call("first")).await;
        server.kill().await;
        assert_eq!(told.status, 429, "{told:?}");
        let server = home.start().await;
        let answer = server.ask(&Lane::Limited.call("second")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let arrivals = provider.arrivals();
        assert_eq!(arrivals.len(), 2);
        let opens = arrivals[0].head_written_at_ns.unwrap() + RETRY_AFTER_S * NS_PER_S;
        assert!(arrivals[1].at_ns >= opens, "round {round}: {} ns early", opens - arrivals[1].at_ns);
    }
}
