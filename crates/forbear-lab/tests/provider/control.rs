//! The control endpoint, the log as lines, waiting, stopping, bounds.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::client::{Client, Ended, WITHIN, get, post, provider};
use forbear_lab::provider::{Options, Provider, Scenario};

#[tokio::test]
async fn the_control_endpoint_tells_and_is_not_told_of() {
    let lab = provider(r#"{routes: [{match: "POST /e", respond: {effect: {name: e, id: x1}}}]}"#).await;
    post(&lab, "/e", "Authorization: secret\r\n", "a body").await;
    let mut client = Client::new(&lab).await;
    let lines = client.get("/__lab/arrivals?bodies").await;
    let arrival: serde_json::Value = serde_json::from_str(lines.text().trim()).unwrap();
    assert_eq!(arrival["line"], "arrival");
    assert_eq!((&arrival["target"], &arrival["fate"]), (&"/e".into(), &"answered".into()));
    assert_eq!((&arrival["effect"], &arrival["body_text"]), (&"x1".into(), &"a body".into()));
    assert!(!lines.text().contains("secret"));
    assert!(!client.get("/__lab/arrivals").await.text().contains("a body"));
    let effects = client.get("/__lab/effects").await.json();
    assert_eq!((&effects["count"], &effects["records"][0]["id"]), (&1.into(), &"x1".into()));
    let refused = client.call("POST", "/__lab/scenario", "", "routes: 5").await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(client.call("POST", "/__lab/scenario", "", "{unmatched: {status: 418}}").await.status, 200);
    assert_eq!(client.get("/any").await.status, 418);
    assert_eq!(client.call("POST", "/__lab/reset", "", "").await.status, 200);
    assert_eq!(client.get("/__lab/arrivals").await.text(), "");
    assert_eq!((client.get("/__lab/other").await.status, client.get("/__lab/reset").await.status), (404, 405));
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_is_ndjson_and_bounded() {
    let lines = Lines::default();
    let options = Options { log: Some(Box::new(lines.clone())), arrivals_kept_max: 2, ..Options::default() };
    let scenario = Scenario::from_yaml("{unmatched: {status: 200, process_ms: 1}}").unwrap();
    let lab = Provider::start(scenario, options).await.unwrap();
    let mut client = Client::new(&lab).await;
    for target in ["/1", "/2", "/3"] {
        client.get(target).await;
    }
    drop(client);
    let text = loop {
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        if text.contains("peer_closed\"") && text.lines().count() == 4 {
            break text;
        }
        tokio::task::yield_now().await;
    };
    let parsed: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = parsed.iter().map(|line| line["line"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["arrival", "arrival", "arrival", "peer_closed"]);
    assert_eq!((&parsed[2]["n"], &parsed[3]["connection"]), (&3.into(), &1.into()));
    let kept: Vec<u64> = lab.arrivals().iter().map(|arrival| arrival.n).collect();
    assert_eq!(kept, [2, 3]);
    assert!(get(&lab, "/__lab/arrivals").await.text().starts_with("{\"line\":\"dropped\",\"arrivals\":1}\n"));
}

#[tokio::test]
async fn waiting_is_told_of_changes_and_ends_in_time() {
    let lab = provider("{}").await;
    let waiting = lab.wait_for_arrivals(2, Duration::from_millis(50));
    let (got, _) = tokio::join!(waiting, get(&lab, "/1"));
    assert_eq!(got.unwrap_err().len(), 1);
    let waiting = lab.wait_for_arrivals(2, WITHIN);
    let (got, _) = tokio::join!(waiting, get(&lab, "/2"));
    assert_eq!(got.unwrap().len(), 2);
}

#[tokio::test]
async fn stopping_ends_every_connection() {
    let lab = provider("{unmatched: {process_ms: 60000}}").await;
    let addr = lab.addr();
    let mut client = Client::new(&lab).await;
    client.send("GET / HTTP/1.1\r\n\r\n").await;
    lab.wait_for_arrivals(1, WITHIN).await.unwrap();
    lab.stop().await;
    assert_eq!(client.rest().await, (String::new(), Ended::Fin));
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
}
