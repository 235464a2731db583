//! Over HTTP/2 a write's end is on record once its answer has left for the agent, and not before.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::rig::Rig;

/// Shorter than the time between two pings, with which everything is looked at anew.
const PATIENCE: Duration = Duration::from_secs(10);

const DONE: &str = "
routes:
  - match: 'POST /charges'
    then: [{effect: {name: charge}, body: {ok: true}}]
  - match: 'POST /long'
    then: [{effect: {name: charge}, bytes: 300000, chunk_bytes: 10000}]
  - match: 'POST /slow'
    respond: {effect: {name: charge}, delay_ms: 300, bytes: 60000}
  - match: 'POST /chunks'
    then: [{effect: {name: charge}, bytes: 3000, framing: chunked}]
  - match: 'DELETE /x'
    then: [{effect: {name: charge}, status: 204}]
";

struct Agent {
    sender: SendRequest<Bytes>,
    pings: h2::PingPong,
}

impl Agent {
    /// One that takes so many bytes of an answer's body.
    async fn new(rig: &Rig, window: u32) -> Self {
        let socket = TcpStream::connect(rig.running.addr()).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(window);
        let (sender, mut connection) = builder.handshake(socket).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Self { sender, pings }
    }

    async fn call(&mut self, method: &str, path: &str) -> Response<RecvStream> {
        self.call_with(method, path, &[]).await
    }

    async fn call_with(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Response<RecvStream> {
        let request = Request::builder().method(method).uri(format!("http://forbear{path}"));
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let (response, _) = self.sender.send_request(request.body(()).unwrap(), true).unwrap();
        timeout(PATIENCE, response).await.expect("a head within patience").unwrap()
    }

    /// Whatever the server had to write when this was asked, it wrote, and flushed.
    async fn rounds(&mut self) {
        for _ in 0..50 {
            timeout(PATIENCE, self.pings.ping(h2::Ping::opaque())).await.expect("an answer").unwrap();
        }
    }
}

async fn read(response: Response<RecvStream>) -> usize {
    let (mut body, mut bytes) = (response.into_body(), 0);
    while let Some(data) = timeout(PATIENCE, body.data()).await.expect("data within patience") {
        let data = data.unwrap();
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    bytes
}

async fn ended(rig: &Rig) {
    let shard = rig.running.shard();
    let over = async {
        while shard.live_actions() > 0 {
            // sleep: the condition is another task's, with no one to tell of it
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, over).await.expect("its end is told");
}

#[tokio::test]
async fn what_the_agent_has_no_window_for_is_not_told_to_it() {
    let rig = Rig::new(DONE, "").await;
    for path in ["/p/charges", "/p/long", "/p/chunks"] {
        let mut agent = Agent::new(&rig, 0).await;
        let response = agent.call("POST", path).await;
        agent.rounds().await;
        assert_eq!(rig.running.shard().live_actions(), 1, "{path}: its end is told, and no byte of it has left");
        // The agent goes: its place comes back.
        drop((response, agent));
        ended(&rig).await;
    }
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_on_its_way_is_not_done_again() {
    let rig = Rig::new(DONE, "").await;
    for (path, window, resets) in [("/p/charges", 0, true), ("/p/chunks", 5, false), ("/p/long", 1_000, true)] {
        let before = rig.provider.effects().count;
        let mut agent = Agent::new(&rig, window).await;
        let response = agent.call("POST", path).await;
        agent.rounds().await;
        drop(response);
        if !resets {
            drop(agent);
        }
        ended(&rig).await;
        let again = rig.call("POST", path, &[], "").await;
        assert_eq!((again.status, again.header("forbear-action").is_empty()), (422, false), "{path}: {again:?}");
        assert_eq!(rig.provider.effects().count, before + 1, "{path}");
        // What was asked for anew has a name of its own.
        let other = [("forbear-reference", if resets { "a" } else { "b" })];
        assert_eq!(rig.call("POST", path, &other, "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn what_was_taken_is_told() {
    let rig = Rig::new(DONE, "").await;
    let mut agent = Agent::new(&rig, 20_000).await;
    let calls =
        [("POST", "/p/charges", 11), ("POST", "/p/long", 300_000), ("POST", "/p/chunks", 3_000), ("DELETE", "/p/x", 0)];
    for (method, path, bytes) in calls {
        let response = agent.call(method, path).await;
        assert_eq!(read(response).await, bytes, "{path}");
        ended(&rig).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_gives_its_place_back() {
    let rig = Rig::new(DONE, "").await;
    let mut agent = Agent::new(&rig, 0).await;
    let first = agent.call("POST", "/p/charges").await;
    agent.rounds().await;
    drop(first);
    ended(&rig).await;
    // The connection is still whole.
    let response = agent.call("DELETE", "/p/x").await;
    assert_eq!((response.status().as_u16(), read(response).await), (204, 0));
    ended(&rig).await;
}

#[tokio::test]
async fn an_agent_that_takes_nothing_holds_up_nobody_who_joins() {
    let rig = Rig::new(DONE, "").await;
    let fields = [("authorization", "k"), ("idempotency-key", "one")];
    let mut agent = Agent::new(&rig, 0).await;
    let (first, early) = tokio::join!(agent.call_with("POST", "/p/slow", &fields), async {
        rig.provider.wait_until(PATIENCE, |arrivals| arrivals.len() == 1).await.unwrap();
        timeout(PATIENCE, rig.call("POST", "/p/slow", &fields, "")).await.expect("the answer that was read")
    });
    let late = timeout(PATIENCE, rig.call("POST", "/p/slow", &fields, "")).await.expect("the answer that was read");
    for got in [early, late] {
        assert_eq!((got.status, got.body.len(), got.header("forbear-joined")), (200, 60_000, "same_key"));
    }
    assert_eq!(rig.running.shard().live_actions(), 1, "the first agent has not taken its answer");
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
    drop((first, agent));
    ended(&rig).await;
}
