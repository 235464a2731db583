//! What the provider says, in bytes: whole, in pieces, late, or cut.

use forbear_core::classify::Kind;
use tokio::io::AsyncWriteExt as _;

use crate::checks::Arrival;
use crate::http::Peer;
use crate::provider::{learn, pause};
use crate::world::World;

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) kind: Kind,
    pub(crate) before_work: bool,
    pub(crate) wait_ms: Option<u64>,
    /// The bytes come in pieces, with waits between them.
    pub(crate) late: bool,
    /// The body is cut.
    pub(crate) cut: bool,
}

impl Said {
    /// Nothing was done here; it is to be done elsewhere.
    pub(crate) fn moved() -> Self {
        Self { status: 307, kind: Kind::Success, before_work: true, wait_ms: None, late: false, cut: false }
    }
}

/// False where the connection is over.
pub(crate) async fn say(peer: &mut Peer, world: &World, arrival: &Arrival, said: Said) -> bool {
    let n = arrival.call;
    let rank = world.lock().books.intent_of(n).intent.rank;
    let streams = said.status == 200 && rank == forbear_core::policy::Rank::Inference;
    let is_chunked = streams || world.wires(|d| d.permille(200));
    let moved = said.status == 200 && !streams && world.wires(|d| d.permille(40));
    let mut head = match moved {
        true => "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/elsewhere\r\n".to_owned(),
        false => format!("HTTP/1.1 {} Said\r\n", said.status),
    };
    match said.wait_ms {
        Some(ms) if said.kind == Kind::Success => {
            head.push_str(&format!("x-ratelimit-remaining: 0\r\nx-ratelimit-reset: {}\r\n", ms.div_ceil(1_000)));
        }
        Some(ms) => head.push_str(&format!("retry-after: {}\r\n", ms.div_ceil(1_000))),
        None => {}
    }
    let code = match (said.kind, said.before_work) {
        (Kind::InProgress, _) => "in_progress",
        (Kind::Unavailable, true) => "before_work",
        _ => "said",
    };
    let (media, pieces) = if streams {
        let last = if world.wires(|d| d.permille(50)) { "event: error\n\n" } else { "data: [DONE]\n\n" };
        ("text/event-stream", vec!["data: one\n\n".to_owned(), "data: two\n\n".to_owned(), last.to_owned()])
    } else {
        ("application/json", vec![format!("{{\"code\":\"{code}\","), format!("\"call\":{n}}}")])
    };
    head.push_str(&format!("content-type: {media}\r\n"));
    let length: usize = pieces.iter().map(String::len).sum();
    head.push_str(&if is_chunked {
        "transfer-encoding: chunked\r\n\r\n".to_owned()
    } else {
        format!("content-length: {length}\r\n\r\n")
    });
    if said.late {
        let (first, rest) = head.split_at(head.len() / 2);
        if !send(peer, first).await || !pause(peer, world.wires(|d| d.pick(&[1, 300, 6_000]))).await {
            return false;
        }
        head = rest.to_owned();
    }
    // A refusal is understood by its body too, unless that takes too long.
    let slow = said.late || streams || world.wires(|d| d.permille(150));
    let mut by_head = !said.cut && (said.status < 400 || !slow);
    if !send(peer, &head).await {
        return false;
    }
    world.lock().books.calls[n].cut = false;
    if by_head {
        learn(world, arrival, &said);
    }
    let gap_ms = if slow { world.wires(|d| d.pick(&[0, 10, 1_500])) } else { 0 };
    let cut_at = if said.cut { world.wires(|d| d.range(0, pieces.len() as u64 - 1)) } else { u64::MAX };
    let mut going = true;
    for (at, piece) in (0u64..).zip(&pieces) {
        if at == cut_at {
            // A reset may overtake what was said.
            let is_read = world.wires(|d| d.permille(700)) && pause(peer, 1).await;
            by_head |= !is_read;
            world.note(format!("wire: the answer to c{n} is cut, read {is_read}"));
            world.lock().books.calls[n].cut = true;
            going = false;
            break;
        }
        let piece = if is_chunked { format!("{:x}\r\n{piece}\r\n", piece.len()) } else { piece.clone() };
        let is_last = at + 1 == pieces.len() as u64;
        let end = if is_last && is_chunked { "0\r\n\r\n" } else { "" };
        if !send(peer, &format!("{piece}{end}")).await || !pause(peer, if is_last { 0 } else { gap_ms }).await {
            let mut state = world.lock();
            if rank.writes() && said.kind == Kind::Success && state.stops_at_ms.is_none() {
                state.fail("writes_are_followed", &format!("nobody reads the answer to c{n} to its end"));
            }
            going = false;
            break;
        }
    }
    if !by_head {
        learn(world, arrival, &said);
    }
    going
}

async fn send(peer: &mut Peer, text: &str) -> bool {
    peer.pipe.write_all(text.as_bytes()).await.is_ok()
}
