//! What is looked into for an error in disguise, and what is not: the bytes reach the agent all the same.

use std::time::{Duration, Instant};

use crate::rig::Rig;

const CONTRACT: &str = "
providers:
  p:
    base_url: $BASE
    codes:
      - {at: 'body:error', is: busy, statuses: [200], means: throttled, before_work: true}
      - {at: 'body:ok', is: 'false', statuses: [200], means: rejected, before_work: true}
";

async fn outcome(answer: &str) -> (String, usize, usize) {
    let scenario =
        format!("routes:\n  - match: '* /x'\n    then:\n      - {answer}\n      - {{body: {{fine: true}}}}\n");
    let rig = Rig::new(&scenario, CONTRACT).await;
    let got = rig.get("/p/x").await;
    (got.header("forbear-outcome").to_owned(), got.body.len(), rig.provider.arrivals().len())
}

#[tokio::test]
async fn an_error_is_found_however_its_body_comes() {
    for how in ["", "framing: chunked,", "framing: chunked, chunk_bytes: 3,", "framing: close,", "gzip: true,"] {
        let busy = format!("{{{how} body: {{ok: false, error: busy}}}}");
        assert_eq!(outcome(&busy).await, ("succeeded".into(), 13, 2), "{how}");
        let refused = format!("{{{how} body: {{ok: false, error: other}}}}");
        let (said, _, sends) = outcome(&refused).await;
        assert_eq!((said.as_str(), sends), ("rejected", 1), "{how}");
    }
}

#[tokio::test]
async fn what_is_no_short_json_is_content() {
    let long = format!("{{\"error\": \"busy\", \"pad\": \"{}\"}}", "x".repeat(70_000));
    for (answer, bytes) in [
        ("{headers: {Content-Type: text/plain}, body: '{\"error\": \"busy\"}'}".to_owned(), 17),
        ("{headers: {Content-Type: text/event-stream}, body: '{\"error\": \"busy\"}'}".to_owned(), 17),
        (format!("{{headers: {{Content-Type: application/json}}, body: '{long}'}}"), long.len()),
        (format!("{{framing: chunked, headers: {{Content-Type: application/json}}, body: '{long}'}}"), long.len()),
        ("{status: 201, body: {error: busy}}".to_owned(), 16),
    ] {
        assert_eq!(outcome(&answer).await, ("succeeded".into(), bytes, 1), "{}", &answer[..60.min(answer.len())]);
    }
}

#[tokio::test]
async fn a_slow_body_is_handed_on_before_it_is_whole() {
    let scenario = "
routes:
  - match: '* /x'
    respond: {framing: chunked, chunk_bytes: 10, chunk_gap_ms: 2500, body: {error: busy, pad: 1}}
";
    let rig = Rig::new(scenario, CONTRACT).await;
    let begun = Instant::now();
    let got = rig.get("/p/x").await;
    assert_eq!((got.header("forbear-outcome"), got.json()["error"].as_str()), ("succeeded", Some("busy")));
    assert!(begun.elapsed() >= Duration::from_millis(2_500), "{:?}", begun.elapsed());
    assert_eq!(rig.provider.arrivals().len(), 1);
}
