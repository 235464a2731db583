//! A write that is asked for again: joined while the first is on its way, answered from the record once it was done, and
//! refused where its name was used for something else.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::rig::{Got, Rig};

/// Done at once, told after a while. It honours no key.
const SLOW: &str = "
routes:
  - match: 'POST /things'
    respond: {effect: {name: thing}, delay_ms: 400, status: 201, body: {id: 7}}
  - match: 'POST /large'
    respond: {effect: {name: thing}, delay_ms: 400, bytes: 300000}
  - match: 'POST /declined'
    respond: {status: 402, body: {error: declined}}
";

const K: (&str, &str) = ("authorization", "k");

async fn post(rig: &Rig, fields: &[(&str, &str)], body: &str) -> Got {
    rig.call("POST", "/p/things", fields, body).await
}

fn is_problem(got: &Got, slug: &str) -> bool {
    got.status == 422 && got.json()["type"] == format!("/-/problems/{slug}")
}

/// An agent that sends a whole request and hangs up when it has arrived.
async fn leaves(rig: &Rig, body: &str) {
    let before = rig.provider.arrivals().len();
    let mut socket = TcpStream::connect(rig.running.addr()).await.unwrap();
    let length = body.len();
    let head = format!("POST /p/things HTTP/1.1\r\nhost: f\r\nauthorization: k\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all((head + body).as_bytes()).await.unwrap();
    while rig.provider.arrivals().len() == before {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn fb_085_two_calls_with_one_key_are_one_send() {
    let rig = Rig::new(SLOW, "").await;
    let fields = [K, ("idempotency-key", "k-1")];
    let (a, b) = tokio::join!(post(&rig, &fields, "{\"a\":1}"), post(&rig, &fields, "{\"a\":1}"));
    assert_eq!((a.status, b.status), (201, 201), "{a:?} {b:?}");
    assert_eq!(a.body, b.body);
    assert_eq!(a.header("forbear-action"), b.header("forbear-action"));
    let mut joined = [a.header("forbear-joined"), b.header("forbear-joined")];
    joined.sort_unstable();
    assert_eq!(joined, ["", "same_key"]);
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
}

#[tokio::test]
async fn fb_082_a_key_with_other_content_is_refused_before_any_arrival() {
    let rig = Rig::new(SLOW, "").await;
    let fields = [K, ("idempotency-key", "k-1"), ("content-type", "application/json")];
    assert_eq!(post(&rig, &fields, "{\"amount\":1,\"to\":\"x\"}").await.status, 201);
    for fields in [fields, [K, ("idempotency-key", "\"k-1\""), ("content-type", "application/json; charset=utf-8")]] {
        let other = post(&rig, &fields, "{\"amount\":2}").await;
        assert!(is_problem(&other, "key_mismatch"), "{other:?}");
        assert_eq!(other.header("forbear-outcome"), "denied");
    }
    // The order of members and the space between them are not content.
    let same = post(&rig, &fields, "{ \"to\": \"x\", \"amount\": 1 }").await;
    assert!(is_problem(&same, "already_done"), "{same:?}");
    // Numbers that a float cannot tell apart are.
    let big = [K, ("idempotency-key", "k-2"), ("content-type", "application/json")];
    assert_eq!(post(&rig, &big, "{\"n\":9007199254740993}").await.status, 201);
    assert!(is_problem(&post(&rig, &big, "{\"n\":9007199254740992}").await, "key_mismatch"));
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn fb_083_after_a_decline_other_content_needs_another_key() {
    let rig = Rig::new(SLOW, "").await;
    let fields = [K, ("idempotency-key", "sub-2026-01-01-P")];
    let declined = rig.call("POST", "/p/declined", &fields, "card A").await;
    assert_eq!(declined.status, 402);
    let other = rig.call("POST", "/p/declined", &fields, "card B").await;
    assert!(is_problem(&other, "key_mismatch"), "{other:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
    // Nothing was done under the key: the same content may be tried again.
    assert_eq!(rig.call("POST", "/p/declined", &fields, "card A").await.status, 402);
    assert_eq!(rig.provider.arrivals().len(), 2);
}

#[tokio::test]
async fn fb_087_a_reference_keeps_a_task_that_runs_again_from_doing_it_again() {
    let mut rig = Rig::new(SLOW, "").await;
    let fields = [K, ("forbear-task", "report"), ("forbear-reference", "mail-7")];
    assert_eq!(post(&rig, &fields, "dear all").await.status, 201);
    for _ in 0..2 {
        let again = post(&rig, &fields, "dear all").await;
        assert!(is_problem(&again, "already_done"), "{again:?}");
        let problem = again.json();
        assert_eq!((&problem["effect"], &problem["provider_status"]), (&"applied".into(), &201.into()), "{problem}");
        assert_eq!(again.header("location"), format!("/-/actions/{}", problem["action"].as_str().unwrap()));
        assert_eq!(again.header("x-should-retry"), "false");
        // `succeeded` is the provider's own answer.
        assert_eq!((again.header("forbear-outcome"), &problem["outcome"]), ("denied", &"denied".into()));
        rig = rig.restart("").await;
    }
    // The same words in another task name another thing.
    let other = [K, ("forbear-task", "another"), ("forbear-reference", "mail-7")];
    assert_eq!(post(&rig, &other, "dear all").await.status, 201);
    assert_eq!(rig.provider.effects().count, 2);
}

#[tokio::test]
async fn fb_076_a_reference_whose_effect_is_unknown_is_not_sent_again() {
    let scenario = "
routes:
  - match: 'POST /things'
    respond: {effect: {name: key}, status: 500}
";
    let rig = Rig::new(scenario, "").await;
    let fields = [K, ("forbear-reference", "deploy-1")];
    let first = post(&rig, &fields, "{}").await.header("forbear-action").to_owned();
    for _ in 0..2 {
        let got = post(&rig, &fields, "{}").await;
        assert!(is_problem(&got, "outcome_unknown"), "{got:?}");
        // It is told as the open action, in each of its places.
        assert_eq!((got.header("forbear-action"), &got.json()["action"]), (&*first, &first.clone().into()));
        assert_eq!((got.header("forbear-attempts"), &got.json()["attempts"]), ("1", &1.into()));
        assert_eq!(got.header("location"), format!("/-/actions/{first}"));
        assert_eq!(got.header("forbear-outcome"), "outcome_unknown");
    }
    assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (1, 1));
}

#[tokio::test]
async fn who_looked_up_that_an_unknown_write_was_not_done_can_send_it() {
    let scenario = "
routes:
  - match: 'POST /things'
    then:
      - {status: 500}
      - {effect: {name: thing}, status: 201}
";
    let (bare, keyed): (&[_], &[_]) = (&[K], &[K, ("idempotency-key", "k-1")]);
    let looked = ("forbear-reference", "looked");
    for (first, second) in [(bare, vec![K, looked]), (keyed, vec![K, looked, ("idempotency-key", "k-2")])] {
        let rig = Rig::new(scenario, "").await;
        for _ in 0..2 {
            let unknown = post(&rig, first, "{}").await;
            assert!(is_problem(&unknown, "outcome_unknown"), "{unknown:?}");
            let detail = unknown.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("new Forbear-Reference") && detail.contains("the action is open"), "{detail}");
        }
        let sent = post(&rig, &second, "{}").await;
        assert_eq!((sent.status, rig.provider.effects().count), (201, 1), "{sent:?}");
    }
}

#[tokio::test]
async fn an_equal_write_whose_first_agent_left_gets_the_first_ones_answer() {
    let rig = Rig::new(SLOW, "").await;
    leaves(&rig, "{\"a\":1}").await;
    // sleep: the closed connection has to be noticed before the repeat comes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let again = post(&rig, &[K], "{\"a\":1}").await;
    assert_eq!((again.status, again.header("forbear-joined")), (201, "first_left"), "{again:?}");
    assert_eq!(again.json()["id"], 7);
    // Whether the copy reached its agent is not known: an equal call is not taken for another one.
    assert!(is_problem(&post(&rig, &[K], "{\"a\":1}").await, "already_done"));
    assert_eq!(rig.provider.effects().count, 1);
}

#[tokio::test]
async fn of_bodies_known_by_their_beginning_none_gets_anothers_answer() {
    let rig = Rig::new(SLOW, "body_replay_bytes_max: 16\n").await;
    leaves(&rig, "{\"a\":1,\"b\":2,\"c\":3}").await;
    // sleep: the closed connection has to be noticed before the repeat comes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let other = post(&rig, &[K], "{\"a\":1,\"b\":2,\"c\":4}").await;
    assert!(is_problem(&other, "outcome_unknown"), "{other:?}");
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn a_key_or_credential_that_ends_at_the_hop_is_refused() {
    let rig = Rig::new(SLOW, "").await;
    for named in ["keep-alive, Idempotency-Key", "authorization"] {
        let fields = [K, ("idempotency-key", "k-1"), ("connection", named)];
        let got = post(&rig, &fields, "{}").await;
        assert_eq!(got.status, 400, "{got:?}");
        assert!(got.json()["type"] == "/-/problems/bad_request", "{got:?}");
    }
    assert_eq!(post(&rig, &[K, ("connection", "keep-alive, x-hop"), ("x-hop", "1")], "{}").await.status, 201);
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn an_equal_write_that_was_done_and_told_to_nobody_is_not_done_again() {
    let rig = Rig::new(SLOW, "").await;
    leaves(&rig, "{\"a\":1}").await;
    // sleep: the first one ends with nobody there.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let rig = rig.restart("").await;
    let again = post(&rig, &[K], "{\"a\":1}").await;
    assert!(is_problem(&again, "already_done"), "{again:?}");
    assert_eq!(post(&rig, &[K, ("forbear-reference", "second")], "{\"a\":1}").await.status, 201);
    assert_eq!(rig.provider.effects().count, 2);
}

#[tokio::test]
async fn a_marked_repeat_is_joined_and_an_equal_call_is_not() {
    let rig = Rig::new(SLOW, "").await;
    let (plain, marked) = ([K], [K, ("x-stainless-retry-count", "1")]);
    let (a, b) = tokio::join!(post(&rig, &plain, "{}"), post(&rig, &plain, "{}"));
    assert_eq!((a.status, b.status, rig.provider.effects().count), (201, 201, 2));
    let (a, b) = tokio::join!(post(&rig, &plain, "{\"b\":1}"), async {
        // sleep: it comes second.
        tokio::time::sleep(Duration::from_millis(100)).await;
        post(&rig, &marked, "{\"b\":1}").await
    });
    assert_eq!((a.status, b.status, b.header("forbear-joined")), (201, 201, "marked_repeat"), "{b:?}");
    assert_eq!(rig.provider.effects().count, 3);
}

#[tokio::test]
async fn an_answer_too_large_to_be_given_twice_is_told_of() {
    let rig = Rig::new(SLOW, "").await;
    let fields = [K, ("idempotency-key", "k-1")];
    let call = || rig.call("POST", "/p/large", &fields, "{}");
    let (a, b) = tokio::join!(call(), call());
    let (whole, told) = if a.status == 200 { (a, b) } else { (b, a) };
    assert!(whole.body.len() > 256 * 1024, "{}", whole.body.len());
    assert!(is_problem(&told, "already_done"), "{told:?}");
    assert_eq!((told.header("forbear-joined"), told.header("forbear-outcome")), ("same_key", "denied"));
    assert_eq!(rig.provider.effects().count, 1);
}
