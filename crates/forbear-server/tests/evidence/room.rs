//! All places for agents' connections are taken: Forbear itself is still heard, and agents wait their turn.

use std::time::{Duration, Instant};

use crate::agent::Raw;
use crate::leaver::{Watched, watching};
use crate::peer::{Ends, Peer, Reads, http1};
use crate::table::{Sends, gateway, request};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const PLACES: usize = 4;

#[tokio::test]
async fn slow_heads_and_long_calls_shut_nobody_out_of_forbear_itself() {
    let watched = Watched::default();
    let slow = Peer::start(watching(&watched, false, Reads::Whole, false)).await;
    let quick = Peer::start(http1(Reads::Whole, OK, Ends::Keep)).await;
    let dir = tempfile::tempdir().unwrap();
    let keys = |peer: &Peer| format!("base_url: http://{}", peer.address);
    let providers = [("slow".to_owned(), keys(&slow)), ("quick".to_owned(), keys(&quick))];
    let more = format!("connections_max: {PLACES}\nheader_read_seconds: 2\n");
    let running = gateway(providers, &more, &dir).await;
    let mut held = Vec::new();
    for n in 0..PLACES * 3 {
        let mut agent = Raw::connect(running.addr()).await;
        match n {
            // A long call, slow heads in the other places, and behind them heads that say nothing, or something.
            0 => {
                agent.write(request("/slow/read", Sends::Whole)).await;
                watched.arrived.acquire().await.unwrap().forget();
            }
            n if n % 2 == 0 => agent.write("POST /quick/read HTTP/1.1\r\nHost: a\r\nX-Slow: ").await,
            _ => agent.write("PO").await,
        }
        held.push(agent);
    }
    for target in ["/-/ready", "/-/healthy", "/-/v1/scopes"] {
        let began = Instant::now();
        let mut person = Raw::connect(running.addr()).await;
        // Its one request is answered, and whatever it sends behind that is not.
        let behind = String::from_utf8(request("/quick/read", Sends::Whole)).unwrap();
        person.write(format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{behind}")).await;
        let answer = person.rest().await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        assert!(answer.starts_with("HTTP/1.1 200 ") || target.contains("v1"), "{target}: {answer}");
        assert!(began.elapsed() < Duration::from_millis(500), "{target}: {:?}", began.elapsed());
    }
    assert_eq!(quick.counts.seen().1, 0);
    // An agent waits for its turn and gets it, when the slow heads have had their time.
    let mut agent = Raw::connect(running.addr()).await;
    agent.write(request("/quick/read", Sends::Whole)).await;
    let head = agent.head().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(quick.counts.seen().1, 1);
    // Who says nothing makes room.
    let mut silent = held.pop().unwrap();
    assert_eq!(silent.rest().await, "");
}
