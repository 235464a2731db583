//! Every way for an HTTP/1.1 exchange to break, seen from the other end, and its fate in the log.

use std::time::Duration;

use super::client::{Client, Ended, WITHIN, get, provider};
use forbear_lab::provider::{Fate, Provider};
use tokio::io::AsyncWriteExt;

const POST: &str = "POST /f HTTP/1.1\r\nHost: lab\r\nContent-Length: 4\r\n\r\nbody";

async fn lab_with(step: &str) -> Provider {
    provider(&format!("routes: [{{match: \"POST /f\", respond: {{effect: {{name: e}}, {step}}}}}]")).await
}

/// What the client sees, how it ends, the fate, and the number of effects.
async fn check(step: &str, expect: &str, ended: Ended, fate: Fate, effects: u64) {
    let lab = lab_with(step).await;
    let mut client = Client::new(&lab).await;
    client.send(POST).await;
    let seen = client.rest().await;
    assert_eq!(seen.1, ended, "{step}: {seen:?}");
    assert!(seen.0.ends_with(expect) && (!expect.is_empty() || seen.0.is_empty()), "{step}: {seen:?}");
    let arrivals = lab.wait_until(WITHIN, |all| all.iter().all(|one| one.finished_at_ns.is_some())).await.unwrap();
    assert_eq!(arrivals[0].fate, fate, "{step}");
    assert_eq!(lab.effects().count, effects, "{step}");
    assert_eq!(arrivals[0].effect.is_some(), effects > 0, "{step}");
}

#[tokio::test]
async fn drops_at_every_stage_end_as_scripted() {
    check("fault: {at: after_head}", "", Ended::Fin, Fate::DroppedAfterHead, 0).await;
    check("fault: {at: after_head, end: rst}", "", Ended::Rst, Fate::DroppedAfterHead, 0).await;
    check("fault: {at: after_body}", "", Ended::Fin, Fate::DroppedAfterBody, 0).await;
    check("fault: {at: after_body, end: rst}", "", Ended::Rst, Fate::DroppedAfterBody, 0).await;
    check("fault: {at: after_commit}", "", Ended::Fin, Fate::DroppedAfterCommit, 1).await;
    check("fault: {at: after_commit, end: rst}", "", Ended::Rst, Fate::DroppedAfterCommit, 1).await;
}

#[tokio::test]
async fn drops_within_an_answer_leave_exactly_what_was_sent() {
    check("body: hello, fault: {at: mid_head, after_bytes: 12}", "HTTP/1.1 200", Ended::Fin, Fate::DroppedMidHead, 1)
        .await;
    let mid = "\r\n\r\nhel";
    check("date: false, body: hello, fault: {at: mid_body, after_bytes: 3}", mid, Ended::Fin, Fate::DroppedMidBody, 1)
        .await;
    let step = "date: false, body: hello, framing: chunked, fault: {at: mid_body, after_bytes: 3}";
    check(step, "\r\n\r\n3\r\nhel\r\n", Ended::Fin, Fate::DroppedMidBody, 1).await;
    let step = "events: [{data: a}, {data: b, gap_ms: 1}, {data: c}], fault: {at: mid_stream, after_events: 2}";
    check(step, "\r\n9\r\ndata: b\n\n\r\n", Ended::Fin, Fate::DroppedMidStream, 1).await;
    let step = "events: [{data: a}], fault: {at: mid_stream, after_events: 0}";
    check(step, "chunked\r\n\r\n", Ended::Fin, Fate::DroppedMidStream, 1).await;
}

#[tokio::test]
async fn a_reset_in_a_body_comes_after_the_bytes_were_read() {
    let lab =
        lab_with("body: hello, chunk_bytes: 1, chunk_gap_ms: 5, fault: {at: mid_body, after_bytes: 3, end: rst}").await;
    let mut client = Client::new(&lab).await;
    client.send(POST).await;
    client.until("\r\n\r\nh").await;
    assert_eq!(client.rest().await.1, Ended::Rst);
}

#[tokio::test]
async fn a_stall_ends_only_with_the_caller() {
    let lab = lab_with("fault: {at: after_commit, end: stall}").await;
    let mut client = Client::new(&lab).await;
    client.send(POST).await;
    let arrivals = lab.wait_until(WITHIN, |all| all.iter().any(|one| one.effect.is_some())).await.unwrap();
    assert_eq!((arrivals[0].fate, arrivals[0].peer_closed_at_ns), (Fate::Underway, None));
    drop(client);
    let arrivals = lab.wait_until(WITHIN, |all| all[0].fate == Fate::Stalled).await.unwrap();
    assert!(arrivals[0].peer_closed_at_ns.is_some());
}

#[tokio::test]
async fn an_early_answer_does_not_wait_for_the_body() {
    let lab = provider(
        r#"{routes: [{match: "POST /f", respond: {status: 413, early: true}}, {match: "GET /", respond: {}}]}"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    client.send("POST /f HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert_eq!(client.answer().await.status, 413);
    client.send(" done").await;
    assert_eq!(client.get("/").await.status, 200, "the connection goes on once the body has come");
    let arrivals = lab.arrivals();
    assert_eq!((arrivals[0].body_bytes, arrivals[0].body_complete), (9, true));
}

#[tokio::test]
async fn expectations_are_met_or_ignored() {
    let lab = provider(
        r#"
routes:
  - {match: "POST /auto", respond: {}}
  - {match: "POST /ignore", respond: {continue: ignore}}
  - {match: "POST /early", respond: {status: 401, early: true, connection: close}}
"#,
    )
    .await;
    let head = |target| format!("POST {target} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    let mut client = Client::new(&lab).await;
    client.send(&head("/auto")).await;
    assert_eq!(client.answer().await.status, 100);
    client.send("body").await;
    assert_eq!(client.answer().await.status, 200);
    client.send(&head("/ignore")).await;
    client.send("body").await;
    assert_eq!(client.answer().await.status, 200);
    client.send(&head("/early")).await;
    assert_eq!(client.answer().await.status, 401);
    assert_eq!(client.rest().await.1, Ended::Fin);
}

#[tokio::test]
async fn connections_end_after_answers_as_scripted() {
    let lab = provider(
        r#"
routes:
  - {match: "GET /close", respond: {connection: close}}
  - {match: "GET /silent", respond: {connection: close_silently}}
  - {match: "GET /rst", respond: {connection: rst}}
  - {match: "GET /idle", respond: {connection: {idle: {after_ms: 30, then: fin}}}}
  - {match: "GET /stale", respond: {connection: {idle: {after_ms: 30, then: stale_408}}}}
  - {match: "GET /next", respond: {connection: {on_next_request: rst}}}
"#,
    )
    .await;
    for (target, header, ended, extra) in [
        ("/close", "close", Ended::Fin, ""),
        ("/silent", "", Ended::Fin, ""),
        ("/rst", "", Ended::Rst, ""),
        ("/idle", "", Ended::Fin, ""),
        ("/stale", "", Ended::Fin, "HTTP/1.1 408 "),
    ] {
        let mut client = Client::new(&lab).await;
        let answer = client.get(target).await;
        assert_eq!((answer.status, answer.value("connection")), (200, header), "{target}");
        let (rest, how) = client.rest().await;
        assert_eq!(how, ended, "{target}");
        assert!(rest.starts_with(extra) && extra.is_empty() == rest.is_empty(), "{target}: {rest}");
    }
    let mut client = Client::new(&lab).await;
    client.get("/next").await;
    client.send("GET /close HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.rest().await, (String::new(), Ended::Rst));
    assert_eq!(lab.arrivals().len(), 6, "the request after it was never read");
}

#[tokio::test]
async fn connections_may_be_refused_before_anything_is_read() {
    let lab = provider("{connections: {accept: [rst, fin, ok], max_requests: 2}, unmatched: {status: 200}}").await;
    for ended in [Ended::Rst, Ended::Fin] {
        let mut client = Client::new(&lab).await;
        // Bytes on the way must not turn the FIN into a reset.
        let _ = client.stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(client.rest().await, (String::new(), ended));
    }
    let mut client = Client::new(&lab).await;
    assert_eq!(client.get("/").await.value("connection"), "");
    assert_eq!(client.get("/").await.value("connection"), "close");
    assert_eq!(client.rest().await.1, Ended::Fin);
    assert_eq!(lab.arrivals().len(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_on_request() {
    let lab = provider("{unmatched: {status: 200}}").await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::new(&lab).await;
        client.get("/").await;
        clients.push(client);
    }
    lab.close_idle(false);
    for client in clients {
        assert_eq!(client.rest().await.1, Ended::Fin);
    }
    assert_eq!(get(&lab, "/").await.status, 200, "new ones are served");
}

#[tokio::test]
async fn a_caller_that_leaves_is_noted_and_the_work_goes_on() {
    let lab = provider(
        r#"
routes:
  - {match: "POST /on", respond: {process_ms: 100, effect: {name: e}}}
  - {match: "POST /off", respond: {process_ms: 60000, abandon_on_close: true, effect: {name: e}}}
  - {match: "GET /stream", respond: {events: [{data: x, repeat: 200}], event_gap_ms: 20}}
"#,
    )
    .await;
    for target in ["/on", "/off"] {
        let mut client = Client::new(&lab).await;
        client.send(&format!("POST {target} HTTP/1.1\r\nContent-Length: 0\r\n\r\n")).await;
        let count = lab.arrivals().len();
        lab.wait_for_arrivals(count.max(1), WITHIN).await.unwrap();
        client.stream.shutdown().await.unwrap();
        let arrivals = lab
            .wait_until(WITHIN, |all| {
                all.last().is_some_and(|one| one.target == target && one.finished_at_ns.is_some())
            })
            .await
            .unwrap();
        assert!(arrivals.last().unwrap().peer_closed_at_ns.is_some(), "{target}");
    }
    assert_eq!(lab.effects().count, 1);
    let mut client = Client::new(&lab).await;
    client.send("GET /stream HTTP/1.1\r\n\r\n").await;
    client.until("data: x\n\n").await;
    let left_ns = lab.now_ns();
    drop(client);
    let arrivals =
        lab.wait_until(WITHIN, |all| all.last().is_some_and(|one| one.fate == Fate::PeerClosed)).await.unwrap();
    let seen_ns = arrivals.last().unwrap().peer_closed_at_ns.unwrap() - left_ns;
    assert!(Duration::from_nanos(seen_ns) < Duration::from_secs(1), "long before the 4 s of events");
}

#[tokio::test]
async fn faults_follow_a_sequence() {
    let lab =
        provider(r#"{routes: [{match: "POST /f", then: [{fault: {at: after_body, end: rst}}, {status: 201}]}]}"#).await;
    let mut client = Client::new(&lab).await;
    client.send(POST).await;
    assert_eq!(client.rest().await.1, Ended::Rst);
    let mut client = Client::new(&lab).await;
    client.send(POST).await;
    assert_eq!(client.answer().await.status, 201);
    let fates: Vec<_> = lab.arrivals().iter().map(|arrival| arrival.fate).collect();
    assert_eq!(fates, [Fate::DroppedAfterBody, Fate::Answered]);
}
