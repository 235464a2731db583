//! What a proxy may change of a message (next to nothing), and what it must not pass on.

use forbear_lab::provider::{Options, Provider, Scenario};
use tokio::net::TcpListener;

use crate::agent::{Agent, PATIENCE, Raw, SIDES, body, field, idle, no_body, once, policy, raw_field, read, story};
use crate::rig::{Rig, serve};

const ANY: &str = "routes:\n  - match: '* /{rest...}'\n    respond: {body: ok}\n";

#[tokio::test]
async fn fb_164_fields_of_the_hop_end_here_both_ways() {
    let scenario = "
routes:
  - match: '* /{rest...}'
    respond:
      headers:
        - [Connection, 'X-Hop, keep-alive']
        - [Connection, x-other]
        - [X-Hop, '1']
        - [x-other, '2']
        - [Keep-Alive, 'timeout=5']
        - [Proxy-Authenticate, Basic]
        - [Forbear-Outcome, forged]
        - [X-Kept, '3']
      body: ok
";
    for provider_http2 in [false, true] {
        // HTTP/2 providers cannot even say most of this.
        let scenario = if provider_http2 { ANY } else { scenario };
        let rig = Rig::new(scenario, &policy("", provider_http2, "")).await;
        let answer = once(
            &rig,
            "GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, X-Foo, close\r\nConnection: x-bar\r\nX-Foo: 1\r\n\
             X-Bar: 2\r\nTE: trailers\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
             Proxy-Authorization: Basic eDp5\r\nForbear-Goal: g\r\nX-Kept: 3\r\n\r\n",
        )
        .await;
        let arrival = rig.provider.arrivals().remove(0);
        for name in [
            "connection",
            "x-foo",
            "x-bar",
            "te",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "forbear-goal",
        ] {
            assert_eq!(arrival.header(name), None, "{name}: {:?}", arrival.headers);
        }
        assert_eq!(arrival.header("x-kept"), Some("3"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for name in ["x-hop", "x-other", "keep-alive", "proxy-authenticate"] {
            assert_eq!(raw_field(&answer, name), None, "{name}: {answer}");
        }
        assert_eq!(raw_field(&answer, "forbear-outcome"), Some("succeeded"));
        assert!(!answer.contains("forged"));
        assert!(provider_http2 || raw_field(&answer, "x-kept") == Some("3"));
    }
}

#[tokio::test]
async fn fb_165_an_upgrade_is_refused_with_a_hint_and_no_101_comes_through() {
    let rig = Rig::new(ANY, "").await;
    for upgrade in ["websocket", "h2c, WebSocket", "TLS/1.0"] {
        let request = format!(
            "GET /p/socket HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {upgrade}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let mut agent = Raw::connect(rig.running.addr()).await;
        agent.write(request).await;
        let head = agent.head().await;
        assert!(head.starts_with("HTTP/1.1 501 "), "{upgrade}: {head}");
        let text = agent.until("}").await;
        assert!(text.contains("upgrade_unsupported") && text.contains("directly"), "{text}");
    }
    // A mere offer of h2c, which some clients make with every call, is no upgrade.
    let offer = "GET /p/x HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n";
    assert!(once(&rig, offer).await.starts_with("HTTP/1.1 200 "));
    let arrivals = rig.provider.arrivals();
    assert_eq!(arrivals.len(), 1);
    assert_eq!((arrivals[0].header("upgrade"), arrivals[0].header("http2-settings")), (None, None));
    idle(&rig, PATIENCE).await;

    // Extended CONNECT, as WebSocket over HTTP/2.
    let mut agent = Agent::connect(rig.running.addr(), true).await;
    let connect = agent.request("CONNECT", "/p/socket").body(no_body()).unwrap();
    let response = agent.send(connect).await;
    assert!(matches!(response.status().as_u16(), 400 | 501), "{response:?}");

    // A provider that switches protocols unasked.
    let unasked = "
routes:
  - match: '* /x'
    respond: {raw: \"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: x\\r\\n\\r\\n\", connection: close_silently}
";
    let rig = Rig::new(unasked, &policy("", false, "")).await;
    for method in ["GET", "POST"] {
        let answer =
            once(&rig, format!("{method} /p/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
                .await;
        assert!(!answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    idle(&rig, PATIENCE).await;
}

#[tokio::test]
async fn fb_166_an_http2_agent_gets_no_fields_of_an_http1_connection() {
    let scenario = "
routes:
  - match: 'GET /{x}'
    respond: {headers: [[Connection, Upgrade], [Upgrade, 'h2,h2c'], [Keep-Alive, 'timeout=5'], [X-Kept, '1']], body: ok}
  - match: 'POST /x'
    respond: {status: 400, headers: [[Connection, Upgrade], [Upgrade, 'h2,h2c'], [Keep-Alive, 'timeout=5'], [X-Kept, '1']], framing: chunked, body: no}
";
    let rig = Rig::new(scenario, "").await;
    let mut agent = Agent::connect(rig.running.addr(), true).await;
    for (method, status) in [("GET", 200), ("POST", 400)] {
        let response = agent.call(method, "/p/x", "").await;
        assert_eq!(response.status().as_u16(), status);
        for name in ["connection", "upgrade", "keep-alive", "transfer-encoding", "proxy-connection"] {
            assert!(!response.headers().contains_key(name), "{name}");
        }
        assert_eq!(field(&response, "x-kept"), "1");
        read(response).await.1.unwrap();
    }
}

#[tokio::test]
async fn fb_167_host_and_server_name_are_the_providers() {
    for http2 in [forbear_lab::provider::Http2::Off, forbear_lab::provider::Http2::Auto] {
        let scenario = "routes:\n  - match: 'GET /wrong'\n    respond: {status: 421, body: {}}\n  - match: 'GET /{x}'\n    respond: {body: ok}\n";
        // Its certificate names `localhost` alone: with any other server name there is no connection.
        let options = Options { tls: true, tls_names: vec!["localhost".into()], http2, ..Options::default() };
        let provider = Provider::start(Scenario::from_yaml(scenario).unwrap(), options).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, provider.ca_pem().unwrap()).unwrap();
        let base = format!("https://localhost:{}", provider.addr().port());
        let policy = format!("upstream: {{ca_file: '{}'}}\nproviders:\n  p: {{base_url: $BASE}}\n", ca.display());
        let running = serve(&base, &policy, &dir).await;
        for is_http2 in [false, true] {
            let before = provider.arrivals().len();
            let mut agent = Agent::connect(running.addr(), is_http2).await;
            assert_eq!(agent.call("GET", "/p/x", "").await.status(), 200);
            let response = agent.call("GET", "/p/wrong", "").await;
            assert_eq!((response.status().as_u16(), field(&response, "x-should-retry")), (421, "false"));
            let arrivals = provider.arrivals();
            assert_eq!(arrivals.len(), before + 2, "a 421 is not sent again");
            let authority = format!("localhost:{}", provider.addr().port());
            for arrival in &arrivals {
                let name = if arrival.version.contains('2') { ":authority" } else { "host" };
                assert_eq!(arrival.header(name), Some(&*authority), "{arrival:?}");
            }
        }
    }
    // The default port is no part of it.
    for (url, host) in [
        ("https://api.example.test", "api.example.test"),
        ("https://api.example.test:443/v1", "api.example.test"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("https://api.example.test:8443", "api.example.test:8443"),
    ] {
        let (origin, _) = forbear_server::http::origin::Origin::parse(url).unwrap();
        let fields =
            forbear_server::http::headers::for_provider(&http::HeaderMap::new(), http::Version::HTTP_11, &origin);
        assert_eq!(fields["host"], host, "{url}");
    }
}

/// What reached the provider of each target, over every pair of protocols.
async fn targets(method: &str, given: &[&str]) {
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(ANY, &policy("", provider_http2, "")).await;
        let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
        for target in given {
            let response = agent.call(method, &format!("/p{target}"), "").await;
            assert_eq!(response.status(), 200, "{target}");
        }
        let seen: Vec<_> = rig.provider.arrivals().into_iter().map(|a| a.target).collect();
        assert_eq!(seen, given);
    }
}

/// A write whose fate is unknown keeps an equal one back, and equal must mean equal: the fingerprint of each action.
async fn fingerprints(method: &str, given: &[&str]) -> Vec<String> {
    let rig = Rig::new(ANY, "").await;
    let mut prints = Vec::new();
    for target in given {
        let got = rig.call(method, &format!("/p{target}"), &[("forbear-class", "uncertain_write")], "{}").await;
        assert_eq!(got.status, 200, "{target}: {got:?}");
        let story = story(&rig, got.header("forbear-action")).await;
        let digest = story.events.iter().find_map(|e| match &e.fact {
            forbear_core::event::Fact::ActionRequested(requested) => requested.content_digest,
            _ => None,
        });
        prints.push(format!("{:?}", digest.expect("a write has a digest")));
    }
    prints
}

fn all_differ(prints: &[String]) -> bool {
    prints.iter().collect::<std::collections::BTreeSet<_>>().len() == prints.len()
}

#[tokio::test]
async fn fb_168_an_encoded_slash_stays_encoded_and_distinct() {
    let paths = [
        "/api/permissions/%2F/guest",
        "/api/permissions///guest",
        "/api/permissions/%2f/guest",
        "/api//x/",
        "/a;b=1/c",
    ];
    targets("PUT", &paths).await;
    let mut prints = fingerprints("PUT", &paths).await;
    // The digits of an escape are the same in either case (RFC 3986 section 6.2.2.1).
    assert_eq!(prints.remove(2), prints[0]);
    assert!(all_differ(&prints), "{prints:?}");
}

#[tokio::test]
async fn fb_168_a_write_of_unknown_fate_keeps_back_only_its_own_target() {
    let scenario = "routes:\n  - match: '* /accounts/{x}/close'\n    respond: {effect: {name: close}, fault: {at: after_commit, end: rst}}\n";
    let rig = Rig::new(scenario, "").await;
    for (path, arrivals) in [
        ("/p/accounts/1/close", 1),
        ("/p/accounts/2/close", 2),
        ("/p/accounts/1/close", 2),
        ("/p/accounts/2/close?x", 3),
    ] {
        let got = rig.call("POST", path, &[("authorization", "k")], "{}").await;
        assert_eq!((got.status, got.header("forbear-outcome")), (422, "outcome_unknown"), "{path}: {got:?}");
        assert_eq!(rig.provider.arrivals().len(), arrivals, "{path}");
    }
}

#[tokio::test]
async fn fb_170_dot_segments_are_refused_before_anything_leaves() {
    let rig = Rig::new(ANY, "").await;
    for path in [
        "/datasets/../api/tokens",
        "/datasets/%2e%2e/api/tokens",
        "/datasets/%2E./api/tokens",
        "/datasets/..%2fapi/tokens",
        "/datasets/..%5capi/tokens",
        "/datasets/..;/api/tokens",
        "/datasets/..",
        "/../p/api/tokens",
    ] {
        let got = rig.get(&format!("/p{path}")).await;
        assert!(matches!(got.status, 400 | 403), "{path}: {got:?}");
        let mut agent = Agent::connect(rig.running.addr(), true).await;
        let response = agent.call("GET", &format!("/p{path}"), "").await;
        assert!(matches!(response.status().as_u16(), 400 | 403), "{path}");
    }
    assert_eq!(rig.provider.arrivals().len(), 0);
}

#[tokio::test]
async fn fb_171_dots_encoded_twice_pass_as_they_are_and_under_the_strictest_class() {
    let policy = "providers:\n  p:\n    base_url: $BASE\n    routes:\n      - {match: 'GET /files/{rest...}', class: read}\n      - {match: 'POST /files/{rest...}', class: inference}\n";
    let rig = Rig::new(ANY, policy).await;
    for path in [
        "/files/%252e%252e/secret",
        "/files/%25252e%25252E/secret",
        "/files/.%252e/secret",
        "/files/..%252fsecret",
        "/files/x%252f..%255csecret",
    ] {
        for method in ["GET", "POST"] {
            let got = rig.call(method, &format!("/p{path}"), &[], "").await;
            if got.status == 400 {
                continue;
            }
            assert_eq!(got.status, 200, "{path}: {got:?}");
            assert_eq!(rig.provider.arrivals().last().unwrap().target, path);
            let story = story(&rig, got.header("forbear-action")).await;
            assert_eq!(story.action.class, "uncertain_write", "{path}");
        }
    }
    // What only looks like it keeps its class.
    for path in ["/files/%252e%252ex", "/files/100%25", "/files/a%252fb"] {
        let got = rig.get(&format!("/p{path}")).await;
        assert_eq!(story(&rig, got.header("forbear-action")).await.action.class, "read", "{path}");
    }
}

#[tokio::test]
async fn fb_172_the_order_of_the_query_stays() {
    targets("GET", &["/q?a=2&a=1&b&c=&=x", "/q?", "/q?&&", "/q?a=1?b=2", "/q?z=1&a=1"]).await;
}

#[tokio::test]
async fn fb_173_plus_and_its_encodings_stay_distinct() {
    targets("GET", &["/q?lang=C%2B%2B&s=a+b&t=a%20b", "/q?s=%2b", "/q?j={a:[1|2]}"]).await;
    let prints = fingerprints("POST", &["/q?s=a%2Bb", "/q?s=a+b", "/q?s=a%20b"]).await;
    assert!(all_differ(&prints), "{prints:?}");
}

#[tokio::test]
async fn fb_177_large_heads_pass_and_larger_ones_get_431() {
    for (agent_http2, provider_http2) in SIDES {
        let rig = Rig::new(ANY, &policy("", provider_http2, "")).await;
        for (bytes, status) in [(3_500, 200), (16_000, 200), (70_000, 431)] {
            let cookie = "c".repeat(bytes);
            let mut agent = Agent::connect(rig.running.addr(), agent_http2).await;
            let request = agent.request("POST", "/p/x").header("cookie", cookie).body(body("{}")).unwrap();
            assert_eq!(agent.send(request).await.status().as_u16(), status, "{bytes} {agent_http2}");
        }
        assert_eq!(rig.provider.arrivals().len(), 2);
        idle(&rig, PATIENCE).await;
    }
}

/// Bytes on the wire to a provider that is a plain listener, for what no client would write.
#[tokio::test]
async fn fb_172_the_request_line_is_the_agents() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let running = serve(&format!("http://{}/base", listener.local_addr().unwrap()), "", &dir).await;
    let mut agent = Raw::connect(running.addr()).await;
    agent.write("GET /~t/p//a/./b|c/{d}?a=2&a=1&=x&% HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut provider = Raw::new(listener.accept().await.unwrap().0);
    assert_eq!(provider.until("\r\n").await, "GET /base//a/./b|c/{d}?a=2&a=1&=x&% HTTP/1.1\r\n");
}
