//! A slot is the provider's: once its answer was read it comes back, whether or not the agent takes the answer.

use std::time::Duration;

use bytes::Bytes;
use h2::client::Builder;
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::Rig;

/// Far below the time after which an agent that takes nothing is given up.
const PATIENCE: Duration = Duration::from_secs(10);

const ANSWERS: &str = "
routes:
  - match: 'POST /one'
    then: [{effect: {name: charge}, body: {ok: true}}]
  - match: 'POST /chunks'
    then: [{effect: {name: charge}, bytes: 3000, framing: chunked, chunk_bytes: 500}]
  - match: 'POST /slow'
    then: [{effect: {name: charge}, bytes: 3000, framing: chunked, chunk_bytes: 500, chunk_gap_ms: 20}]
  - match: 'GET /slow'
    respond: {bytes: 3000, framing: chunked, chunk_bytes: 500, chunk_gap_ms: 20}
  - match: 'GET /long'
    respond: {bytes: 30000000, chunk_bytes: 100000}
  - match: 'GET /x'
    respond: {body: {ok: true}}
";

type Untaken = (h2::client::SendRequest<Bytes>, Response<h2::RecvStream>);

/// A call whose agent takes so many bytes of its answer, for as long as it is kept.
async fn untaken(rig: &Rig, window: u32, method: &str, path: &str) -> Untaken {
    let socket = TcpStream::connect(rig.running.addr()).await.unwrap();
    let mut builder = Builder::new();
    builder.initial_window_size(window);
    let (mut sender, connection) = builder.handshake(socket).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::builder().method(method).uri(format!("http://forbear{path}"));
    let request = request.header("authorization", "Bearer k1").body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let response = timeout(PATIENCE, response).await.expect("a head within patience").unwrap();
    (sender, response)
}

#[tokio::test]
async fn an_agent_that_takes_nothing_holds_no_slot() {
    let rig = Rig::new(ANSWERS, "shared_scope: {max_concurrent_requests: 1}\n").await;
    for (method, path) in [("POST", "/p/one"), ("POST", "/p/chunks"), ("POST", "/p/slow"), ("GET", "/p/slow")] {
        for window in [0, 700] {
            let before = rig.provider.arrivals().len();
            // Equal writes would be told of each other.
            let kept = untaken(&rig, window, method, &format!("{path}?{window}")).await;
            let next = timeout(PATIENCE, rig.get("/p/x")).await.expect("the slot comes back");
            let at = format!("{method} {path} {window}: {next:?}");
            assert_eq!((next.status, rig.provider.arrivals().len() - before), (200, 2), "{at}");
            // What a write did is on record as done only once that was told.
            let is_open = method == "POST" && (window == 0 || path != "/p/one");
            assert!(rig.running.shard().live_actions() >= usize::from(is_open), "{at}");
            drop(kept);
        }
    }
}

#[tokio::test]
async fn a_long_answer_is_taken_as_fast_as_its_agent_takes_it_and_keeps_its_slot() {
    let rig = Rig::new(ANSWERS, "shared_scope: {max_concurrent_requests: 1}\n").await;
    let kept = untaken(&rig, 0, "GET", "/p/long").await;
    let next = rig.get("/p/x");
    // sleep: that nothing comes of it is what is tested
    assert!(timeout(Duration::from_millis(500), next).await.is_err(), "the provider is still sending");
    assert_eq!(rig.provider.arrivals().len(), 1);
    drop(kept);
    let next = timeout(PATIENCE, rig.get("/p/x")).await.expect("the slot comes back");
    assert_eq!(next.status, 200);
}
