//! The provider at the other end of the pipes: the simulator's moods, and on top of them all that a wire can do to a
//! call before, during and after it.

use std::time::Duration;

use forbear_core::classify::Kind;
use forbear_lab::sim::moods::{Caller, Said};
use forbear_server::http::pipe::{Pipe, PipeListener};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use crate::answers;
use crate::checks::Arrival;
use crate::http::{Head, Peer};
use crate::world::World;

/// How long a dial hangs that is never taken.
const HANGS: Duration = Duration::from_secs(20);

/// Takes whoever knocks, or does not.
pub(crate) async fn listen(mut listener: PipeListener, world: World) {
    while let Some(knock) = listener.knock().await {
        let world = world.clone();
        let how = if world.wire_fails() { world.wires(|d| d.range(1, 4)) } else { 0 };
        tokio::spawn(async move {
            match how {
                1 => return world.note("wire: a dial is refused"),
                2 => {
                    world.note("wire: a dial hangs");
                    // sleep: a network under a paused clock
                    return sleep(HANGS).await;
                }
                3 => {
                    let ms = world.wires(|d| d.pick(&[1, 30, 400, 9_000, 17_000]));
                    // sleep: a network under a paused clock
                    sleep(Duration::from_millis(ms)).await;
                }
                _ => {}
            }
            let Some(pipe) = knock.accept() else { return };
            if how == 4 {
                world.note("wire: a new connection is closed at once");
                return end(pipe, &world);
            }
            connection(Peer::new(pipe), world).await;
        });
    }
}

/// Closes, or resets.
pub(crate) fn end(pipe: Pipe, world: &World) {
    if world.wires(|d| d.permille(500)) { pipe.reset() } else { drop(pipe) }
}

async fn connection(mut peer: Peer, world: World) {
    loop {
        if peer.read.is_empty() && !peer.fill().await {
            return;
        }
        let first_ms = world.now_ms();
        let Some(head) = peer.head().await else { return };
        let Some(arrival) = world.lock().arrived(&head, first_ms) else { return };
        let kept = exchange(&mut peer, &world, &head, &arrival).await;
        world.lock().off_wire(&arrival);
        match kept {
            Kept::Yes => {}
            Kept::Ended => return end(peer.pipe, &world),
            Kept::Idle { ms } => {
                // Some servers close what rests, some talk before they do.
                if timeout(Duration::from_millis(ms), peer.fill()).await.is_err() {
                    if ms == 0 {
                        // A reset might overtake the answer.
                        return drop(peer);
                    }
                    if world.wires(|d| d.permille(300)) {
                        let late = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                        let _ = peer.pipe.write_all(late.as_bytes()).await;
                    }
                    return end(peer.pipe, &world);
                }
                if peer.read.is_empty() {
                    return;
                }
            }
        }
    }
}

enum Kept {
    Yes,
    Ended,
    /// The connection is closed after so long without use.
    Idle {
        ms: u64,
    },
}

/// Waits, unless the other side goes meanwhile.
pub(crate) async fn pause(peer: &mut Peer, ms: u64) -> bool {
    ms == 0 || timeout(Duration::from_millis(ms), peer.fill()).await.is_err()
}

async fn exchange(peer: &mut Peer, world: &World, head: &Head, arrival: &Arrival) -> Kept {
    let n = arrival.call;
    let fault = if world.wire_fails() { world.wires(|d| d.range(1, 5)) } else { 0 };
    if fault == 1 {
        world.note(format!("wire: c{n} is cut after its head"));
        return Kept::Ended;
    }
    if fault == 2
        && let Some(length) = head.number("content-length")
    {
        let half = usize::try_from(length / 2).expect("bodies are small");
        let _ = peer.bytes(half).await;
        world.note(format!("wire: c{n} is cut in its body"));
        return Kept::Ended;
    }
    if fault == 3 {
        world.note(format!("wire: c{n} is sent elsewhere, undone"));
        let moved = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n";
        if peer.body(head, false).await.is_none() {
            return Kept::Ended;
        }
        let said = answers::Said::moved();
        world.lock().books.calls[n].cut = false;
        learn(world, arrival, &said);
        let _ = peer.pipe.write_all(moved.as_bytes()).await;
        return Kept::Yes;
    }
    if peer.body(head, false).await.is_none() {
        world.note(format!("provider: the body of c{n} is cut"));
        return Kept::Ended;
    }
    let caller = caller(world, arrival);
    let mood = world.mood(caller);
    world.note(format!("provider: {:?} for c{n} in {} ms, effect {:?}", mood.answer, mood.after_ms, mood.effect_in_ms));
    match mood.effect_in_ms {
        None => {}
        Some(0) => world.lock().effect(n),
        Some(ms) => late_effect(world.clone(), n, caller.key, ms),
    }
    match mood.answer {
        Said::Silence => {
            while peer.fill().await {}
            world.note(format!("provider: c{n} was given up"));
            Kept::Ended
        }
        Said::Lost | Said::Refused => {
            pause(peer, mood.after_ms).await;
            world.note(format!("wire: c{n} is cut without an answer"));
            Kept::Ended
        }
        Said::Head { status, kind, before_work, wait_ms } => {
            if !pause(peer, mood.after_ms).await {
                world.note(format!("provider: c{n} was given up"));
                return Kept::Ended;
            }
            let said = answers::Said { status, kind, before_work, wait_ms, late: fault == 4, cut: fault == 5 };
            if !answers::say(peer, world, arrival, said).await {
                return Kept::Ended;
            }
            match world.wire_fails() {
                true => Kept::Idle { ms: world.wires(|d| d.pick(&[0, 1, 100, 3_999, 5_000])) },
                false => Kept::Yes,
            }
        }
    }
}

fn late_effect(world: World, n: usize, key: Option<u128>, ms: u64) {
    tokio::spawn(async move {
        // sleep: a provider that commits late, under a paused clock
        sleep(Duration::from_millis(ms)).await;
        world.commit(key);
        world.lock().effect(n);
    });
}

fn caller(world: &World, arrival: &Arrival) -> Caller {
    let state = world.lock();
    let honoured = state.books.intent_of(arrival.call).intent.deduplicated();
    let key =
        arrival.key.as_ref().filter(|_| honoured).map(|key| {
            key.bytes().fold(arrival.scope as u128, |sum, b| sum.wrapping_mul(257).wrapping_add(u128::from(b)))
        });
    Caller { scope: arrival.scope, key, retention_ms: key.map(|_| state.plan.retention_s * 1_000) }
}

/// What the call's own agent and whoever shares its quota know from this answer on.
pub(crate) fn learn(world: &World, arrival: &Arrival, said: &answers::Said) {
    let mut state = world.lock();
    let now_ms = state.now_ms();
    let call = &mut state.books.calls[arrival.call];
    call.heads += 1;
    call.open = false;
    // What was done is never to be sent again, whatever the agent has seen of it.
    let undone = said.before_work || matches!(said.kind, Kind::Rejected | Kind::Conflict);
    call.unknown |= !undone;
    let Some(wait_ms) = said.wait_ms else { return };
    call.not_before_ms = now_ms + wait_ms;
    if matches!(said.kind, Kind::Throttled | Kind::Exhausted | Kind::Unavailable | Kind::Success) {
        state.books.scopes[arrival.scope].told.push((now_ms, now_ms + wait_ms));
    }
}
