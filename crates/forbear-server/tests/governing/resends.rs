//! A read or an inference that its client makes again by itself: one send at the provider, and every agent has the answer.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::rig::{Got, Rig};

/// Answered after a while. What is asked of `/ask` costs.
const SLOW: &str = "
routes:
  - match: 'POST /ask'
    respond: {delay_ms: 900, body: {id: 7}}
  - match: 'POST /quick'
    respond: {body: {id: 8}}
  - match: 'POST /large'
    respond: {delay_ms: 300, bytes: 300000}
  - match: 'POST /wrong'
    respond: {status: 422, body: {error: unclear}}
  - match: 'POST /down'
    respond: {status: 503, body: {error: down}}
  - match: 'GET /things'
    respond: {delay_ms: 400, body: {id: 9}}
";

const POLICY: &str = "
backoff: {base_ms: 10, cap_ms: 20, floor_ms: 10}
providers:
  p:
    base_url: $BASE
    routes: [{match: 'POST /{rest...}', class: inference}]
";

const K: (&str, &str) = ("authorization", "k");
const FIRST: (&str, &str) = ("x-stainless-retry-count", "0");
const AGAIN: (&str, &str) = ("x-stainless-retry-count", "1");

async fn post(rig: &Rig, path: &str, fields: &[(&str, &str)]) -> Got {
    rig.call("POST", path, fields, "{\"q\":1}").await
}

/// An agent that sends a whole request and hangs up when it has arrived.
async fn leaves(rig: &Rig, marker: &str) {
    let before = rig.provider.arrivals().len();
    let mut socket = TcpStream::connect(rig.running.addr()).await.unwrap();
    let head = format!("POST /p/ask HTTP/1.1\r\nhost: f\r\nauthorization: k\r\n{marker}content-length: 7\r\n\r\n");
    socket.write_all((head + "{\"q\":1}").as_bytes()).await.unwrap();
    rig.provider.wait_until(Duration::from_secs(5), |a| a.len() > before).await.unwrap();
}

#[tokio::test]
async fn a_marked_repeat_waits_for_the_call_that_it_repeats() {
    let rig = Rig::new(SLOW, POLICY).await;
    for (method, path) in [("POST", "/p/ask"), ("GET", "/p/things")] {
        let before = rig.provider.arrivals().len();
        let call = |marker| {
            let rig = &rig;
            async move { rig.call(method, path, &[K, marker], "").await }
        };
        let (first, again) = tokio::join!(call(FIRST), async {
            rig.provider.wait_until(Duration::from_secs(5), |a| a.len() > before).await.unwrap();
            call(AGAIN).await
        });
        assert_eq!((first.status, again.status, &first.body), (200, 200, &again.body), "{again:?}");
        assert_eq!(again.header("forbear-joined"), "marked_repeat");
        assert_eq!(again.header("x-should-retry"), "false");
        assert_eq!(rig.provider.arrivals().len(), before + 1, "{path}");
    }
}

#[tokio::test]
async fn equal_calls_without_a_mark_are_as_many_as_were_made() {
    let rig = Rig::new(SLOW, POLICY).await;
    let marked = [K, FIRST];
    let (a, b, c, d) = tokio::join!(
        post(&rig, "/p/ask", &marked),
        post(&rig, "/p/ask", &marked),
        post(&rig, "/p/ask", &[K]),
        post(&rig, "/p/ask", &[K])
    );
    assert!([&a, &b, &c, &d].iter().all(|got| got.status == 200 && got.header("forbear-joined").is_empty()));
    assert_eq!(rig.provider.arrivals().len(), 4);
    // Nor does a repeat take the answer of either of two: nobody can tell whose it is.
    assert_eq!(post(&rig, "/p/ask", &[K, AGAIN]).await.header("forbear-joined"), "");
    assert_eq!(rig.provider.arrivals().len(), 5);
}

#[tokio::test]
async fn a_repeat_is_known_by_its_credential_content_and_task() {
    let rig = Rig::new(SLOW, POLICY).await;
    assert_eq!(post(&rig, "/p/quick", &[K, FIRST]).await.status, 200);
    let other = [("authorization", "other"), AGAIN];
    for fields in [&other[..], &[K, AGAIN, ("forbear-task", "t")], &[K, AGAIN, ("range", "bytes=0-3")]] {
        assert_eq!(post(&rig, "/p/quick", fields).await.header("forbear-joined"), "", "{fields:?}");
    }
    assert_eq!(rig.call("POST", "/p/quick", &[K, AGAIN], "{}").await.header("forbear-joined"), "");
    assert_eq!(rig.provider.arrivals().len(), 5);
    assert_eq!(post(&rig, "/p/quick", &[K, AGAIN]).await.header("forbear-joined"), "marked_repeat");
    assert_eq!(rig.provider.arrivals().len(), 5);
}

#[tokio::test]
async fn an_invocation_is_known_by_its_id_among_equal_ones() {
    let rig = Rig::new(SLOW, POLICY).await;
    let send = |id: &'static str, sends: &'static str| {
        let rig = &rig;
        async move { post(rig, "/p/ask", &[K, ("amz-sdk-invocation-id", id), ("amz-sdk-request", sends)]).await }
    };
    let (a, b) = tokio::join!(send("one", "attempt=1; max=3"), send("two", "attempt=1; max=3"));
    let again = send("two", "attempt=2; max=3").await;
    assert_eq!(again.header("forbear-action"), b.header("forbear-action"), "{again:?}");
    assert_ne!(again.header("forbear-action"), a.header("forbear-action"));
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn an_inference_whose_client_comes_back_is_paid_for_once() {
    let rig = Rig::new(SLOW, POLICY).await;
    leaves(&rig, "x-stainless-retry-count: 0\r\n").await;
    // sleep: the client's own wait before it sends again.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let again = post(&rig, "/p/ask", &[K, AGAIN]).await;
    assert_eq!((again.status, again.header("forbear-joined")), (200, "marked_repeat"), "{again:?}");
    assert_eq!(again.json()["id"], 7);
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn an_inference_whose_client_stays_away_is_cancelled() {
    let scenario = "routes:\n  - match: 'POST /ask'\n    respond: {fault: {at: after_body, end: stall}}\n";
    for (marker, most) in [("x-stainless-retry-count: 0\r\n", 6_000), ("", 1_500)] {
        let rig = Rig::new(scenario, POLICY).await;
        leaves(&rig, marker).await;
        let left = Instant::now();
        rig.provider
            .wait_until(Duration::from_secs(10), |a| a.iter().all(|a| a.peer_closed_at_ns.is_some()))
            .await
            .unwrap();
        let took = left.elapsed();
        assert!(took < Duration::from_millis(most), "{marker:?}: {took:?}");
        assert_eq!(took >= Duration::from_millis(1_500), !marker.is_empty(), "{marker:?}: {took:?}");
    }
}

#[tokio::test]
async fn what_ended_just_now_is_told_again() {
    let rig = Rig::new(SLOW, POLICY).await;
    for (path, status, outcome, sends) in
        [("/p/quick", 200, "succeeded", 1), ("/p/wrong", 422, "rejected", 1), ("/p/down", 503, "budget_exhausted", 4)]
    {
        let before = rig.provider.arrivals().len();
        let first = post(&rig, path, &[K, FIRST]).await;
        for nth in ["1", "2"] {
            let again = post(&rig, path, &[K, ("x-stainless-retry-count", nth)]).await;
            assert_eq!((again.status, again.header("forbear-outcome")), (status, outcome), "{again:?}");
            assert_eq!((&again.body, again.header("x-should-retry")), (&first.body, "false"), "{again:?}");
            assert_eq!(again.header("forbear-action"), first.header("forbear-action"));
            assert_eq!(again.header("forbear-joined"), "marked_repeat");
        }
        assert_eq!(rig.provider.arrivals().len(), before + sends, "{path}");
    }
    let action = post(&rig, "/p/quick", &[K, AGAIN]).await.header("forbear-action").parse().unwrap();
    rig.running.stop().await;
    let story = forbear_store::Reader::open(&rig.dir.path().join("data")).unwrap().action(action).unwrap().unwrap();
    let joined = story.events.iter().filter(|e| matches!(e.fact, forbear_core::event::Fact::CallJoined { .. }));
    assert_eq!(joined.count(), 3, "each is on record");
}

#[tokio::test]
async fn an_answer_too_large_to_be_kept_is_asked_for_again() {
    let rig = Rig::new(SLOW, POLICY).await;
    let (first, again) = tokio::join!(post(&rig, "/p/large", &[K, FIRST]), async {
        rig.provider.wait_until(Duration::from_secs(5), |a| a.len() == 1).await.unwrap();
        post(&rig, "/p/large", &[K, AGAIN]).await
    });
    assert_eq!((first.status, again.status), (200, 200), "{again:?}");
    assert_eq!(first.body, again.body);
    assert_eq!(rig.provider.arrivals().len(), 2);
}

/// What the call was told of its client's retries.
async fn told(rig: &Rig, path: &str, fields: &[(&str, &str)]) -> String {
    post(rig, path, fields).await.header("forbear-advice").to_owned()
}

#[tokio::test]
async fn a_client_whose_retries_multiply_is_told_once_how_to_turn_them_off() {
    let rig = Rig::new(SLOW, POLICY).await;
    let (python, js) = (("x-stainless-lang", "python"), ("x-stainless-lang", "js"));
    let says = |off| format!("retries_multiply: Forbear repeats calls already; set {off} in this client");
    assert_eq!(told(&rig, "/p/quick", &[K, FIRST, python]).await, "", "its first sends are as they should be");
    assert_eq!(told(&rig, "/p/quick", &[K, AGAIN, python]).await, says("max_retries=0"), "joined to the first");
    assert_eq!(told(&rig, "/p/wrong", &[K, AGAIN, python]).await, "", "the same client knows");
    assert_eq!(
        told(&rig, "/p/wrong", &[K, AGAIN, js]).await,
        says("maxRetries: 0"),
        "another kit, and a send of its own"
    );
    let other = ("authorization", "other");
    assert_eq!(
        told(&rig, "/p/down", &[other, AGAIN, python]).await,
        says("max_retries=0"),
        "an answer of Forbear's own"
    );
    assert_eq!(told(&rig, "/p/quick", &[("authorization", "third")]).await, "", "it marks nothing");
    assert!(rig.provider.arrivals().iter().all(|a| a.headers.iter().all(|(name, _)| !name.starts_with("forbear"))));
}

#[tokio::test]
async fn a_client_that_repeats_under_its_key_is_told_too_and_one_that_is_only_watched_is_not() {
    let agent = ("user-agent", "Stripe/v1 PythonBindings/13.0.0");
    let fields = [K, agent, ("idempotency-key", "one")];
    let slow = "routes: [{match: 'POST /v1/charges', respond: {delay_ms: 400, body: {id: ch_1}}}]";
    let policy = "providers: {stripe: {base_url: $BASE}}";
    let rig = Rig::new(slow, policy).await;
    let (first, again) = tokio::join!(post(&rig, "/stripe/v1/charges", &fields), async {
        rig.provider.wait_until(Duration::from_secs(5), |a| !a.is_empty()).await.unwrap();
        post(&rig, "/stripe/v1/charges", &fields).await
    });
    let said = "retries_multiply: Forbear repeats calls already; set max_network_retries=0 in this client";
    assert_eq!((first.header("forbear-advice"), again.header("forbear-advice")), ("", said), "{again:?}");
    assert_eq!((again.header("forbear-joined"), rig.provider.arrivals().len()), ("same_key", 1));
    let rig = Rig::new(SLOW, &format!("mode: observe{POLICY}")).await;
    assert_eq!(told(&rig, "/p/quick", &[K, AGAIN, ("x-stainless-lang", "python")]).await, "");
}
