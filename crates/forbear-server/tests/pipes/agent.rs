//! The agents: they ask, in one piece or in several, hang up, ask again under the same key, and repeat keyless writes
//! when told that the effect is unknown, as careless ones do.

use std::time::Duration;

use forbear_server::http::pipe::Network;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use crate::books::Call;
use crate::http::{Head, Peer};
use crate::world::World;

/// Where the server listens.
pub(crate) const SERVER: (&str, u16) = ("forbear", 1);
/// Calls that an agent makes for one intent, at most.
const CALLS_MAX: u32 = 4;
/// `drain_seconds`.
const DRAIN_MS: u64 = 30_000;
/// A key that outlasts this is honoured for longer than a run.
const LONG_RETENTION_S: u64 = 3_600;

/// How a call ended.
enum End {
    Answered {
        head: Head,
        problem: serde_json::Value,
    },
    Left,
    /// Nobody listens any more.
    Refused,
}

/// What the agent does next.
enum Next {
    Again { in_ms: u64 },
    Rests,
}

/// One intent, until its agent wants nothing more.
pub(crate) async fn live(world: World, network: Network, index: usize, first_in_ms: u64) {
    let mut in_ms = first_in_ms;
    loop {
        // sleep: an agent that takes its time, under a paused clock
        sleep(Duration::from_millis(in_ms)).await;
        let n = begin(&world, index);
        let permille = world.lock().plan.leaves_permille;
        let leaves_in_ms = world.agents(|d| d.permille(permille).then(|| d.pick(&[0, 5, 50, 2_000, 20_000])));
        let asking = ask(&world, &network, n, index);
        let end = match leaves_in_ms {
            None => asking.await,
            Some(ms) => timeout(Duration::from_millis(ms), asking).await.unwrap_or(End::Left),
        };
        match next(&world, n, index, end) {
            Next::Again { in_ms: ms } => in_ms = ms,
            Next::Rests => break,
        }
    }
    world.lock().books.intents[index].done = true;
}

fn begin(world: &World, index: usize) -> usize {
    let mut state = world.lock();
    let now_ms = state.now_ms();
    let n = state.books.calls.len();
    let standing = &mut state.books.intents[index];
    standing.calls += 1;
    let deadline_ms = now_ms + standing.intent.deadline_s * 1_000;
    let line = format!("agent: c{n} asks (intent {index}, call {}): {:?}", standing.calls, standing.intent);
    state.books.calls.push(Call { intent: index, deadline_ms, ..Call::default() });
    state.note(&line);
    n
}

async fn ask(world: &World, network: &Network, n: usize, index: usize) -> End {
    let Ok(pipe) = network.connect(SERVER.0, SERVER.1).await else { return End::Refused };
    let mut peer = Peer::new(pipe);
    // Where it is not wanted whole, the answer says why.
    let _ = write(world, &mut peer, n, index).await;
    let head = loop {
        match peer.head().await {
            Some(head) if head.first.contains(" 100 ") => {}
            other => break other,
        }
    };
    let Some(head) = head else {
        let mut state = world.lock();
        // Who comes while it stops, and takes longer than it does, is cut off, and so is who is there when its
        // patience ends.
        let over = state.stops_at_ms.is_some_and(|at| state.now_ms() >= at + DRAIN_MS);
        if !(over || state.stops_at_ms.is_some() && state.books.calls[n].arrivals == 0) {
            state.fail("one_answer", &format!("c{n}: the connection ends without an answer"));
        }
        return End::Left;
    };
    // Known when the head is: the body may take its time.
    let now = world.now_ms();
    let body = peer.body(&head, true).await;
    let problem = if head.field("content-type") == "application/problem+json" {
        serde_json::from_slice(body.as_deref().unwrap_or_default()).unwrap_or_default()
    } else {
        serde_json::Value::Null
    };
    let slack_ms = slack_ms(world) + world.now_ms() - now;
    world.lock().answered(n, &head, &problem, slack_ms);
    let relayed = problem.is_null();
    world.lock().read(n, relayed, body.as_deref());
    if body.is_some() && peer.fill().await {
        world.fail("one_answer", format!("c{n}: something comes after its answer: {:?}", peer.read));
    }
    End::Answered { head, problem }
}

/// A late disk, a slow dial, a refusal that is read, each twice.
fn slack_ms(world: &World) -> u64 {
    let plan = &world.lock().plan;
    2 * (plan.flush_ms_max + plan.ack_ms_max + plan.connect_timeout_ms + 7_000)
}

/// None where the server answered before it had all, or is gone.
async fn write(world: &World, peer: &mut Peer, n: usize, index: usize) -> Option<()> {
    let intent = world.lock().books.intents[index].intent.clone();
    let body = if intent.pieces > 0 { intent.body() } else { Vec::new() };
    let mut head = format!(
        "{}\r\nhost: forbear\r\nconnection: close\r\nauthorization: Bearer s{}\r\nforbear-task: t{}\r\n\
         forbear-run: c{n}\r\nforbear-deadline: {}s\r\nx-call: {n}\r\n",
        intent.request_line(),
        intent.scope,
        intent.task,
        intent.deadline_s
    );
    for (name, value) in [("idempotency-key", &intent.key), ("forbear-reference", &intent.reference)] {
        if let Some(value) = value {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if intent.pieces > 0 {
        head.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }
    if intent.expects_continue {
        head.push_str("expect: 100-continue\r\n");
    }
    head.push_str("\r\n");
    peer.pipe.write_all(head.as_bytes()).await.ok()?;
    if intent.expects_continue {
        let said = peer.head().await?;
        if !said.first.contains(" 100 ") {
            put_back(peer, &said);
            return None;
        }
    }
    let size = body.len().div_ceil(usize::try_from(intent.pieces.max(1)).ok()?).max(1);
    for piece in body.chunks(size) {
        if piece.len() < body.len() {
            // sleep: an agent that takes its time, under a paused clock
            sleep(Duration::from_millis(intent.piece_gap_ms)).await;
        }
        peer.pipe.write_all(piece).await.ok()?;
    }
    Some(())
}

fn put_back(peer: &mut Peer, head: &Head) {
    let mut bytes = head.text().into_bytes();
    bytes.append(&mut peer.read);
    peer.read = bytes;
}

fn next(world: &World, n: usize, index: usize, end: End) -> Next {
    let mut state = world.lock();
    let (long, calls) = (state.plan.retention_s > LONG_RETENTION_S, state.books.intents[index].calls);
    let standing = &mut state.books.intents[index];
    let keyed = standing.intent.key.is_some() && standing.intent.deduplicated();
    match end {
        End::Refused => {
            state.books.calls[n].gone = true;
            state.note(&format!("agent: c{n} is not let in"));
            Next::Rests
        }
        End::Left => {
            let now_ms = state.now_ms();
            (state.books.calls[n].gone, state.books.calls[n].gone_at_ms) = (true, Some(now_ms));
            state.note(&format!("agent: c{n} leaves"));
            drop(state);
            if calls >= CALLS_MAX || !world.agents(|d| d.permille(500)) {
                return Next::Rests;
            }
            // A repeat of what was not answered: only a key that is still honoured makes one intent of two calls.
            if !(keyed && long) {
                world.lock().books.intents[index].loose = true;
            }
            Next::Again { in_ms: world.agents(|d| d.pick(&[0, 20, 1_000, 30_000])) }
        }
        End::Answered { head, problem } => {
            drop(state);
            let unknown = head.field("forbear-outcome") == "outcome_unknown";
            let safe = problem["safe_next"].as_array().is_some_and(|s| s.iter().any(|s| s == "call_again"));
            let again = calls < CALLS_MAX
                && ((unknown && world.agents(|d| d.permille(600))) || (safe && world.agents(|d| d.permille(300))));
            if !again {
                return Next::Rests;
            }
            let wait_ms = head.number("retry-after").unwrap_or(0) * 1_000;
            Next::Again { in_ms: wait_ms + world.agents(|d| d.pick(&[0, 100, 10_000, 100_000])) }
        }
    }
}

/// Every agent's connection went with the process. Some ask again; gives when, or never.
pub(crate) fn connections_lost(world: &World) -> Vec<Option<u64>> {
    let mut state = world.lock();
    let long = state.plan.retention_s > LONG_RETENTION_S;
    for index in 0..state.books.intents.len() {
        let mut heads = None;
        for call in state.books.calls.iter_mut().filter(|c| c.intent == index && !c.gone && c.answers == 0) {
            call.gone = true;
            heads = Some(call.heads);
        }
        let standing = &mut state.books.intents[index];
        let keyed = standing.intent.key.is_some() && standing.intent.deduplicated();
        // Without such a key Forbear can know the repeat only by an open action with that content.
        let known = heads == Some(0) && !standing.intent.streamed_once;
        standing.loose |= heads.is_some() && !known && !(keyed && long);
    }
    let many = state.books.intents.len();
    drop(state);
    let again = |index: usize| {
        let (done, calls) = {
            let state = world.lock();
            (state.books.intents[index].done, state.books.intents[index].calls)
        };
        let asks = !done && calls < CALLS_MAX && (calls == 0 || world.agents(|d| d.permille(600)));
        asks.then(|| world.agents(|d| d.pick(&[0, 1_000, 30_000])))
    };
    (0..many).map(again).collect()
}
