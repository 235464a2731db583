//! Writes that are equal although they look otherwise: made again by their clients, under another boundary, spelled otherwise, or
//! come while the first one's effect was not known to be unknown. One arrival each, counted at the provider.

use std::time::Duration;

use futures_util::future::join_all;

use crate::rig::{Got, Rig};

const DONE: &str = "
routes:
  - match: 'POST /slow'
    respond: {effect: {name: thing}, delay_ms: 1500, status: 201, body: {id: 7}}
  - match: 'POST /declined'
    then:
      - {status: 402, body: {error: declined}}
      - {effect: {name: thing}, status: 201, body: {id: 7}}
  - match: 'POST /{rest...}'
    respond: {effect: {name: thing}, status: 201, body: {id: 7}}
";

const K: (&str, &str) = ("authorization", "k");

async fn post(rig: &Rig, path: &str, fields: &[(&str, &str)], body: &str) -> Got {
    rig.call("POST", path, &[&[K], fields].concat(), body).await
}

fn is_problem(got: &Got, slug: &str) -> bool {
    got.status == 422 && got.json()["type"] == format!("/-/problems/{slug}")
}

/// The fields of the n-th send of one call, from 1, by clients of three makers.
fn sends(maker: usize, n: u32) -> Vec<(&'static str, String)> {
    match maker {
        0 => vec![("x-stainless-retry-count", (n - 1).to_string())],
        1 => vec![("amz-sdk-invocation-id", "5a-7".into()), ("amz-sdk-request", format!("attempt={n}; max=3"))],
        _ => vec![("x-goog-api-client", format!("gccl/2.18 gccl-invocation-id/6f1c gccl-attempt-count/{n}"))],
    }
}

#[tokio::test]
async fn a_marked_repeat_of_a_write_that_was_done_is_not_done_again() {
    for maker in 0..3 {
        let mut rig = Rig::new(DONE, "").await;
        for n in 1..=3 {
            let fields = sends(maker, n);
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let got = post(&rig, "/p/things", &fields, "{}").await;
            assert_eq!(
                (got.status, n > 1),
                (if n == 1 { 201 } else { 422 }, is_problem(&got, "already_done")),
                "{got:?}"
            );
            assert_eq!(rig.provider.arrivals().len(), 1, "send {n} of {maker}");
            // Nor over a restart.
            rig = rig.restart("").await;
        }
        // Nobody says of this one that it repeats another.
        assert_eq!(post(&rig, "/p/things", &[], "{}").await.status, 201);
        assert_eq!(rig.provider.arrivals().len(), 2);
    }
}

#[tokio::test]
async fn a_mark_with_an_id_means_its_own_call_and_no_equal_one() {
    let rig = Rig::new(DONE, "").await;
    let rig = &rig;
    let send = |id: &'static str, nth: &'static str| async move {
        post(rig, "/p/slow", &[("amz-sdk-invocation-id", id), ("amz-sdk-request", nth)], "{}").await
    };
    let (first, second) = tokio::join!(send("one", "attempt=1"), async {
        rig.provider.wait_until(Duration::from_secs(5), |a| a.len() == 1).await.unwrap();
        // Its own first send never came here.
        send("two", "attempt=2").await
    });
    assert_eq!((first.status, second.status, second.header("forbear-joined")), (201, 201, ""));
    for (id, of) in [("one", &first), ("two", &second)] {
        let again = send(id, "attempt=3").await;
        assert!(is_problem(&again, "already_done"), "{again:?}");
        assert_eq!(again.json()["action"], of.header("forbear-action"), "{id}");
    }
    // A send that was overtaken by a later one is of the same call.
    assert!(is_problem(&send("two", "attempt=1").await, "already_done"));
    assert_eq!(send("three", "attempt=2").await.status, 201);
    assert_eq!(rig.provider.arrivals().len(), 3);
}

#[tokio::test]
async fn a_marked_repeat_of_what_was_not_done_is_sent() {
    let rig = Rig::new(DONE, "").await;
    for (n, status) in [("0", 402), ("1", 201), ("2", 422)] {
        let got = post(&rig, "/p/declined", &[("x-stainless-retry-count", n)], "{}").await;
        assert_eq!(got.status, status, "{got:?}");
    }
    assert_eq!(rig.provider.arrivals().len(), 2);
}

fn upload(boundary: &str, content: &str) -> String {
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n{content}\r\n--{boundary}--\r\n"
    )
}

#[tokio::test]
async fn an_upload_is_the_same_under_another_boundary() {
    // Kept whole, and known by its beginning.
    for policy in ["", "body_replay_bytes_max: 300\n"] {
        let rig = Rig::new(DONE, policy).await;
        let file = "{\"line\":1}\r\n".repeat(20);
        for (n, boundary) in [("0", "4be1f0a1"), ("1", "77aa00c2"), ("2", "0c0ffee0")] {
            let kind = format!("multipart/form-data; boundary={boundary}");
            let fields = [("content-type", kind.as_str()), ("x-stainless-retry-count", n)];
            let got = post(&rig, "/p/files", &fields, &upload(boundary, &file)).await;
            assert_eq!(is_problem(&got, "already_done"), n != "0", "{policy:?} {got:?}");
        }
        assert_eq!(rig.provider.arrivals().len(), 1, "{policy:?}");
        let fields = [("content-type", "multipart/form-data; boundary=4be1f0a1"), ("x-stainless-retry-count", "1")];
        let other = upload("4be1f0a1", &file.replacen('1', "2", 1));
        assert_eq!(post(&rig, "/p/files", &fields, &other).await.status, 201);
        assert_eq!(rig.provider.arrivals().len(), 2, "{policy:?}");
    }
}

#[tokio::test]
async fn an_equal_write_in_line_is_not_sent_once_the_first_is_unknown() {
    let scenario = "
routes:
  - match: 'POST /things'
    then:
      - {effect: {name: thing}, fault: {at: after_commit, end: stall}}
      - {effect: {name: thing}, status: 201}
";
    let policy = "upstream: {head_timeout_seconds: 1}\nshared_scope: {max_concurrent_requests: 1}\n";
    let rig = Rig::new(scenario, policy).await;
    let (first, second, other) = tokio::join!(
        post(&rig, "/p/things", &[], "{}"),
        async {
            rig.provider.wait_until(Duration::from_secs(5), |a| a.len() == 1).await.unwrap();
            post(&rig, "/p/things", &[], "{}").await
        },
        async {
            rig.provider.wait_until(Duration::from_secs(5), |a| a.len() == 1).await.unwrap();
            post(&rig, "/p/things", &[], "{\"other\":1}").await
        }
    );
    for got in [&first, &second] {
        assert!(is_problem(got, "outcome_unknown"), "{got:?}");
        assert_eq!(got.header("forbear-action"), first.header("forbear-action"));
    }
    // The slot that it gave back is another's.
    assert_eq!((other.status, rig.provider.arrivals().len(), rig.provider.effects().count), (201, 2, 2));
}

#[tokio::test]
async fn one_caller_too_many_of_a_write_on_its_way_is_told_that_it_is() {
    let rig = Rig::new(DONE, "").await;
    let rig = &rig;
    let calls = (0..66).map(|_| post(rig, "/p/slow", &[("idempotency-key", "k-1")], "{}"));
    let all = join_all(calls).await;
    let (told, left): (Vec<_>, Vec<_>) = all.iter().partition(|got| got.status == 201);
    assert_eq!((told.len(), left.len()), (65, 1), "{left:?}");
    assert!(is_problem(left[0], "outcome_unknown"), "{left:?}");
    let problem = left[0].json();
    assert_eq!((&problem["sent"], &problem["effect"]), (&true.into(), &"unknown".into()), "{problem}");
    assert_eq!(problem["safe_next"][0], "watch_action", "{problem}");
    assert_eq!(left[0].header("forbear-action"), told[0].header("forbear-action"));
    assert_eq!(rig.provider.arrivals().len(), 1);
}

#[tokio::test]
async fn a_name_means_one_path_however_that_is_spelled() {
    let rig = Rig::new(DONE, "").await;
    let named = [("idempotency-key", "k-1")];
    for (path, status) in [("/p/q/%61%3a?x=%7e", 201), ("/p/q/a%3A?x=~", 422), ("/p/%71/a%3a?x=%7E", 422)] {
        let got = post(&rig, path, &named, "{}").await;
        assert_eq!((got.status, is_problem(&got, "already_done")), (status, status == 422), "{path}: {got:?}");
    }
    assert_eq!(rig.provider.arrivals().iter().map(|a| a.target.as_str()).collect::<Vec<_>>(), ["/q/%61%3a?x=%7e"]);
    // These are other paths.
    for (path, status) in [("/p/q/b", 201), ("/p/q/b/", 201), ("/p/q%2Fb", 201)] {
        let got = post(&rig, path, &named, "{}").await;
        assert_eq!(got.status, status, "{path}: {got:?}");
    }
}
