//! Faults over HTTP/1.1 in the clear.

use crate::peer::{Ends, Peer, Reads, http1};
use crate::table::{CUT, DONE, Row, Sends, UNKNOWN, UNKNOWN_ONCE, UNSENT, check, done, rejected, row};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn before_and_after_the_request() -> Vec<Row> {
    let whole = (1, 1, 1);
    vec![
        Row {
            name: "nobody listens",
            sends: Sends::Whole,
            play: None,
            expects: UNSENT,
            an_attempt: (0, 0, 0),
            is_shared: false,
        },
        row("reset with the request unread", http1(Reads::Nothing, "", Ends::Rst), UNKNOWN, (1, 0, 0)),
        row("closed with the request unread", http1(Reads::Nothing, "", Ends::Fin), UNKNOWN, (1, 0, 0)),
        row("closed after the request", http1(Reads::Whole, "", Ends::Fin), UNKNOWN, whole),
        row("reset after the request", http1(Reads::Whole, "", Ends::Rst), UNKNOWN, whole),
        row("closed while the body comes", http1(Reads::Head, "", Ends::Fin), UNKNOWN_ONCE, (1, 1, 0)).half(),
        row("reset while the body comes", http1(Reads::Head, "", Ends::Rst), UNKNOWN_ONCE, (1, 1, 0)).half(),
        row("no answer at all", http1(Reads::Whole, "", Ends::Silence), UNKNOWN, whole),
        row("no answer to half a body", http1(Reads::Head, "", Ends::Silence), UNKNOWN_ONCE, (1, 1, 0)).half(),
    ]
}

fn early_answers() -> Vec<Row> {
    let early = |name, answer: &'static str, ends, expects| {
        row(name, http1(Reads::Head, answer, ends), expects, (1, 1, 0)).half()
    };
    let too_large = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    let closing = "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let bad = "HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\n{}";
    vec![
        early("413 while the body comes", too_large, Ends::Silence, rejected(413)),
        early("413 and a close while the body comes", closing, Ends::Fin, rejected(413)),
        early("400 while the body comes", bad, Ends::Silence, rejected(400)),
        early("200 while the body comes", OK, Ends::Silence, DONE),
        early("200 and a close while the body comes", OK, Ends::Fin, DONE),
    ]
}

fn heads() -> Vec<Row> {
    let after =
        |name, answer: &str, ends, expects| row(name, http1(Reads::Whole, answer.to_owned(), ends), expects, (1, 1, 1));
    let long = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(200 << 10));
    let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\nok", "X-A: 1\r\n".repeat(200));
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok";
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    vec![
        after("closed inside the head", "HTTP/1.1 200 OK\r\nContent-Le", Ends::Fin, UNKNOWN),
        after("reset inside the head", "HTTP/1.1 200 OK\r\nContent-Le", Ends::Rst, UNKNOWN),
        after("silent inside the head", "HTTP/1.1 200 OK\r\nContent-Le", Ends::Silence, UNKNOWN),
        after("no status line", "\u{16}\u{3}\u{1} nonsense\r\n\r\n", Ends::Fin, UNKNOWN),
        after("another protocol's greeting", "SSH-2.0-x\r\n", Ends::Fin, UNKNOWN),
        after("a status of two digits", "HTTP/1.1 20 OK\r\n\r\n", Ends::Fin, UNKNOWN),
        after("a version nobody knows", "HTTP/3.7 200 OK\r\n\r\n", Ends::Fin, UNKNOWN),
        after("a head without bound", &long, Ends::Silence, UNKNOWN),
        after("fields without bound", &many, Ends::Silence, UNKNOWN),
        after("two lengths", two, Ends::Silence, UNKNOWN),
        after("protocols switched unasked", switched, Ends::Silence, UNKNOWN),
        after("100 and a close", "HTTP/1.1 100 Continue\r\n\r\n", Ends::Fin, UNKNOWN),
        after("103 and a close", hints, Ends::Fin, UNKNOWN),
        after("103 and an answer", &format!("{hints}{OK}"), Ends::Keep, DONE),
        after("a flood of 103, then an answer", &format!("{}{OK}", hints.repeat(5_000)), Ends::Keep, DONE),
        after("HTTP/1.0, ended by its close", "HTTP/1.0 200 OK\r\n\r\nok", Ends::Fin, DONE),
        after("HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Ends::Fin, DONE),
        after("204", "HTTP/1.1 204 No Content\r\n\r\n", Ends::Keep, done(204)),
    ]
}

fn bodies() -> Vec<Row> {
    let cut = |name, answer, ends| row(name, http1(Reads::Whole, answer, ends), CUT, (1, 1, 1));
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntrun";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\n";
    vec![
        cut("a length that is not kept", LENGTH, Ends::Fin),
        cut("reset inside a length", LENGTH, Ends::RstOnceRead),
        cut("closed between chunks", CHUNKS, Ends::Fin),
        cut("reset between chunks", CHUNKS, Ends::RstOnceRead),
        cut("closed inside a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ntrun", Ends::Fin),
        cut(
            "a chunk without a size",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\nzz\r\n",
            Ends::Silence,
        ),
        cut("reset where the close is the end", "HTTP/1.1 200 OK\r\n\r\ntrun", Ends::RstOnceRead),
    ]
}

fn redirects() -> Vec<Row> {
    let to = |name, status: u16, expects| {
        let answer = format!("HTTP/1.1 {status} Elsewhere\r\nLocation: /read\r\nContent-Length: 0\r\n\r\n");
        row(name, http1(Reads::Whole, answer, Ends::Keep), expects, (1, 1, 1))
    };
    let unmoved = |status| done(status).map(|told| crate::table::Told { effect: "not_applied", ..told });
    vec![
        to("301", 301, done(301)),
        to("302", 302, done(302)),
        to("303", 303, done(303)),
        to("307", 307, unmoved(307)),
        to("308", 308, unmoved(308)),
    ]
}

fn keys(peer: &Peer) -> String {
    format!("base_url: http://{}", peer.address)
}

#[tokio::test]
async fn every_fault_before_the_answer_says_what_it_proves() {
    let rows = before_and_after_the_request().into_iter().chain(early_answers()).chain(heads());
    check(rows.collect(), keys, "upstream: {head_timeout_seconds: 1}\n").await;
}

#[tokio::test]
async fn every_fault_inside_the_answer_says_what_it_proves() {
    check(bodies().into_iter().chain(redirects()).collect(), keys, "").await;
}

/// Hints without end are no answer: the time for the head ends them.
#[tokio::test]
async fn hints_without_end_are_no_answer() {
    let flood = crate::peer::play(|mut conn| async move {
        use tokio::io::AsyncWriteExt;
        let Some(head) = conn.head().await else { return };
        conn.body(&head).await;
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(500);
        while conn.io.write_all(hints.as_bytes()).await.is_ok() {}
    });
    check(vec![row("103 for ever", flood, UNKNOWN, (1, 1, 1))], keys, "upstream: {head_timeout_seconds: 1}\n").await;
}
