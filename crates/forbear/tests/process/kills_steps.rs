//! The process is killed at each step of one action, held there by what is outside of it: the disk by a lock that the
//! test holds on the database, the dial by a listener whose queue is full, the send and the answer by the provider. So no
//! step needs a word in the product, and a release can be tried as well as a debug build.
//!
//! Then it starts again on the same data, the agent asks again, and the provider counts.

use std::time::Duration;

use forbear_core::event::{Event, Fact};
use forbear_core::ids::Seq;
use forbear_lab::provider::Provider;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::agent::{Answer, Call, ask};
use crate::holds::{Door, Lock};
use crate::journal::Journal;
use crate::rig::{Home, Server, provider, until};

const SOON: Duration = Duration::from_secs(15);
/// How long the provider gives the test to take the lock.
const HOLD_MS: u64 = 800;
const NS_PER_S: u64 = 1_000_000_000;
const EVENTS_MAX: usize = 10_000;

const CONFIG: &str = "
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    idempotency: {header: Idempotency-Key, retention_seconds: 86400}
    routes:
      - {match: 'POST /keyed', class: idempotent_write}
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing but its content tells a repeat.
    Uncertain,
    /// Under the agent's key.
    Keyed,
    Read,
    /// Under the agent's key; the step is that of the attempt after a 429.
    Retried,
}

/// Where the process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Before the intent: half of the body is there.
    HalfAsked,
    /// The intent, or the retry's, is appended and not durable.
    NotDurable,
    /// It is durable, and no byte has left.
    NotDialled,
    /// The head has left.
    FirstByte,
    /// The provider has done it and said nothing.
    Acted,
    /// The answer's head was read, and the result is not durable.
    HeadRead,
    /// The agent has its answer, and the end is not durable.
    Answered,
}

const STEPS: [Step; 7] =
    [Step::HalfAsked, Step::NotDurable, Step::NotDialled, Step::FirstByte, Step::Acted, Step::HeadRead, Step::Answered];

impl Kind {
    fn call(self) -> Call {
        let call = match self {
            Self::Uncertain => Call::post("/p/plain", "{\"amount\":1}"),
            Self::Keyed | Self::Retried => Call::post("/p/keyed", "{\"amount\":1}").with("idempotency-key", "order 7"),
            Self::Read => Call::get("/p/read"),
        };
        call.with("authorization", "Bearer k").with("forbear-task", "t")
    }

    const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Attempts before the one that is killed.
    const fn before(self) -> usize {
        matches!(self, Self::Retried) as usize
    }

    /// What the agent is told in the end, and how often it was done.
    fn end(self, step: Step) -> (u16, u64) {
        let left = !matches!(step, Step::HalfAsked | Step::NotDurable);
        let acted = matches!(step, Step::Acted | Step::HeadRead | Step::Answered);
        match self {
            Self::Read => (200, 0),
            Self::Keyed | Self::Retried => (201, 1),
            // Nobody can tell any more, and it is not sent again on hope.
            Self::Uncertain if left => (422, u64::from(acted)),
            Self::Uncertain => (201, 1),
        }
    }
}

fn scenario(kind: Kind, step: Step) -> String {
    let (route, status, effect) = match kind {
        Kind::Uncertain => ("POST /plain", 201, "effect: {name: e}, "),
        Kind::Keyed | Kind::Retried => ("POST /keyed", 201, "effect: {name: e}, "),
        Kind::Read => ("GET /read", 200, ""),
    };
    let left = "headers: {X-RateLimit-Remaining: '7', X-RateLimit-Reset: '60'}";
    let first = match step {
        Step::HalfAsked | Step::NotDurable | Step::NotDialled => String::new(),
        Step::FirstByte => "- {fault: {at: after_head, end: stall}}".into(),
        Step::Acted => format!("- {{status: {status}, {effect}fault: {{at: after_commit, end: stall}}}}"),
        Step::HeadRead => format!("- {{status: {status}, {effect}delay_ms: {HOLD_MS}, {left}, body: done}}"),
        Step::Answered => format!(
            "- {{status: {status}, {effect}bytes: 20, framing: chunked, chunk_bytes: 10, chunk_gap_ms: {HOLD_MS}}}"
        ),
    };
    let refused =
        if kind.before() > 0 { "- {status: 429, headers: {Retry-After: '1'}, connection: close}" } else { "" };
    format!(
        "
routes:
  - match: '{route}'
    idempotency: {{header: Idempotency-Key, remember_statuses: [201]}}
    then:
      {refused}
      {first}
      - {{status: {status}, {effect}body: {{ok: true}}}}
"
    )
}

fn events(home: &Home) -> Vec<Event> {
    home.reader().events(Seq(1), EVENTS_MAX).expect("the journal can be read")
}

/// How many of these facts are durable: intents, sends, results, ends.
fn known(home: &Home) -> [usize; 4] {
    let events = events(home);
    let count = |is: fn(&Fact) -> bool| events.iter().filter(|e| is(&e.fact)).count();
    [
        count(|f| matches!(f, Fact::ActionRequested(_))),
        count(|f| matches!(f, Fact::ActionSent { .. })),
        count(|f| matches!(f, Fact::ActionResult(_))),
        count(|f| matches!(f, Fact::ActionFinished(_))),
    ]
}

async fn in_flight(server: &Server) -> bool {
    let scopes = server.control("/-/v1/scopes").await;
    scopes["items"].as_array().is_some_and(|rows| rows.iter().any(|r| r["in_flight"] == 1))
}

async fn sees_windows(server: &Server) -> bool {
    let scopes = server.control("/-/v1/scopes").await;
    scopes["items"].as_array().is_some_and(|rows| rows.iter().any(|r| r["remaining"] == 7))
}

fn asked(server: &Server, call: Call) -> JoinHandle<std::io::Result<Answer>> {
    let addr = server.addr;
    tokio::spawn(async move { ask(addr, &call).await })
}

/// Brings the action to the step and the process to its end there. The lock is held until the process is gone.
async fn killed_at(kind: Kind, step: Step, home: &Home, provider: &Provider, door: &mut Option<Door>) {
    let server = home.start().await;
    let nth = kind.before() + 1;
    let call = kind.call();
    let retry_is_planned = async || {
        until("the retry is planned", SOON, async || {
            events(home).iter().any(|e| matches!(e.fact, Fact::RetryScheduled { .. }))
        })
        .await;
    };
    let (_lock, asking) = match step {
        Step::HalfAsked => {
            let mut socket = TcpStream::connect(server.addr).await.expect("it listens");
            let bytes = call.bytes();
            socket.write_all(&bytes[..bytes.len() - 5]).await.expect("the connection stands");
            assert_eq!(server.not_ready().await, None);
            (None, tokio::spawn(async move { ask_on(socket).await }))
        }
        Step::NotDurable if kind.before() > 0 => {
            let asking = asked(&server, call);
            retry_is_planned().await;
            let lock = Lock::take(home);
            until("the retry is due", SOON, async || in_flight(&server).await).await;
            (Some(lock), asking)
        }
        Step::NotDurable => {
            let lock = Lock::take(home);
            let asking = asked(&server, call);
            until("it is decided", SOON, async || in_flight(&server).await).await;
            (Some(lock), asking)
        }
        Step::NotDialled => {
            let door = door.as_mut().expect("the configuration names it");
            if kind.before() == 0 {
                door.shut().await;
            }
            let asking = asked(&server, call);
            if kind.before() > 0 {
                retry_is_planned().await;
                door.shut().await;
            }
            until("its send is decided", SOON, async || in_flight(&server).await).await;
            if kind.writes() {
                until("its send is durable", SOON, async || known(home)[1] == nth).await;
            }
            (None, asking)
        }
        Step::FirstByte => {
            let asking = asked(&server, call);
            provider.wait_until(SOON, |a| a.len() == nth).await.expect("its head arrives");
            (None, asking)
        }
        Step::Acted => {
            let asking = asked(&server, call);
            let stalls = |a: &[forbear_lab::provider::Arrival]| a.len() == nth && a[nth - 1].body_complete;
            provider.wait_until(SOON, stalls).await.expect("it arrives");
            until("it is done", SOON, async || !kind.writes() || provider.effects().count == 1).await;
            (None, asking)
        }
        Step::HeadRead => {
            let asking = asked(&server, call);
            let arrivals = provider.wait_until(SOON, |a| a.len() == nth && a[nth - 1].body_complete).await;
            arrivals.expect("it arrives");
            let lock = Lock::take(home);
            assert!(provider.arrivals()[nth - 1].head_written_at_ns.is_none(), "the lock came too late");
            until("the head is read", SOON, async || sees_windows(&server).await).await;
            (Some(lock), asking)
        }
        Step::Answered => {
            let mut socket = TcpStream::connect(server.addr).await.expect("it listens");
            socket.write_all(&call.bytes()).await.expect("the connection stands");
            let mut read = Vec::new();
            while !read.windows(4).any(|w| w == b"\r\n\r\n") {
                assert!(socket.read_buf(&mut read).await.expect("the connection stands") > 0);
            }
            if kind.writes() {
                until("its result is durable", SOON, async || known(home)[2] == nth).await;
            }
            let lock = Lock::take(home);
            assert!(provider.arrivals()[nth - 1].finished_at_ns.is_none(), "the lock came too late");
            socket.read_to_end(&mut read).await.expect("the connection stands");
            let answer = Answer::parse(&read).expect("the answer is whole");
            assert_eq!(answer.body.len(), 20, "{answer:?}");
            (Some(lock), tokio::spawn(async move { Ok(answer) }))
        }
    };
    server.kill().await;
    let told =
        timeout(SOON, asking).await.expect("the connection ended with the process").expect("it was not cancelled");
    if !(step == Step::HeadRead && kind != Kind::Uncertain) {
        // There only an uncertain write's answer waits for its result; others' may be told at any moment.
        assert_eq!(told.is_ok(), step == Step::Answered, "{kind:?} {step:?}: {told:?}");
    }
}

async fn ask_on(mut socket: TcpStream) -> std::io::Result<Answer> {
    crate::agent::read_answer(&mut socket).await
}

/// That the disk was left where the step says.
fn check_step(kind: Kind, step: Step, home: &Home) {
    if !kind.writes() {
        return;
    }
    let before = kind.before();
    let expected = match step {
        Step::HalfAsked => [0, 0, 0, 0],
        Step::NotDurable => [before, before, before, 0],
        Step::NotDialled | Step::FirstByte | Step::Acted | Step::HeadRead => [1, before + 1, before, 0],
        Step::Answered => [1, before + 1, before + 1, 0],
    };
    assert_eq!(known(home), expected, "{kind:?} {step:?}: what was durable when it was killed");
}

async fn survives(kind: Kind, step: Step) {
    let provider = provider(&scenario(kind, step)).await;
    let mut door = match step {
        Step::NotDialled => Some(Door::before(&provider, kind.before()).await),
        _ => None,
    };
    let base = door.as_ref().map_or_else(|| provider.base_url(), |d| format!("http://{}", d.addr));
    let home = Home::new(CONFIG, &base);
    killed_at(kind, step, &home, &provider, &mut door).await;
    check_step(kind, step, &home);
    if let Some(door) = door {
        drop(door);
        home.configure(&CONFIG.replace("$BASE", &provider.base_url()));
    }

    let server = home.start().await;
    let again = server.ask(&kind.call()).await;
    server.stop().await;
    let (status, effects) = kind.end(step);
    assert_eq!((again.status, provider.effects().count), (status, effects), "{kind:?} {step:?}: {again:?}");
    if status == 422 {
        let said = if step == Step::Answered { ("denied", "applied") } else { ("outcome_unknown", "unknown") };
        assert_eq!(again.field("forbear-outcome"), said.0, "{step:?}: {again:?}");
        assert_eq!(again.json()["effect"], said.1, "{step:?}: {again:?}");
    }
    let arrivals = provider.arrivals();
    for arrival in arrivals.iter().filter(|_| matches!(kind, Kind::Keyed | Kind::Retried)) {
        assert_eq!(arrival.header("idempotency-key"), Some("order 7"), "{kind:?} {step:?}");
    }
    if kind == Kind::Retried {
        let opens = arrivals[0].head_written_at_ns.expect("it was answered") + NS_PER_S;
        assert!(arrivals[1..].iter().all(|a| a.at_ns >= opens), "{step:?}: a call left early: {arrivals:#?}");
    }
    let journal = Journal::read(&home);
    journal.check();
    if kind.writes() {
        let sent = journal.sent.get("t").copied().unwrap_or_default();
        assert!(sent >= arrivals.len() as u64, "{kind:?} {step:?}: {sent} sends on record, {} arrived", arrivals.len());
    }
}

async fn survives_each(kind: Kind) {
    for step in STEPS {
        // A read has no body, and waits for no disk.
        if kind.writes() || !matches!(step, Step::HalfAsked | Step::NotDurable) {
            survives(kind, step).await;
        }
    }
}

#[tokio::test]
async fn an_uncertain_write_survives_a_kill_at_each_step() {
    survives_each(Kind::Uncertain).await;
}

#[tokio::test]
async fn a_keyed_write_survives_a_kill_at_each_step() {
    survives_each(Kind::Keyed).await;
}

#[tokio::test]
async fn a_read_survives_a_kill_at_each_step() {
    survives_each(Kind::Read).await;
}

#[tokio::test]
async fn a_retry_after_a_429_survives_a_kill_at_each_step() {
    for step in STEPS.into_iter().filter(|s| *s != Step::HalfAsked) {
        survives(Kind::Retried, step).await;
    }
}
