//! Streams: passed as they come, byte for byte, and never begun twice.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::net::TcpListener;

use crate::agent::{Agent, PATIENCE, Raw, SIDES, eventually, field, idle, policy, read, story, story_where};
use crate::rig::{Rig, serve};

const CHAT: &str = "/p/v1/chat/completions";
const THREE: &str = "data: one\n\ndata: two\n\ndata: three\n\n";

#[tokio::test]
async fn fb_101_a_stream_that_breaks_after_its_first_bytes_is_not_begun_again() {
    for end in ["rst", "fin", "{reset_stream: INTERNAL_ERROR}"] {
        for (agent_http2, provider_http2) in SIDES {
            let scenario = format!(
                "routes:\n  - match: 'POST /v1/{{rest...}}'\n    respond:\n      effect: {{name: generation}}\n      \
                 events: [{{data: one}}, {{data: two}}, {{data: three}}, {{data: four}}]\n      \
                 fault: {{at: mid_stream, after_events: 3, end: {end}}}\n"
            );
            let rig = Rig::new(&scenario, &policy("openai", provider_http2, "")).await;
            // An inference may be asked for again before its first byte, a file upload (an uncertain write) never.
            for (path, outcome) in [(CHAT, "stream_incomplete"), ("/p/v1/files", "outcome_unknown")] {
                let before = rig.provider.arrivals().len();
                let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
                let response = agent.call("POST", path, "{}").await;
                let action = field(&response, "forbear-action").to_owned();
                assert_eq!(response.status(), 200);
                let (bytes, ended) = read(response).await;
                let at = format!("{end} {agent_http2} {provider_http2} {path}");
                assert_eq!(String::from_utf8_lossy(&bytes), THREE, "{at}");
                assert!(ended.is_err(), "a cut stream is cut for the agent: {at}");
                assert_eq!(story(&rig, &action).await.action.outcome.as_deref(), Some(outcome), "{at}");
                idle(&rig, PATIENCE).await;
                assert_eq!(rig.provider.arrivals().len(), before + 1, "{at}");
            }
            assert_eq!(rig.provider.effects().count, 2);
        }
    }
}

#[tokio::test]
async fn fb_102_a_replaced_attempt_is_closed_before_the_next_one_leaves() {
    let scenario = "
routes:
  - match: 'POST /v1/chat/completions'
    then:
      - {delay_ms: 10000, events: [{data: first}, {data: '[DONE]'}]}
      - {events: [{data: second}, {data: '[DONE]'}]}
";
    let one = |agent_http2: bool, provider_http2: bool| async move {
        let policy = policy("openai", provider_http2, "upstream: {head_timeout_seconds: 1}\n");
        let rig = Rig::new(scenario, &policy.replace("floor_ms: 10", "floor_ms: 50")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let response = agent.call("POST", CHAT, "{}").await;
        assert_eq!((response.status().as_u16(), field(&response, "forbear-attempts")), (200, "2"));
        let (bytes, ended) = read(response).await;
        assert_eq!(String::from_utf8_lossy(&bytes), "data: second\n\ndata: [DONE]\n\n");
        ended.unwrap();
        let arrivals = rig.provider.arrivals();
        assert_eq!(arrivals.len(), 2);
        let closed = arrivals[0].peer_closed_at_ns.expect("the first attempt was closed");
        assert!(closed < arrivals[1].at_ns, "{closed} {}", arrivals[1].at_ns);
    };
    tokio::join!(one(false, false), one(false, true), one(true, false), one(true, true));
}

#[tokio::test]
async fn fb_103_a_stream_with_an_error_inside_or_without_its_end_mark_is_no_success() {
    let message =
        "event: message_start\ndata: {\"type\":\"message_start\"}\n\nevent: content_block_start\ndata: {}\n\n";
    let table = [
        ("openai", CHAT, "data: 1\n\n", "stream_incomplete"),
        ("openai", CHAT, "data: 1\n\ndata: {\"error\": {\"message\": \"x\"}}\n\ndata: [DONE]\n\n", "stream_incomplete"),
        ("openai", CHAT, "data: 1\n\ndata: { \"error\":{}}\n\n", "stream_incomplete"),
        ("openai", CHAT, "data: 1\n\ndata: [DONE]\n\n", "succeeded"),
        ("openai", CHAT, "data:1\n\ndata:[DONE]\n\n", "succeeded"),
        ("openai", CHAT, "data: 1\r\rdata: [DONE]\r\r", "succeeded"),
        ("openai", CHAT, "data: say \"error\"\n\ndata: [DONE]\n\n", "succeeded"),
        ("anthropic", "/p/v1/messages", "{m}event: error\ndata: {\"type\":\"error\"}\n\n", "stream_incomplete"),
        ("anthropic", "/p/v1/messages", "{m}data: {\"type\": \"error\", \"error\": {}}\n\n", "stream_incomplete"),
        ("anthropic", "/p/v1/messages", "{m}", "stream_incomplete"),
        ("anthropic", "/p/v1/messages", "{m}event:message_stop\ndata:{}\n\n", "succeeded"),
    ];
    let mut rigs = std::collections::BTreeMap::new();
    for (extends, path, events, outcome) in table {
        let events = events.replace("{m}", message);
        let scenario = format!(
            "routes:\n  - match: '* /{{rest...}}'\n    respond:\n      headers: {{Content-Type: text/event-stream}}\n      \
             framing: chunked\n      body: {}\n",
            serde_json::to_string(&events).unwrap()
        );
        if !rigs.contains_key(extends) {
            rigs.insert(extends, Rig::new(&scenario, &policy(extends, false, "")).await);
        }
        let rig = &rigs[extends];
        rig.provider.set_scenario(forbear_lab::provider::Scenario::from_yaml(&scenario).unwrap());
        for is_http2 in [false, true] {
            let mut agent = Agent::connect(rig.running.addr(), is_http2).await;
            let response = agent.call("POST", path, "{}").await;
            let action = field(&response, "forbear-action").to_owned();
            let (bytes, ended) = read(response).await;
            assert_eq!(String::from_utf8_lossy(&bytes), events);
            ended.unwrap();
            let story = story(rig, &action).await;
            assert_eq!(story.action.outcome.as_deref(), Some(outcome), "{events:?}");
        }
    }
}

#[tokio::test]
async fn fb_106_characters_that_straddle_pieces_stay_whole() {
    // `data: ` with two characters of three and four bytes, one byte at a time.
    let scenario = "
routes:
  - match: 'GET /s'
    respond:
      headers: {Content-Type: text/event-stream}
      framing: chunked
      base64: ZGF0YTog5L2g8J+MjQoK
      chunk_bytes: 1
      chunk_gap_ms: 5
";
    let expected = b"data: \xe4\xbd\xa0\xf0\x9f\x8c\x8d\n\n";
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(scenario, &policy("", provider_http2, "")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let (bytes, ended) = read(agent.call("GET", "/p/s", "").await).await;
        assert_eq!(bytes, expected);
        ended.unwrap();
    }
}

/// A provider that sends each piece only after the agent has the one before, so that one kept back shows at once.
async fn one_by_one(pieces: &[&[u8]], fields: &str, is_http2: bool) -> Vec<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let running = serve(&format!("http://{}", listener.local_addr().unwrap()), "", &dir).await;
    let provider = async {
        let mut provider = Raw::new(listener.accept().await.unwrap().0);
        provider.stream.set_nodelay(true).unwrap();
        provider.head().await;
        provider
            .write(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
            ))
            .await;
        provider
    };
    let agent = async {
        let mut agent = Agent::connect(running.addr(), is_http2).await;
        let response = agent.call("GET", "/p/s", "").await;
        (agent, response)
    };
    let (mut provider, (_agent, response)) = tokio::join!(provider, agent);
    let encoding = field(&response, "content-encoding").to_owned();
    assert_eq!(fields.contains("gzip"), encoding == "gzip");
    let mut body = response.into_body();
    let mut latencies = Vec::new();
    for piece in pieces {
        let sent_at = Instant::now();
        provider.write([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
        let mut got = Vec::new();
        while got.len() < piece.len() {
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("the piece is passed on");
            got.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(got, *piece);
        latencies.push(sent_at.elapsed());
    }
    latencies
}

#[tokio::test]
async fn fb_108_events_pass_one_by_one_compressed_or_not() {
    // Any bytes do for a compressed stream: nothing of it may be read or written anew.
    let gzip: [&[u8]; 4] =
        [b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"\x4a\x49\x2c\x49\0\0\0\0\xff\xff", b"\0\0\xff\xff", b"\x03\0"];
    let plain: [&[u8]; 4] = [b"data: 1\n\n", b": ping\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"];
    for is_http2 in [false, true] {
        for (pieces, fields) in [(gzip, "Content-Encoding: gzip\r\n"), (plain, "")] {
            let mut latencies = one_by_one(&pieces.repeat(4), fields, is_http2).await;
            latencies.sort_unstable();
            // One hiccup of a busy machine is no buffering, which would show in each.
            let most = latencies[latencies.len() - 2];
            assert!(most <= Duration::from_millis(100), "{latencies:?}");
        }
    }
}

const LONG: &str = "
routes:
  - match: 'POST /v1/chat/completions'
    respond: {events: [{data: x, repeat: 200}], event_gap_ms: 50}
  - match: 'POST /v1/slow'
    respond: {delay_ms: 10000, body: late}
  - match: 'GET /v1/models/slow'
    respond: {delay_ms: 10000, body: late}
";

#[tokio::test]
async fn fb_109_an_agent_that_leaves_ends_the_call_at_the_provider() {
    for (agent_http2, provider_http2) in SIDES {
        for closes in [true, false] {
            if !agent_http2 && !closes {
                continue; // Over HTTP/1.1 a call ends with its connection.
            }
            let rig = Rig::new(LONG, &policy("openai", provider_http2, "")).await;
            let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
            let response = agent.call("POST", CHAT, "{}").await;
            let action = field(&response, "forbear-action").to_owned();
            let mut body = response.into_body();
            for _ in 0..2 {
                body.frame().await.unwrap().unwrap();
            }
            let left_at = rig.provider.now_ns();
            if closes {
                agent.leave();
            }
            drop(body);
            idle(&rig, Duration::from_secs(1)).await;
            let seen = rig.provider.wait_until(PATIENCE, |a| a[0].peer_closed_at_ns.is_some()).await.unwrap();
            let after = seen[0].peer_closed_at_ns.unwrap().saturating_sub(left_at);
            assert!(after <= 1_000_000_000, "{after} ns");
            let story = story(&rig, &action).await;
            assert_eq!(story.action.outcome.as_deref(), Some("cancelled"));
            assert!(format!("{:?}", story.events).contains("client_cancelled"), "{:?}", story.events);
            assert_eq!(rig.provider.arrivals().len(), 1);
        }
    }
}

#[tokio::test]
async fn fb_109_also_before_the_answer_has_begun() {
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(LONG, &policy("openai", provider_http2, "")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let request = agent.request("GET", "/p/v1/models/slow").body(crate::agent::no_body()).unwrap();
        tokio::select! {
            _ = agent.send(request) => unreachable!("the provider takes ten seconds"),
            arrived = rig.provider.wait_for_arrivals(1, PATIENCE) => drop(arrived.unwrap()),
        }
        let left_at = rig.provider.now_ns();
        agent.leave();
        idle(&rig, Duration::from_secs(1)).await;
        let seen = rig.provider.wait_until(PATIENCE, |a| a[0].peer_closed_at_ns.is_some()).await.unwrap();
        let after = seen[0].peer_closed_at_ns.unwrap().saturating_sub(left_at);
        assert!(after <= 1_000_000_000, "{after} ns");
    }
}

#[tokio::test]
async fn a_writes_answer_is_followed_to_its_end_though_its_agent_left() {
    let scenario = "
routes:
  - match: 'POST /early'
    respond: {effect: {name: w}, process_ms: 300, body: done}
  - match: 'POST /late'
    respond: {effect: {name: w}, bytes: 12, chunk_bytes: 1, chunk_gap_ms: 25, framing: chunked}
";
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(scenario, &policy("", provider_http2, "")).await;
        // Before the head: the action's name is only on record.
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let request = agent.request("POST", "/p/early").body(crate::agent::body("{}")).unwrap();
        tokio::select! {
            _ = agent.send(request) => panic!("too early"),
            arrived = rig.provider.wait_for_arrivals(1, PATIENCE) => drop(arrived.unwrap()),
        }
        agent.leave();
        let is_done = |a: &[forbear_lab::provider::Arrival]| a[0].finished_at_ns.is_some();
        let seen = rig.provider.wait_until(PATIENCE, is_done).await.unwrap();
        assert_eq!((seen[0].peer_closed_at_ns, seen[0].status), (None, Some(200)));
        idle(&rig, PATIENCE).await;
        // In the middle of the body.
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let response = agent.call("POST", "/p/late", "{}").await;
        let action = field(&response, "forbear-action").to_owned();
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        agent.leave();
        drop(body);
        let story = story_where(&rig, &action, |s| s.action.outcome.is_some()).await;
        assert_eq!(story.action.outcome.as_deref(), Some("succeeded"));
        assert_eq!(story.action.effect.as_deref(), Some("applied"));
        let all_done = || rig.provider.arrivals().iter().all(|a| a.finished_at_ns.is_some());
        eventually("the answer is whole", PATIENCE, all_done).await;
        assert_eq!(rig.provider.arrivals()[1].peer_closed_at_ns, None);
        assert_eq!((rig.provider.arrivals().len(), rig.provider.effects().count), (2, 2));
    }
}
