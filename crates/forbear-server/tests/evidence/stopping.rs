//! The end of draining: whoever still waits for an answer's head is told what is known of his call.

use forbear_store::{ActionFilter, Reader};

use crate::agent::raw_field;
use crate::leaver::{Leaver, Watched, watching};
use crate::peer::{Peer, Reads};
use crate::table::gateway;

#[tokio::test]
async fn who_still_waits_when_draining_ends_is_told_what_is_known() {
    let watched = Watched::default();
    let peer = Peer::start(watching(&watched, false, Reads::Whole, false)).await;
    let dir = tempfile::tempdir().unwrap();
    let keys = format!("base_url: http://{}", peer.address);
    let running = gateway([("p".to_owned(), keys)], "drain_seconds: 1\n", &dir).await;
    let expected = [
        ("read", 429, "deferred", "call_again"),
        ("uncertain", 422, "outcome_unknown", "watch_action"),
        ("keyed", 422, "outcome_unknown", "watch_action"),
    ];
    let mut agents = Vec::new();
    for (path, ..) in expected {
        let mut agent = Leaver::connect(running.addr(), false).await;
        agent.ask(&format!("/p/{path}"), 2, 2, "").await;
        watched.arrived.acquire().await.unwrap().forget();
        agents.push(agent);
    }
    let began = std::time::Instant::now();
    running.stop().await;
    assert!(began.elapsed() < std::time::Duration::from_millis(1_500), "{:?}", began.elapsed());
    for (mut agent, (path, status, outcome, next)) in agents.into_iter().zip(expected) {
        let answer = agent.rest().await;
        let at = format!("{path}: {answer}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{at}");
        assert_eq!(raw_field(&answer, "forbear-outcome"), Some(outcome), "{at}");
        let problem = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        let problem: serde_json::Value = serde_json::from_str(problem).unwrap_or_else(|_| panic!("{at}"));
        assert_eq!((&problem["sent"], &problem["answered"]), (&true.into(), &false.into()), "{at}");
        assert_eq!(problem["safe_next"][0], next, "{at}");
        assert_eq!(raw_field(&answer, "location").is_some(), path != "read", "{at}");
        assert_eq!(raw_field(&answer, "retry-after").is_some(), path == "read", "{at}");
    }
    let reader = Reader::open(&dir.path().join("data")).unwrap();
    let actions = reader.actions(&ActionFilter::default(), 9, None).unwrap().actions;
    let mut ends: Vec<_> = actions.iter().map(|a| (a.outcome.as_deref().unwrap(), a.attempts)).collect();
    ends.sort_unstable();
    assert_eq!(ends, [("deferred", 1), ("outcome_unknown", 1), ("outcome_unknown", 1)]);
    assert_eq!(peer.counts.seen().1, 3);
}
