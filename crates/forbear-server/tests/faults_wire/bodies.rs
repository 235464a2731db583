//! Request bodies that are sent again: whole or not at all, with the same fields.

use std::time::Duration;

use bytes::Bytes;
use forbear_lab::provider::{Arrival, Options, Provider, Scenario};
use sha2::{Digest, Sha256};

use crate::agent::{Agent, PATIENCE, Raw, SIDES, body, eventually, field, policy, raw_field, read, story};
use crate::rig::{Rig, serve};

const KEYED: &str = "    routes:\n      - {match: 'POST /w', class: idempotent_write, idempotency_header: Idempotency-Key}\n      \
                     - {match: 'POST /r', class: read}\n";

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Bytes that differ everywhere, so that a part of them is never taken for the whole.
fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|i| u8::try_from((i * 31 + i / 251) % 251).unwrap()).collect::<Vec<_>>().into()
}

fn of_case<'a>(arrivals: &'a [Arrival], case: &str) -> Vec<&'a Arrival> {
    arrivals.iter().filter(|a| a.header("x-case") == Some(case)).collect()
}

#[tokio::test]
async fn fb_114_a_resent_body_is_whole_and_above_the_cap_nothing_is_resent() {
    let scenario = "
routes:
  - match: 'POST /{x}'
    per: {header: x-case}
    then: [{status: 503, body: {}}, {body: fine}]
";
    let run = |agent_http2: bool, provider_http2: bool| async move {
        let policy = policy("", provider_http2, KEYED);
        let policy =
            format!("body_replay_bytes_max: 131072\nshared_scope: {{max_retries_per_minute: 10000}}\n{policy}");
        let rig = Rig::new(scenario, &policy).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        for kib in [0, 63, 64, 65, 90, 127, 128, 129, 300] {
            // A declared length and none, a write and a call without effect.
            for (declared, path, unsure) in [(true, "w", 422), (false, "w", 422), (true, "r", 503)] {
                let bytes = content(kib * 1024);
                let case = format!("{kib}-{declared}-{path}");
                let request = agent.request("POST", &format!("/p/{path}")).header("x-case", &case);
                // Equal beginnings, and each an effect of its own.
                let request = request.header("forbear-reference", &case);
                let full = if declared {
                    body(bytes.clone())
                } else {
                    let pieces: Vec<_> = bytes.chunks(7_000).map(Bytes::copy_from_slice).collect();
                    let frames = pieces.into_iter().map(|p| Ok(hyper::body::Frame::data(p)));
                    let frames = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
                    http_body_util::BodyExt::boxed_unsync(frames)
                };
                let response = agent.send(request.body(full).unwrap()).await;
                let (status, attempts) = (response.status().as_u16(), field(&response, "forbear-attempts").to_owned());
                let (text, _) = read(response).await;
                let text = String::from_utf8_lossy(&text);
                let arrivals = rig.provider.arrivals();
                let seen = of_case(&arrivals, &case);
                let at = format!("{case} {agent_http2} {provider_http2}: {status} {text}");
                for arrival in &seen {
                    assert_eq!(arrival.body_sha256, sha256(&bytes), "{at}");
                }
                if kib <= 128 {
                    assert_eq!((status, &*attempts, seen.len()), (200, "2", 2), "{at}");
                } else {
                    assert_eq!((status, &*attempts, seen.len()), (unsure, "1", 1), "{at}");
                    assert!(path == "w" || text.contains("replay cap"), "the reason is stated: {at}");
                }
            }
        }
    };
    for (agent_http2, provider_http2) in SIDES {
        run(agent_http2, provider_http2).await;
    }
}

#[tokio::test]
async fn fb_115_a_body_just_under_the_cap_is_sent_after_a_failed_connection() {
    // Nothing was sent, so that this holds for every class.
    let run = |path: &'static str| async move {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let policy = policy("", false, KEYED)
            .replace("base_ms: 10, cap_ms: 50, floor_ms: 10", "base_ms: 10, cap_ms: 800, floor_ms: 700");
        let policy = format!("body_replay_bytes_max: 16384\nreplay_bytes_total_max: 16384\n{policy}");
        let running = serve(&format!("http://{port}"), &policy, &dir).await;
        let bytes = content(16_150);
        let mut agent = Agent::connect(running.addr(), false).await;
        let provider = async {
            let waits = || running.shard().scopes(1).iter().any(|s| s.delayed == 1);
            eventually("the first attempt could not connect", PATIENCE, waits).await;
            let scenario = Scenario::from_yaml("routes:\n  - match: 'POST /{x}'\n    respond: {body: ok}\n").unwrap();
            Provider::start(scenario, Options { listen: port, ..Options::default() }).await.unwrap()
        };
        let call = async {
            let response = agent.call("POST", path, bytes.clone()).await;
            let (status, (text, _)) = (response.status(), read(response).await);
            assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&text));
        };
        let ((), provider) = tokio::join!(call, provider);
        let arrivals = provider.arrivals();
        assert_eq!(arrivals.len(), 1, "{path}");
        assert_eq!((arrivals[0].body_bytes, &arrivals[0].body_sha256), (16_150, &sha256(&bytes)));
    };
    tokio::join!(run("/p/w"), run("/p/r"), run("/p/uncertain"));
}

#[tokio::test]
async fn fb_116_a_resent_request_has_the_same_fields() {
    let scenario = "
routes:
  - match: 'POST /{x}'
    per: {path: x}
    then: [{status: 429, headers: {Retry-After: '1'}, body: {}}, {status: 202, body: fine}]
";
    let routes =
        "    routes:\n      - {match: 'POST /{x}', class: idempotent_write, idempotency_header: Idempotency-Key}\n";
    let run = |provider_http2: bool| async move {
        let rig = Rig::new(scenario, &policy("", provider_http2, routes)).await;
        let mut agent = Raw::connect(rig.running.addr()).await;
        agent
            .write(
                "POST /p/a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json; charset=utf-8\r\nX-Custom: a\r\n\
                 x-ODD: 1\r\nX-Custom: b\r\nAccept: */*\r\nCookie: s=1\r\nContent-Length: 2\r\n\r\n{}",
            )
            .await;
        let head = agent.head().await;
        assert!(head.starts_with("HTTP/1.1 202 "), "{head}");
        assert_eq!(raw_field(&head, "forbear-attempts"), Some("2"));
        let mut agent = Agent::connect(rig.running.addr(), true).await;
        let request = agent.request("POST", "/p/b").header("x-custom", "a").header("content-type", "text/plain");
        let request = request.header("x-custom", "b").body(body("{}")).unwrap();
        assert_eq!(agent.send(request).await.status(), 202);
        let arrivals = rig.provider.arrivals();
        assert_eq!(arrivals.len(), 4);
        for pair in arrivals.chunks(2) {
            assert_eq!(pair[0].headers, pair[1].headers);
            let custom: Vec<_> = pair[1].headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("x-custom")).collect();
            assert_eq!(custom.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>(), ["a", "b"]);
            assert!(pair[1].header("content-type").is_some() && pair[1].body_bytes == 2);
        }
        if !provider_http2 {
            let spelled: Vec<_> = arrivals[1].headers.iter().map(|(n, _)| n.as_str()).collect();
            assert!(spelled.contains(&"x-ODD") && spelled.contains(&"X-Custom"), "{spelled:?}");
        }
    };
    tokio::join!(run(false), run(true));
}

#[tokio::test]
async fn fb_120_a_compressed_answer_passes_as_it_is_and_its_error_is_understood_all_the_same() {
    let error = "{error: {message: used up, code: insufficient_quota}}";
    let scenario = format!(
        "routes:\n  - match: 'GET /v1/models/fine'\n    respond: {{gzip: true, body: hello world}}\n  \
         - match: 'GET /v1/models/bad'\n    respond: {{status: 400, gzip: true, body: {{error: {{code: bad_name}}}}}}\n  \
         - match: 'GET /v1/models/spent'\n    respond: {{status: 429, gzip: true, body: {error}}}\n"
    );
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(&scenario, &policy("openai", provider_http2, "")).await;
        let mut direct = Agent::connect(rig.provider.addr(), false).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        for path in ["/v1/models/fine", "/v1/models/bad"] {
            let (expected, got) =
                (direct.call("GET", path, "").await, agent.call("GET", &format!("/p{path}"), "").await);
            assert_eq!(field(&got, "content-encoding"), "gzip");
            for name in ["content-encoding", "content-length", "content-type"] {
                assert_eq!(field(&got, name), field(&expected, name), "{path} {name}");
            }
            let action = field(&got, "forbear-action").to_owned();
            assert_eq!(read(got).await.0, read(expected).await.0, "{path}");
            let story = story(&rig, &action).await;
            assert_eq!(path.ends_with("bad"), format!("{:?}", story.events).contains("bad_name"), "{:?}", story.events);
        }
        let got = agent.call("GET", "/p/v1/models/spent", "").await;
        let action = field(&got, "forbear-action").to_owned();
        drop(read(got).await);
        let story = story(&rig, &action).await;
        assert!(format!("{:?}", story.events).contains("insufficient_quota"), "{:?}", story.events);
        assert_eq!(story.action.attempts, 1, "a spent quota is not asked again");
    }
}

/// A body over the replay cap is streamed once, in memory that does not grow with it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn fifty_megabytes_are_streamed_once_in_flat_memory() {
    const PIECE: usize = 256 * 1024;
    const PIECES: usize = 200;
    let resident_kib = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
    };
    let scenario = "routes:\n  - match: 'POST /{x}'\n    respond: {status: 503, body: {}}\n";
    for (agent_http2, provider_http2) in [(false, false), (true, true)] {
        let policy = policy("", provider_http2, KEYED);
        let rig = Rig::new(scenario, &format!("body_replay_bytes_max: 1048576\n{policy}")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        let piece = content(PIECE);
        let (before, most) = (resident_kib(), std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)));
        let watch = std::sync::Arc::clone(&most);
        let same = piece.clone();
        let frames = (0..PIECES).map(move |_| {
            watch.fetch_max(resident_kib(), std::sync::atomic::Ordering::Relaxed);
            Ok(hyper::body::Frame::data(same.clone()))
        });
        let full = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
        let request = agent.request("POST", "/p/r").body(http_body_util::BodyExt::boxed_unsync(full)).unwrap();
        let response = agent.send(request).await;
        assert_eq!((response.status().as_u16(), field(&response, "forbear-outcome")), (503, "budget_exhausted"));
        let arrivals = rig.provider.wait_until(PATIENCE, |a| a[0].finished_at_ns.is_some()).await.unwrap();
        let mut hasher = Sha256::new();
        (0..PIECES).for_each(|_| hasher.update(&piece));
        let whole = hasher.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        assert_eq!((arrivals.len(), arrivals[0].body_bytes), (1, (PIECE * PIECES) as u64));
        assert_eq!(arrivals[0].body_sha256, whole);
        let grown = most.load(std::sync::atomic::Ordering::Relaxed).saturating_sub(before);
        assert!(grown < 24 * 1024, "{grown} KiB more for a body of 50 MiB");
    }
}

#[tokio::test]
async fn only_the_bound_of_bodies_gives_413() {
    let scenario = "routes:\n  - match: 'POST /{x}'\n    respond: {body: ok}\n";
    let text = "body_replay_bytes_max: 65536\nbody_bytes_max: 1048576\n";
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(scenario, &format!("{text}{}", policy("", provider_http2, ""))).await;
        for (bytes, declared, status) in [
            (65_537, true, 200),
            (1_048_576, true, 200),
            (1_048_576, false, 200),
            (1_048_577, true, 413),
            (1_300_000, false, 413),
        ] {
            let before = rig.provider.arrivals().len();
            let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
            let full = content(bytes);
            let full = if declared {
                body(full)
            } else {
                let frames: Vec<_> =
                    full.chunks(50_000).map(Bytes::copy_from_slice).map(hyper::body::Frame::data).map(Ok).collect();
                http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(futures_util::stream::iter(
                    frames,
                )))
            };
            let request = agent.request("POST", "/p/x").body(full).unwrap();
            let response = agent.send(request).await;
            let at = format!("{bytes} {declared} {agent_http2} {provider_http2}");
            assert_eq!(response.status().as_u16(), status, "{at}");
            if status == 200 {
                let arrivals = rig.provider.arrivals();
                assert_eq!((arrivals.len(), arrivals[before].body_bytes), (before + 1, bytes as u64), "{at}");
            } else if declared {
                assert_eq!(rig.provider.arrivals().len(), before, "{at}");
            }
        }
        crate::agent::idle(&rig, Duration::from_secs(2)).await;
    }
}

/// What all kept bodies may take together counts from a body's first byte, not from its last.
#[tokio::test]
async fn a_body_that_is_still_read_takes_its_place() {
    let scenario = "
routes:
  - match: 'POST /{x}'
    per: {header: x-case}
    then: [{status: 503, body: {}}, {body: fine}]
";
    let text = format!("body_replay_bytes_max: 65536\nreplay_bytes_total_max: 65536\n{}", policy("", false, KEYED));
    let rig = Rig::new(scenario, &text).await;
    let mut slow = Raw::connect(rig.running.addr()).await;
    slow.write(
        "POST /p/r HTTP/1.1\r\nHost: a\r\nX-Case: slow\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    .await;
    // Asked for, so it is being read.
    assert_eq!(slow.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    let call = |case: &'static str| {
        let rig = &rig;
        async move {
            let got = rig.call("POST", "/p/r", &[("x-case", case)], "some bytes").await;
            (got.status, got.header("forbear-attempts").to_owned())
        }
    };
    assert_eq!(call("announced").await, (200, "2".into()), "what was only announced takes no place");
    slow.write(&format!("fff8\r\n{}\r\n", "a".repeat(0xfff8))).await;
    // sleep: it is read when it is read, and tells nobody here; a call meanwhile would take the place from it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(call("no-place").await, (503, "1".into()), "what is half sent takes its place");
    slow.write("0\r\n\r\n").await;
    // Its first answer is a 503, and its place lets it be asked again.
    assert!(slow.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(call("place").await, (200, "2".into()));
    // An agent that leaves in the middle gives its place back.
    let mut gone = Raw::connect(rig.running.addr()).await;
    gone.write("POST /p/r HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    gone.head().await;
    gone.write(&format!("fff8\r\n{}\r\n", "a".repeat(0xfff8))).await;
    drop(gone);
    let mut tries = 0;
    let cases = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    while call(cases[tries]).await != (200, "2".into()) {
        tries += 1;
        assert!(tries < cases.len(), "the place comes back");
        // sleep: the listener sees that an agent left within half a second, and tells nobody here.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
