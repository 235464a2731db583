//! Told to stop: nothing new is taken, what waits is answered, what is on the wire is finished or said to be unknown.

use std::time::Duration;

use forbear_store::ActionFilter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::agent::{Answer, Call, ask, read_answer};
use crate::rig::{Home, Server, provider, until};

const SOON: Duration = Duration::from_secs(10);

const SCENARIO: &str = "
routes:
  - match: 'GET /slow'
    respond: {delay_ms: 900, body: {ok: true}}
  - match: 'GET /stream'
    respond: {event_gap_ms: 150, events: [{data: one, repeat: 6}, {data: '[DONE]'}]}
  - match: 'POST /slow'
    respond: {status: 201, effect: {name: w}, delay_ms: 900, body: {ok: true}}
  - match: 'POST /never'
    respond: {effect: {name: w}, fault: {at: after_commit, end: stall}}
  - match: 'GET /limited'
    respond: {status: 429, headers: {Retry-After: '30'}}
";

const CONFIG: &str = "
drain_seconds: 8
providers: {p: {base_url: $BASE}}
";

/// A call that goes on by itself.
fn asked(server: &Server, call: Call) -> tokio::task::JoinHandle<std::io::Result<Answer>> {
    let addr = server.addr;
    tokio::spawn(async move { ask(addr, &call).await })
}

#[tokio::test]
async fn a_stop_finishes_what_is_on_the_wire_and_refuses_the_rest_safely() {
    for signal in ["TERM", "INT"] {
        let provider = provider(SCENARIO).await;
        let home = Home::new(CONFIG, &provider.base_url());
        let mut server = home.start().await;
        let as_another = |call: Call, who: &str| call.with("authorization", who);
        let on_the_wire = [
            asked(&server, as_another(Call::get("/p/slow"), "a")),
            asked(&server, as_another(Call::get("/p/stream"), "b")),
            asked(&server, as_another(Call::post("/p/slow", "{}"), "c")),
        ];
        let waits = asked(&server, as_another(Call::get("/p/limited"), "d"));
        provider.wait_for_arrivals(4, SOON).await.expect("all arrive");
        until("one waits", SOON, async || {
            let scopes = server.control("/-/v1/scopes").await;
            scopes["items"].as_array().is_some_and(|rows| rows.iter().any(|r| r["delayed"] == 1))
        })
        .await;
        let waits_unseen = asked(&server, as_another(Call::get("/p/limited?second"), "d"));
        until("two wait", SOON, async || {
            let scopes = server.control("/-/v1/scopes").await;
            scopes["items"].as_array().is_some_and(|rows| rows.iter().any(|r| r["delayed"] == 2))
        })
        .await;

        server.signal(signal).await;
        until("it is not ready", SOON, async || server.not_ready().await.is_some()).await;
        assert_eq!(server.not_ready().await.as_deref(), Some("shutting down"));
        for new in [Call::get("/p/slow"), Call::post("/p/slow", "{\"new\":1}")] {
            let refused = server.ask(&new).await;
            let said = refused.json();
            assert_eq!((refused.status, refused.field("forbear-outcome")), (429, "shed"), "{refused:?}");
            assert_eq!((&said["sent"], &said["effect"]), (&false.into(), &"not_applied".into()));
            assert!(said["safe_next"].to_string().contains("call_again"), "{said}");
            assert!(!refused.field("retry-after").is_empty());
        }
        let [slow, stream, write] = on_the_wire;
        assert_eq!(slow.await.unwrap().expect("answered").status, 200);
        let stream = stream.await.unwrap().expect("the stream is whole");
        assert!(String::from_utf8_lossy(&stream.body).contains("[DONE]"));
        assert_eq!(write.await.unwrap().expect("answered").status, 201);
        let waited = waits.await.unwrap().expect("answered");
        assert_eq!((waited.status, waited.field("forbear-outcome")), (429, "deferred"), "{waited:?}");
        let unseen = waits_unseen.await.unwrap().expect("answered");
        assert_eq!((unseen.status, &unseen.json()["sent"]), (429, &false.into()), "{unseen:?}");
        assert_eq!(server.end(SOON).await, Some(0));
        assert_eq!(provider.arrivals().len(), 4, "nothing new was sent");
        let open = ActionFilter { open: true, ..ActionFilter::default() };
        assert!(home.reader().actions(&open, 10, None).unwrap().actions.is_empty());
        home.reader().verify(|_| ()).expect("the chain verifies");
    }
}

#[tokio::test]
async fn a_write_whose_agent_left_is_followed_to_its_end() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let mut server = home.start().await;
    let mut agent = TcpStream::connect(server.addr).await.unwrap();
    agent.write_all(&Call::post("/p/slow", "{}").bytes()).await.unwrap();
    provider.wait_for_arrivals(1, SOON).await.expect("it arrives");
    drop(agent);
    server.signal("TERM").await;
    assert_eq!(server.end(SOON).await, Some(0));
    let actions = home.reader().actions(&ActionFilter::default(), 10, None).unwrap().actions;
    assert_eq!((actions.len(), actions[0].effect.as_deref()), (1, Some("applied")), "{actions:?}");
}

#[tokio::test]
async fn drain_seconds_bound_it_and_what_is_left_is_unknown_afterwards() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(&CONFIG.replace("drain_seconds: 8", "drain_seconds: 1"), &provider.base_url());
    let mut server = home.start().await;
    let call = asked(&server, Call::post("/p/never", "{}"));
    let idle = TcpStream::connect(server.addr).await.unwrap();
    provider.wait_until(SOON, |a| a.iter().any(|a| a.effect.is_some())).await.expect("it is done");
    server.signal("TERM").await;
    assert_eq!(server.end(SOON).await, Some(0));
    let told = call.await.unwrap().expect("it is told what is known");
    assert_eq!((told.status, told.field("forbear-outcome")), (422, "outcome_unknown"), "{told:?}");
    drop(idle);
    let server = home.start().await;
    let again = server.ask(&Call::post("/p/never", "{}")).await;
    assert_eq!((again.status, again.field("forbear-outcome")), (422, "outcome_unknown"), "{again:?}");
    // The same action, which outlived the stop.
    assert_eq!(again.field("location"), told.field("location"), "{again:?}");
    assert_eq!(provider.effects().count, 1);
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let provider = provider(SCENARIO).await;
    let home = Home::new("drain_seconds: 600\nproviders: {p: {base_url: $BASE}}\n", &provider.base_url());
    for second in ["TERM", "INT"] {
        let mut server = home.start().await;
        let call = asked(&server, Call::post("/p/never", format!("{{\"s\":\"{second}\"}}")));
        let many = provider.arrivals().len() + 1;
        provider.wait_until(SOON, |a| a.len() == many && a[many - 1].effect.is_some()).await.expect("it is done");
        server.signal("TERM").await;
        until("it drains", SOON, async || server.not_ready().await.is_some()).await;
        server.signal(second).await;
        assert_eq!(server.end(Duration::from_secs(3)).await, Some(143));
        assert!(call.await.unwrap().is_err());
    }
    home.start().await.stop().await;
}

/// A connection that is kept open is told that it ends with its answer.
#[tokio::test]
async fn a_kept_connection_is_closed_by_the_stop() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let mut server = home.start().await;
    let mut idle = TcpStream::connect(server.addr).await.unwrap();
    idle.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut some = [0; 16];
    idle.read_exact(&mut some).await.unwrap();
    let mut busy = TcpStream::connect(server.addr).await.unwrap();
    busy.write_all(b"GET /p/slow HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    provider.wait_for_arrivals(1, SOON).await.expect("it arrives");
    server.signal("TERM").await;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.expect("it is closed in order");
    let answer = read_answer(&mut busy).await.expect("it is answered, and then closed");
    assert_eq!((answer.status, answer.field("connection")), (200, "close"));
    assert_eq!(server.end(SOON).await, Some(0));
}
