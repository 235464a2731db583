//! Scripted answers: sequences, heads, contents, framing.

use super::client::{Client, Ended, WITHIN, get, post, provider};
use forbear_lab::provider::{Fate, Scenario, credential_digest};

#[tokio::test]
async fn a_sequence_is_walked_and_its_last_answer_repeats() {
    let lab = provider(
        r#"
routes:
  - match: "GET /s"
    then: [{status: 429, times: 2}, {status: 503}, {status: 200}]
  - match: "GET /loop"
    loop: true
    then: [{status: 500}, {status: 200}]
  - match: "GET /after"
    then: [{status: 503}, {status: 200, after: 3}]
"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    let mut statuses = Vec::new();
    for target in ["/s", "/s", "/s", "/s", "/s", "/loop", "/loop", "/loop", "/after", "/after", "/after", "/after"] {
        statuses.push(client.get(target).await.status);
    }
    assert_eq!(statuses, [429, 429, 503, 200, 200, 500, 200, 500, 503, 503, 503, 200]);
    assert_eq!(lab.arrivals().len(), 12);
    assert!(lab.arrivals().iter().all(|arrival| arrival.connection == 1 && arrival.fate == Fate::Answered));
}

#[tokio::test]
async fn an_answer_may_stand_for_a_time_from_its_first_use() {
    let lab = provider(r#"{routes: [{match: "GET /s", then: [{status: 429, for_ms: 150}, {status: 200}]}]}"#).await;
    let mut client = Client::new(&lab).await;
    let mut refused = 0;
    while client.get("/s").await.status == 429 {
        refused += 1;
    }
    let arrivals = lab.arrivals();
    let last = arrivals.last().unwrap();
    assert!(refused > 1, "it repeats");
    assert!(last.at_ns - arrivals[0].at_ns >= 150_000_000);
}

#[tokio::test]
async fn each_scope_has_its_own_sequence() {
    let lab = provider(
        r#"
routes:
  - match: "GET /c"
    per: credential
    then: [{status: 429}, {status: 200}]
  - match: "GET /p/{id}"
    per: {path: id}
    then: [{status: 429}, {status: 200}]
"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    let mut statuses = Vec::new();
    for key in ["a", "b", "a", "b"] {
        statuses.push(client.call("GET", "/c", &format!("Authorization: Bearer {key}\r\n"), "").await.status);
    }
    for id in ["1", "2", "1", "2"] {
        statuses.push(client.get(&format!("/p/{id}")).await.status);
    }
    assert_eq!(statuses, [429, 429, 200, 200, 429, 429, 200, 200]);
    assert_eq!(lab.arrivals()[0].credential, credential_digest("Bearer a"));
    let shown = format!("{:?}", lab.arrivals());
    assert!(!shown.contains("Bearer"), "credentials are not logged");
}

#[tokio::test]
async fn heads_are_exact_and_computed() {
    let lab = provider(
        r#"
routes:
  - match: "GET /h"
    respond:
      status: 429
      reason: Slow Down
      date: false
      headers:
        - [Retry-After, "1"]
        - [x-Odd_Case, "{{header x-mine}}"]
        - [Retry-After, "7"]
        - [X-Date, "{{http_date +120s}}"]
        - [X-Epoch, "{{epoch +120s}}"]
      body: "no {{count}}"
"#,
    )
    .await;
    let answer = Client::new(&lab).await.call("GET", "/h", "X-Mine: echo\r\n", "").await;
    assert!(
        answer.head.starts_with("HTTP/1.1 429 Slow Down\r\nRetry-After: 1\r\nx-Odd_Case: echo\r\nRetry-After: 7\r\n"),
        "{}",
        answer.head
    );
    assert_eq!(answer.text(), "no 1");
    assert!(answer.values("date").is_empty());
    let at = httpdate::parse_http_date(answer.value("x-date")).unwrap();
    let epoch = at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(epoch.to_string(), answer.value("x-epoch"));
    assert!(epoch * 1000 > lab.arrivals()[0].wall_ms + 118_000);
}

#[tokio::test]
async fn what_arrived_is_logged_to_the_byte() {
    let lab = provider("{}").await;
    let mut client = Client::new(&lab).await;
    client.send("PUT /a/%2F//..%2f?b=2&a=1&b&=x HTTP/1.1\r\nhOsT: x\r\nX-A: 1\r\nx-a:  2 \r\n").await;
    client.send("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 9\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 404);
    let arrival = &lab.wait_for_arrivals(1, WITHIN).await.unwrap()[0];
    assert_eq!((arrival.method.as_str(), arrival.target.as_str()), ("PUT", "/a/%2F//..%2f?b=2&a=1&b&=x"));
    let pairs: Vec<_> = arrival.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("hOsT", "x"), ("X-A", "1"), ("x-a", "2"), ("Transfer-Encoding", "chunked")]);
    assert_eq!(arrival.body.as_deref(), Some(&b"hello world"[..]));
    assert_eq!((arrival.body_bytes, arrival.body_complete), (11, true));
    assert_eq!(arrival.body_sha256, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
    assert_eq!(arrival.trailers, [("X-Sum".to_owned(), "9".to_owned())]);
    assert_eq!(arrival.client_port, client.stream.local_addr().unwrap().port());
    assert_eq!((arrival.fate, arrival.status), (Fate::NoRoute, Some(404)));
    assert!(arrival.head_written_at_ns.unwrap() >= arrival.at_ns);
}

#[tokio::test]
async fn the_arrival_is_stamped_at_its_first_byte() {
    let lab = provider("{}").await;
    let mut client = Client::new(&lab).await;
    let before_ns = lab.now_ns();
    client.send("G").await;
    // The rest only after the provider has answered something else, so that the first byte is surely read.
    get(&lab, "/other").await;
    let between_ns = lab.now_ns();
    client.send("ET /slow HTTP/1.1\r\n\r\n").await;
    client.answer().await;
    let arrival = lab.arrivals().into_iter().find(|arrival| arrival.target == "/slow").unwrap();
    assert!(arrival.at_ns >= before_ns && arrival.at_ns <= between_ns, "{before_ns} {} {between_ns}", arrival.at_ns);
    assert!(arrival.head_written_at_ns.unwrap() >= between_ns);
}

#[tokio::test]
async fn contents_come_in_every_form() {
    let lab = provider(
        r#"
routes:
  - {match: "GET /json", respond: {body: {b: 1, a: ["{{json n}}", "{{n}}", null, 1.5, true]}}}
  - {match: "GET /base64", respond: {base64: "AAH/"}}
  - {match: "GET /bytes", respond: {bytes: 100000}}
  - {match: "GET /gzip", respond: {gzip: true, body: "hello world"}}
  - {match: "GET /none", respond: {status: 204}}
  - {match: "HEAD /json", respond: {body: {a: 1}}}
"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    let json = client.get("/json").await;
    assert_eq!((json.text(), json.value("content-type")), (r#"{"b":1,"a":[1,"1",null,1.5,true]}"#, "application/json"));
    assert_eq!(client.get("/base64").await.body, [0, 1, 255]);
    let bytes = client.get("/bytes").await;
    assert_eq!((bytes.body.len(), &bytes.body[25..28]), (100_000, &b"zab"[..]));
    let gzip = client.get("/gzip").await;
    assert_eq!(gzip.value("content-encoding"), "gzip");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip.body[..]), &mut text).unwrap();
    assert_eq!(text, "hello world");
    let none = client.get("/none").await;
    assert_eq!((none.status, none.values("content-length").len()), (204, 0));
    client.send("HEAD /json HTTP/1.1\r\n\r\nGET /base64 HTTP/1.1\r\n\r\n").await;
    let head = client.until("\u{fffd}").await;
    assert!(head.contains("Content-Length: 7\r\n") && !head.contains("{\"a\""), "{head}");
}

#[tokio::test]
async fn framings_trailers_and_interim_answers() {
    let lab = provider(
        r#"
routes:
  - match: "GET /chunked"
    respond:
      informational: [{status: 103, headers: {Link: "</x>"}}]
      framing: chunked
      chunk_bytes: 4
      body: hello world
      trailers: {X-Sum: "9"}
  - {match: "GET /close", respond: {framing: close, body: until the end}}
  - {match: "GET /short", respond: {content_length: 20, body: too short, connection: close}}
  - {match: "GET /raw", respond: {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\n0\r\n"}}
"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    client.send("GET /chunked HTTP/1.1\r\n\r\n").await;
    let text = client.until("9\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("Trailer: X-Sum\r\n"));
    assert!(text.ends_with("\r\n\r\n4\r\nhell\r\n4\r\no wo\r\n3\r\nrld\r\n0\r\nX-Sum: 9\r\n\r\n"), "{text}");
    for (target, end) in [
        ("/close", "\r\n\r\nuntil the end"),
        ("/short", "Content-Length: 20\r\nConnection: close\r\n\r\ntoo short"),
        ("/raw", "trun\r\n0\r\n"),
    ] {
        let mut client = Client::new(&lab).await;
        client.send(&format!("GET {target} HTTP/1.1\r\n\r\n")).await;
        let (text, ended) = client.rest().await;
        assert!(text.ends_with(end), "{text}");
        assert_eq!(ended, Ended::Fin);
    }
}

#[tokio::test]
async fn events_come_one_by_one() {
    let lab = provider(
        r#"
routes:
  - match: "GET /sse"
    respond:
      event_gap_ms: 40
      events:
        - {event: start, id: "1", data: {type: start}}
        - {data: "two\nlines", repeat: 2}
        - {comment: keep-alive}
        - {raw: "data: \u4f60\n\n"}
        - {data: "[DONE]", gap_ms: 0}
"#,
    )
    .await;
    let mut client = Client::new(&lab).await;
    client.send("GET /sse HTTP/1.1\r\n\r\n").await;
    let first = client.until("\"start\"").await;
    assert!(!first.contains("two"), "the first event did not wait for the second");
    let answer = client.answer().await;
    assert_eq!(answer.value("content-type"), "text/event-stream");
    assert_eq!(
        answer.text(),
        "event: start\nid: 1\ndata: {\"type\":\"start\"}\n\ndata: two\ndata: lines\n\ndata: two\ndata: lines\n\n: keep-alive\n\ndata: 你\n\ndata: [DONE]\n\n"
    );
    let arrivals = lab.wait_until(WITHIN, |all| all[0].finished_at_ns.is_some()).await.unwrap();
    assert!(arrivals[0].finished_at_ns.unwrap() - arrivals[0].head_written_at_ns.unwrap() >= 160_000_000);
}

#[tokio::test]
async fn routes_are_told_apart_by_header_query_and_body() {
    let lab = provider(
        r#"
routes:
  - {match: "POST /r", when: {body: {/stream: true}}, respond: {body: streamed}}
  - {match: "POST /r", when: {headers: {x-mode: "*"}}, respond: {body: moded}}
  - {match: "POST /r", when: {query: {q: "1"}}, respond: {body: queried}}
  - {match: "POST /r", when: {without_headers: [x-any]}, respond: {body: plain}}
"#,
    )
    .await;
    for (target, headers, body, expect) in [
        ("/r", "", r#"{"stream":true}"#, "streamed"),
        ("/r", "X-Mode: a\r\n", r#"{"stream":false}"#, "moded"),
        ("/r?a=1&q=1", "", "not json", "queried"),
        ("/r?q=2", "", "", "plain"),
    ] {
        assert_eq!(post(&lab, target, headers, body).await.text(), expect);
    }
    assert_eq!(post(&lab, "/r", "X-Any: 1\r\n", "").await.status, 404);
}

#[tokio::test]
async fn bad_requests_are_refused_and_logged() {
    let lab = provider("{}").await;
    for request in [
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\na",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "not http at all\r\n\r\n",
    ] {
        let mut client = Client::new(&lab).await;
        client.send(request).await;
        let (text, ended) = client.rest().await;
        assert!(text.starts_with("HTTP/1.1 400 "), "{request:?}: {text}");
        assert_eq!(ended, Ended::Fin);
    }
    let mut client = Client::new(&lab).await;
    let _ = tokio::io::AsyncWriteExt::write_all(
        &mut client.stream,
        format!("GET /{} HTTP/1.1\r\n", "x".repeat(300_000)).as_bytes(),
    )
    .await;
    assert!(client.until("\r\n").await.starts_with("HTTP/1.1 431 "));
    assert!(lab.arrivals().iter().all(|arrival| arrival.fate == Fate::BadRequest));
    assert_eq!(lab.arrivals().len(), 6);
}

#[test]
fn scenario_mistakes_are_told_with_their_place() {
    for (yaml, words) in [
        ("routes:\n  - match: \"GET /\"\n    respnd: {}\n", &["respnd", "respond"][..]),
        ("routes:\n  - match: \"GET\"\n", &["write a method"][..]),
        ("routes:\n  - match: \"GET /\"\n    respond: {headers: {A: \"{{epcoh}}\"}}\n", &["epcoh", "http_date"][..]),
        ("routes:\n  - match: \"GET /\"\n    respond: {headers: {A: 1.50}}\n", &["quote this number"][..]),
        (
            "routes:\n  - match: \"GET /\"\n    respond: {body: a, bytes: 5}\n",
            &["routes[0] (GET /)", "at most one of"][..],
        ),
        ("routes:\n  - match: \"GET /\"\n    respond: {fault: {at: mid_body}}\n", &["after_bytes"][..]),
        (
            "routes:\n  - match: \"GET /\"\n    respond: {fault: {at: after_body, end: {reset_stream: REFUSED}}}\n",
            &["REFUSED_STREAM"][..],
        ),
        ("routes:\n  - match: \"GET /\"\n    idempotency: {}\n", &["`header` and `body`"][..]),
        ("limits:\n  - {name: a, window: {max: 1, per_ms: 1}, concurrency: {max: 1}}\n", &["exactly one"][..]),
        ("routes: 5\n", &["routes"][..]),
    ] {
        let error = Scenario::from_yaml(yaml).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{yaml}: {error}");
    }
}

#[test]
fn the_shipped_scenarios_load() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let scenario = Scenario::from_file(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name(), path.file_stem().unwrap().to_str());
        names.push(scenario.name().unwrap().to_owned());
    }
    names.sort();
    assert!(names.len() >= 4, "{names:?}");
}

#[test]
fn the_page_shows_a_scenario_that_loads() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-provider.md")).unwrap();
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = rest.split_once("```").unwrap();
    assert_eq!(Scenario::from_yaml(yaml).unwrap().name(), Some("example"));
}
