//! Better ways: a run that does in many calls what the provider offers in few is told so, once, and no other run is.

use crate::rig::{Got, Rig};

const THINGS: &str = "
routes:
  - match: 'GET /things/{id}'
    respond: {headers: {ETag: '\"v1\"'}, body: {ok: true}}
  - match: 'GET /list'
    then:
      - {body: {n: 1}}
      - {status: 429, headers: {Retry-After: '1'}}
      - {body: {n: 1}}
";

const ADVICE: &str = "
providers:
  p:
    base_url: $BASE
    routes: [{match: 'GET /things/{id}', class: read}]
    advice:
      - {when: many_details, route: 'GET /things/{id}', say: Read up to 100 in one call, see: 'POST /things/batch'}
      - {when: polling, route: 'GET /things/{id}', say: Send the ETag in If-None-Match}
      - {when: paging, route: 'GET /list', say: Export them, see: 'POST /exports'}
";

async fn get(rig: &Rig, path: &str, run: &str) -> Got {
    let named = [("authorization", "k"), ("forbear-run", run)];
    let fields = if run.is_empty() { &named[..1] } else { &named[..] };
    let got = rig.call("GET", path, fields, "").await;
    assert_eq!(got.status, 200, "{got:?}");
    got
}

/// The advice that came with each of these calls, with its place.
async fn told(rig: &Rig, run: &str, paths: impl IntoIterator<Item = String>) -> Vec<(usize, String)> {
    let mut told = Vec::new();
    for (i, path) in paths.into_iter().enumerate() {
        let got = get(rig, &path, run).await;
        if got.headers.contains_key("forbear-advice") {
            told.push((i + 1, got.header("forbear-advice").to_owned()));
        }
    }
    told
}

#[tokio::test]
async fn a_run_that_reads_many_details_is_told_once() {
    let rig = Rig::new(THINGS, ADVICE).await;
    let details = |n: usize| (0..n).map(|i| format!("/p/things/{i}"));
    let advice = "many_details: Read up to 100 in one call; see POST /things/batch";
    assert_eq!(told(&rig, "r1", details(45)).await, [(20, advice.to_owned())]);
    assert_eq!(told(&rig, "r2", details(19)).await, [], "another run, and not so many");
    assert_eq!(told(&rig, "", details(25)).await, [], "each of them is a run of its own");
    assert!(rig.provider.arrivals().iter().all(|a| a.headers.iter().all(|(name, _)| !name.starts_with("forbear"))));
}

#[tokio::test]
async fn a_run_that_asks_for_the_same_again_and_again_is_told_once() {
    let rig = Rig::new(THINGS, ADVICE).await;
    let polls = |n: usize| (0..n).map(|_| "/p/things/7".to_owned());
    let advice = "polling: Send the ETag in If-None-Match";
    assert_eq!(told(&rig, "r1", polls(15)).await, [(6, advice.to_owned())]);
    assert_eq!(told(&rig, "r2", polls(5)).await, []);
}

#[tokio::test]
async fn a_run_that_pages_into_the_limit_is_told_and_one_that_does_not_is_not() {
    let rig = Rig::new(THINGS, ADVICE).await;
    let pages = || (1..=4).map(|i| format!("/p/list?page={i}"));
    let advice = "paging: Export them; see POST /exports";
    assert_eq!(told(&rig, "r1", pages()).await, [(3, advice.to_owned())]);
    assert_eq!(told(&rig, "r2", pages()).await, [], "the limit stood in nobody's way");
    assert_eq!(rig.provider.arrivals().len(), 9, "the second page was asked for twice");
}
