//! What a connection's past does to the next request, and what a peer can do before anything was asked of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::agent::{PATIENCE, Raw, raw_field};
use crate::frames::{MAX_CONCURRENT_STREAMS, http2, ok, reset, settings};
use crate::peer::{Conn, Ends, Peer, Play, Reads, http1, play};
use crate::table::{Sends, events, evidence, gateway, request};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What one call brought.
struct Came {
    head: String,
    body: String,
    /// Of each attempt.
    evidence: Vec<String>,
}

/// Makes these calls one after the other through a gateway before the peer.
async fn calls(peer: &Peer, is_http2: bool, paths: &[&str]) -> Vec<Came> {
    let dir = tempfile::tempdir().unwrap();
    let keys = format!("base_url: http://{}\n    http2_prior_knowledge: {is_http2}", peer.address);
    let running = gateway([("p".to_owned(), keys)], "", &dir).await;
    let mut came = Vec::new();
    for (n, path) in paths.iter().enumerate() {
        let mut agent = Raw::connect(running.addr()).await;
        // Another target each time: an equal write of unknown effect would be refused.
        agent.write(request(&format!("/p/{path}?{n}"), Sends::Whole)).await;
        let head = agent.head().await;
        let body = agent.rest().await;
        let events = events(&running, raw_field(&head, "forbear-action").unwrap()).await;
        came.push(Came { head, body, evidence: events.iter().filter_map(evidence).collect() });
    }
    running.stop().await;
    came
}

/// On its first connection it answers the second request with `word`, and the third with what belongs to the second.
async fn gives_up_with(word: &'static str) -> Peer {
    let answers = move |mut conn: Conn| async move {
        let mut n = 0;
        while let Some(head) = conn.head().await {
            conn.body(&head).await;
            let answer = match (conn.n, n) {
                (0, 1) => word,
                // Whoever asks now would take it for his.
                (0, 2) => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale",
                _ => OK,
            };
            n += 1;
            conn.io.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    Peer::start(play(answers)).await
}

/// A server that gave up on an idle connection may say so just when the next request comes, and still answer that one.
#[tokio::test]
async fn a_connection_that_said_408_is_not_used_again() {
    for path in ["read", "keyed"] {
        let peer = gives_up_with("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n").await;
        let came = calls(&peer, false, &[path, path]).await;
        assert_eq!(came[1].body, "ok", "{path}: {}", came[1].head);
        assert_eq!(raw_field(&came[1].head, "forbear-attempts"), Some("2"));
        assert_eq!(peer.counts.seen(), (2, 3, 3), "{path}");
    }
}

/// A 400 cannot be told from the answer to what was asked; what comes after it on that connection is nobody's.
#[tokio::test]
async fn a_used_connection_that_said_400_is_not_used_again() {
    for path in ["read", "keyed"] {
        let peer = gives_up_with("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        let came = calls(&peer, false, &[path, path, path]).await;
        assert!(came[1].head.contains(" 400 "), "{path}: {}", came[1].head);
        assert_eq!(came[2].body, "ok", "{path}: {}", came[2].head);
        assert_eq!(peer.counts.seen(), (2, 3, 3), "{path}");
    }
}

#[tokio::test]
async fn an_uncertain_write_takes_a_new_connection_where_answers_could_be_mixed_up() {
    let paths = ["read", "uncertain", "read", "keyed", "uncertain"];
    let peer = Peer::start(http1(Reads::Whole, OK, Ends::Keep)).await;
    calls(&peer, false, &paths).await;
    assert_eq!(peer.counts.seen(), (3, 5, 5));
    let peer = Peer::start(http2(settings(&[]), Reads::Whole, ok, Ends::Keep)).await;
    calls(&peer, true, &paths).await;
    assert_eq!(peer.counts.seen(), (1, 5, 5));
}

#[tokio::test]
async fn connections_are_opened_ahead_where_the_contract_wants_them() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::start(http1(Reads::Whole, OK, Ends::Keep)).await;
    let keys = format!("base_url: http://{}\n    warm_connections: 2", peer.address);
    let running = gateway([("p".to_owned(), keys)], "", &dir).await;
    let opened = timeout(PATIENCE, async {
        while peer.counts.seen().0 < 2 {
            // sleep: the connections are another task's, with no one to tell of them
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    opened.await.expect("two connections before anybody called");
    assert_eq!(peer.counts.seen(), (2, 0, 0));
    running.stop().await;
}

/// Whether the peer's end is seen before the request is written is the kernel's to say. What is said must fit either way:
/// a request that was seen is never called unsent, and each attempt is one connection.
#[tokio::test]
async fn a_peer_that_ends_before_it_is_asked_is_never_asked_twice_in_secret() {
    let ends_at_once = |ends| play(move |conn: Conn| async move { conn.end(Reads::Nothing, ends).await });
    let peers: [(&str, bool, Play); 3] = [
        ("closed", false, ends_at_once(Ends::Fin)),
        ("reset", false, ends_at_once(Ends::Rst)),
        ("HTTP/2, closed", true, ends_at_once(Ends::Fin)),
    ];
    for (name, is_http2, peer) in peers {
        for path in ["read", "uncertain", "keyed"] {
            let peer = Peer::start(Arc::clone(&peer)).await;
            let came = calls(&peer, is_http2, &[path]).await.remove(0);
            let (connections, heads, _) = peer.counts.seen();
            let at = format!("{name} {path}: {:?} {:?} {}", came.evidence, peer.counts.seen(), came.head);
            let unsent = came.evidence.iter().filter(|e| *e == "not_sent").count();
            assert!(came.evidence.iter().all(|e| e == "not_sent" || e == "unknown"), "{at}");
            assert!(!came.evidence.is_empty() && came.head.contains(" 422 ") || came.head.contains(" 504 "), "{at}");
            assert_eq!(connections, came.evidence.len(), "{at}");
            assert!(heads <= came.evidence.len() - unsent, "{at}");
            // At most one attempt of an uncertain write whose fate is unknown.
            assert!(path != "uncertain" || came.evidence.len() - unsent <= 1, "{at}");
        }
    }
}

/// Whether the limit is known before the first stream is opened depends on who is quicker; a peer that allows none refuses
/// what came all the same.
#[tokio::test]
async fn a_peer_that_allows_no_stream_gets_no_effect() {
    let none = settings(&[(MAX_CONCURRENT_STREAMS, 0)]);
    for path in ["read", "uncertain", "keyed"] {
        let peer = Peer::start(http2(none.clone(), Reads::Whole, |s| reset(s, 7), Ends::Keep)).await;
        let came = calls(&peer, true, &[path]).await.remove(0);
        let at = format!("{path}: {:?} {:?} {}", came.evidence, peer.counts.seen(), came.head);
        assert!(came.evidence.iter().all(|e| e == "not_sent" || e == "refused"), "{at}");
        assert_eq!(came.evidence.len(), 3, "{at}");
        let (connections, heads, _) = peer.counts.seen();
        assert!(connections <= 3, "{at}");
        assert_eq!(heads, came.evidence.iter().filter(|e| *e == "refused").count(), "{at}");
    }
}

/// Above the peer's limit a call takes another connection; it waits inside none.
#[tokio::test]
async fn streams_that_are_refused_are_sent_again_within_their_bound() {
    let peer =
        Peer::start(http2(settings(&[]), Reads::Whole, |s| if s == 1 { reset(s, 7) } else { ok(s) }, Ends::Keep)).await;
    for (n, path) in ["read", "uncertain", "keyed"].into_iter().enumerate() {
        let came = calls(&peer, true, &[path]).await.remove(0);
        assert!(came.body.contains("ok") && came.evidence[0] == "refused", "{path}: {} {:?}", came.head, came.evidence);
        assert_eq!(peer.counts.seen(), (n + 1, 2 * (n + 1), 2 * (n + 1)));
    }
}
