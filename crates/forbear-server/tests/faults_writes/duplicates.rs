//! Group D: one write, one effect, whatever the connection does.

use std::time::Duration;

use forbear_store::Reader;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Got, Rig, serve};

const K: (&str, &str) = ("authorization", "k");

async fn post(rig: &Rig, body: &str) -> Got {
    rig.call("POST", "/p/things", &[K], body).await
}

fn is_unknown(got: &Got) -> bool {
    (got.status, got.header("forbear-outcome")) == (422, "outcome_unknown")
}

fn scenario(respond: &str) -> String {
    format!("routes:\n  - match: '* /{{rest...}}'\n    then:\n{respond}")
}

const LOST: &str = "      - {effect: {name: thing}, fault: {at: after_commit, end: rst}}\n";
const LATER: &str = "      - {effect: {name: thing}, body: {ok: true}}\n";

#[tokio::test]
async fn fb_061_a_slow_call_is_invoked_once() {
    let slow = scenario("      - {effect: {name: thing}, fault: {at: after_commit, end: stall}}\n");
    let rig = Rig::new(&slow, "upstream: {head_timeout_seconds: 1}").await;
    let got = post(&rig, "{}").await;
    assert!(is_unknown(&got), "{got:?}");
    let problem = got.json();
    assert_eq!((&problem["sent"], &problem["answered"]), (&true.into(), &false.into()));
    assert_eq!(problem["safe_next"], serde_json::json!(["watch_action", "look_up_at_provider"]));
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
}

#[tokio::test]
async fn fb_062_a_success_that_came_too_late_is_not_hidden_by_a_refusal() {
    let late = scenario(
        "      - {effect: {name: cert}, fault: {at: after_commit, end: stall}}\n      - {status: 409, body: {error: used}}\n",
    );
    let rig = Rig::new(&late, "upstream: {head_timeout_seconds: 1}").await;
    for _ in 0..2 {
        let got = post(&rig, "{}").await;
        assert!(is_unknown(&got), "{got:?}");
    }
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
}

#[tokio::test]
async fn fb_064_a_write_is_not_sent_to_a_second_address() {
    // `localhost` may have several addresses; whichever answered, the write goes to no other one after that.
    let rig = Rig::new(&scenario(&LOST.replace("rst", "fin")), "").await;
    let other = tempfile::tempdir().unwrap();
    let named = serve(&rig.provider.base_url().replace("127.0.0.1", "localhost"), "", &other).await;
    for (n, addr) in [rig.running.addr(), named.addr()].into_iter().enumerate() {
        let mut agent = TcpStream::connect(addr).await.unwrap();
        let write = "POST /p/orders HTTP/1.1\r\nhost: f\r\nauthorization: k\r\ncontent-length: 2\r\n\r\n{}";
        agent.write_all(write.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut agent, &mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 422");
        assert_eq!(rig.provider.effects().count, n as u64 + 1);
    }
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn fb_065_an_agent_that_gives_up_starts_no_second_send() {
    let slow = scenario("      - {effect: {name: thing}, delay_ms: 600, body: {ok: true}}\n");
    let rig = Rig::new(&slow, "").await;
    for method in ["GET", "POST"] {
        let mut agent = TcpStream::connect(rig.running.addr()).await.unwrap();
        let head = format!("{method} /p/{method} HTTP/1.1\r\nhost: f\r\nauthorization: k\r\ncontent-length: 0\r\n\r\n");
        agent.write_all(head.as_bytes()).await.unwrap();
        // sleep: the agent's patience.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // sleep: longer than the answers take.
    tokio::time::sleep(Duration::from_millis(800)).await;
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.iter().map(|a| a.target.as_str()).collect::<Vec<_>>(), ["/GET", "/POST"]);
}

#[tokio::test]
async fn fb_066_what_never_left_may_be_resent_and_what_left_may_not() {
    // Nobody listens: no byte can have left.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let running = serve(&format!("http://{closed}"), "backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}", &dir).await;
    let rig = Rig::new(&scenario(LATER), "").await;
    let refused = Rig { running, ..rig };
    let got = post(&refused, "{}").await;
    assert_eq!((got.status, got.header("forbear-outcome"), got.header("forbear-attempts")), (422, "not_applied", "0"));
    assert_eq!(got.json()["sent"], false);
    // The whole request was read, and then the connection was reset.
    let rig = Rig::new(&scenario("      - {fault: {at: after_body, end: rst}}\n"), "").await;
    let got = post(&rig, "{}").await;
    assert!(is_unknown(&got), "{got:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn fb_068_a_reused_connection_is_no_proof() {
    let rig = Rig::new(&scenario(&format!("      - {{body: {{ok: true}}}}\n{LOST}")), "").await;
    assert_eq!(post(&rig, "{\"n\":1}").await.status, 200);
    let got = post(&rig, "{\"n\":2}").await;
    assert!(is_unknown(&got), "{got:?}");
    let arrivals = rig.provider.arrivals();
    assert_eq!((arrivals.len(), rig.provider.effects().count), (2, 1));
    assert_ne!(arrivals[0].client_port, arrivals[1].client_port, "an uncertain write takes a fresh connection");
}

#[tokio::test]
async fn fb_069_the_second_attempt_is_not_drawn_from_the_same_stale_pool() {
    // Eight connections that look alive, and die by the next request.
    let stale = "
routes:
  - match: 'GET /warm'
    respond: {delay_ms: 100, connection: {on_next_request: rst}, body: {ok: true}}
  - match: 'GET /x'
    respond: {body: {ok: true}}
";
    let rig = Rig::new(stale, "backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}").await;
    let warm = (0..8).map(|_| rig.get("/p/warm"));
    assert!(futures_util::future::join_all(warm).await.iter().all(|got| got.status == 200));
    let got = rig.get("/p/x").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (200, "2"), "{got:?}");
    let arrivals = rig.provider.arrivals();
    let (last, warm) = arrivals.split_last().unwrap();
    assert!(warm.iter().all(|a| a.client_port != last.client_port), "a new connection");
}

#[tokio::test]
async fn fb_074_a_stream_that_goaway_includes_is_not_proven_unprocessed() {
    let body = "x".repeat(10_240);
    for (class, status, sends) in [("uncertain_write", 422, 1), ("idempotent_write", 200, 2)] {
        let goaway = "      - {fault: {at: after_body, end: {goaway: {last_stream: this, then: close}}}}\n";
        let policy = format!(
            "
backoff: {{base_ms: 10, cap_ms: 20, floor_ms: 10}}
providers:
  p:
    base_url: $BASE
    http2_prior_knowledge: true
    routes: [{{match: 'PUT /things', class: {class}, repeatable: {}}}]
",
            class == "idempotent_write"
        );
        let rig = Rig::new(&scenario(&format!("{goaway}{LATER}")), &policy).await;
        let got = rig.call("PUT", "/p/things", &[K], &body).await;
        assert_eq!((got.status, rig.provider.arrivals().len()), (status, sends), "{class}: {got:?}");
        let arrivals = rig.provider.arrivals();
        assert!(arrivals.iter().all(|a| a.body_sha256 == arrivals[0].body_sha256 && a.body_complete), "{class}");
    }
}

#[tokio::test]
async fn fb_077_a_generation_that_may_have_run_is_billed_again_once_at_most_and_said() {
    let gave_up = scenario("      - {effect: {name: generation}, status: 504, body: {}}\n");
    let fast = "backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}\n";
    // Without a rule the call is an uncertain write.
    let rig = Rig::new(&gave_up, fast).await;
    assert!(is_unknown(&post(&rig, "{}").await));
    assert_eq!(rig.provider.effects().count, 1);
    let policy = format!(
        "{fast}providers:\n  p:\n    base_url: $BASE\n    routes: [{{match: 'POST /things', class: inference}}]\n"
    );
    let rig = Rig::new(&gave_up, &policy).await;
    let got = post(&rig, "{}").await;
    assert_eq!((got.status, got.header("forbear-attempts")), (504, "2"), "{got:?}");
    assert_eq!(rig.provider.effects().count, 2);
    let Rig { running, dir, .. } = rig;
    running.stop().await;
    let action = got.header("forbear-action").parse().unwrap();
    let story = Reader::open(&dir.path().join("data")).unwrap().action(action).unwrap().unwrap();
    assert!(format!("{story:?}").contains("this resend may cost twice"), "{story:?}");
}
