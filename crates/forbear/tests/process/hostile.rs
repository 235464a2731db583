//! Agents that mean no good, or are broken: whatever they send, hold open or leave unread, others are served, and memory
//! stays where it was.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::agent::{Call, ask, read_answer};
use crate::rig::{Home, Server, provider};

const SCENARIO: &str = "
routes:
  - match: 'GET /ok'
    respond: {body: {ok: true}}
  - match: 'POST /w'
    respond: {status: 201, effect: {name: w}, body: {ok: true}}
  - match: 'GET /big'
    respond: {bytes: 16777216}
";
const CONFIG: &str = "
header_read_seconds: 1
providers: {p: {base_url: $BASE}}
";
/// What the allocator keeps back and what pages a first use touches, far below what is thrown at it.
const GROWTH_KIB_MAX: u64 = 96 * 1024;
const SOON: Duration = Duration::from_secs(20);

async fn served(server: &Server) {
    for n in 0..20 {
        let begun = Instant::now();
        assert_eq!(server.ask(&Call::get("/p/ok")).await.status, 200);
        let write = Call::post("/p/w", format!("{{\"n\":{n},\"at\":\"{begun:?}\"}}"));
        assert_eq!(server.ask(&write).await.status, 201);
        assert!(begun.elapsed() < Duration::from_secs(5), "others wait for the hostile ones");
    }
}

fn grew_little(server: &Server, before: u64) {
    let after = server.resident_kib();
    assert!(after < before + GROWTH_KIB_MAX, "memory grew from {before} to {after} KiB");
}

async fn begun(server: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server).await.expect("it listens");
    socket.write_all(bytes).await.expect("it takes it");
    socket
}

/// Until the server ends it; gives what it said.
async fn ended(mut socket: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let end = timeout(SOON, socket.read_to_end(&mut bytes)).await;
    assert!(end.is_ok(), "not ended after {:?}", String::from_utf8_lossy(&bytes));
    bytes
}

#[tokio::test]
async fn those_who_never_finish_a_request_are_ended() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start().await;
    served(&server).await;
    let before = server.resident_kib();
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(begun(server.addr, b"GET /p/ok HTTP/1.1\r\nhost: x\r\nx-slow: ").await);
        held.push(begun(server.addr, b"POST /p/w HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\nhalf").await);
        held.push(
            begun(server.addr, b"POST /p/w HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nha").await,
        );
        held.push(
            begun(server.addr, b"POST /p/w HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
                .await,
        );
    }
    served(&server).await;
    for socket in held {
        ended(socket).await;
    }
    assert_eq!(provider.effects().count, 40, "half a body is no write");
    grew_little(&server, before);
    server.stop().await;
}

/// Each byte in time, and yet never a head.
#[tokio::test]
async fn a_head_that_drips_is_ended_by_the_whole_heads_time() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start().await;
    let mut socket = begun(server.addr, b"GET /p/ok HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
    let dripping = async {
        let mut drip = tokio::time::interval(Duration::from_millis(100));
        while socket.write_all(b"a").await.is_ok() {
            drip.tick().await;
        }
    };
    timeout(SOON, dripping).await.expect("it is ended");
    server.stop().await;
}

#[tokio::test]
async fn garbage_is_answered_or_ended_and_never_sent_on() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start().await;
    served(&server).await;
    let (before, arrived) = (server.resident_kib(), provider.arrivals().len());
    let post =
        |fields: &str, body: &str| format!("POST /p/w HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n{body}").into_bytes();
    let long = |n| format!("GET /p/ok HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(n)).into_bytes();
    let many: String = (0..2_000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let mut noise = 1u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.to_be_bytes()[1]
    })
    .take(100_000)
    .collect();
    let bad: Vec<Vec<u8>> = vec![
        b"\r\n\r\n\r\n\0\0\0\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET /p/ok HTTP/9.9\r\nhost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03a TLS hello, to a port without TLS\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".iter().copied().chain([0xff; 64]).collect(),
        random,
        long(80_000),
        long(2_000_000),
        format!("GET /p/ok HTTP/1.1\r\nhost: x\r\n{many}\r\n").into_bytes(),
        post("transfer-encoding: chunked", "ffffffffffffffff\r\nx"),
        post("transfer-encoding: chunked", "fffffffffffffffff\r\nx"),
        post("transfer-encoding: chunked", "-1\r\nx\r\n0\r\n\r\n"),
        post("content-length: 99999999999999999999999", "x"),
        post("content-length: 18446744073709551615", "x"),
        post("content-length: -1", "x"),
        post("content-length: 1\r\ncontent-length: 2", "xy"),
        post("content-length: 1\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
    ];
    for bytes in &bad {
        let mut socket = TcpStream::connect(server.addr).await.expect("it listens");
        // It may be ended before it has taken it all.
        let _ = socket.write_all(bytes).await;
        let said = ended(socket).await;
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let head = String::from_utf8_lossy(&said[..said.len().min(12)]).into_owned();
        let refused =
            said.is_empty() || head.starts_with("HTTP/1.1 4") || head.starts_with("HTTP/1.1 5") || said[0] == 0;
        assert!(refused, "{start:?} was answered {head:?}");
    }
    // A good request, and garbage behind it on the same connection: the first is answered as ever.
    let mut socket = begun(server.addr, b"GET /p/ok HTTP/1.1\r\nhost: x\r\n\r\n\0\0garbage\r\n\r\n").await;
    let both = timeout(SOON, read_answer(&mut socket)).await.expect("it ends").expect("the first is answered");
    assert_eq!(both.status, 200);
    // 10,000 bytes of head are nothing unusual.
    let mut socket = begun(server.addr, &[&long(10_000)[..], b""].concat()).await;
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.expect("it is answered");
    assert_eq!(&status, b"HTTP/1.1 200");

    assert_eq!(provider.arrivals().len(), arrived + 2, "garbage was sent on");
    served(&server).await;
    grew_little(&server, before);
    server.stop().await;
}

#[tokio::test]
async fn a_flood_of_connections_keeps_nobody_out() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start().await;
    served(&server).await;
    let before = server.resident_kib();
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(TcpStream::connect(server.addr).await.expect("it listens"));
    }
    served(&server).await;
    grew_little(&server, before);
    drop(idle);
    for _ in 0..10 {
        let asking: Vec<_> = (0..40).map(|_| tokio::spawn(connected_and_gone(server.addr))).collect();
        for asked in asking {
            asked.await.expect("no panic");
        }
    }
    served(&server).await;
    grew_little(&server, before);
    assert!(server.not_ready().await.is_none());
    server.stop().await;
}

async fn connected_and_gone(server: SocketAddr) {
    drop(begun(server, b"GET /p/ok HTTP/1.1\r\nhost: x\r\n\r\n").await);
}

/// At the bound of connections others wait their turn, and get it when the idle are ended or leave.
#[tokio::test]
async fn at_connections_max_the_next_waits_and_is_served() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(&format!("connections_max: 8\n{CONFIG}"), &provider.base_url());
    let server = home.start().await;
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(begun(server.addr, b"GET /p/ok HTTP/1.1\r\nhost: x\r\nx-slow: ").await);
    }
    let answer = timeout(SOON, ask(server.addr, &Call::get("/p/ok"))).await.expect("it comes through");
    assert_eq!(answer.expect("it is answered").status, 200);
    server.stop().await;
}

#[tokio::test]
async fn agents_that_never_read_fill_no_memory_and_hold_no_slot_for_ever() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start().await;
    served(&server).await;
    let before = server.resident_kib();
    let mut unread = Vec::new();
    for n in 0..8 {
        let call = Call::get("/p/big").with("authorization", format!("Bearer {}", n % 2));
        unread.push(begun(server.addr, &call.bytes()).await);
    }
    provider.wait_for_arrivals(48, SOON).await.expect("all are under way");
    served(&server).await;
    grew_little(&server, before);
    // Every slot comes back: none of them is counted as under way any more.
    crate::rig::until("their slots come back", Duration::from_secs(30), async || {
        let scopes = server.control("/-/v1/scopes").await;
        scopes["items"].as_array().is_some_and(|rows| rows.iter().all(|r| r["in_flight"] == 0))
    })
    .await;
    grew_little(&server, before);
    server.stop().await;
}

/// What is half sent counts against what may be kept, so that many half-sent bodies are no way to more memory.
#[tokio::test]
async fn half_sent_bodies_are_bounded_together() {
    let provider = provider(SCENARIO).await;
    let bounds = "body_replay_bytes_max: 4194304\nreplay_bytes_total_max: 16777216\n";
    let config = CONFIG.replace("header_read_seconds: 1", "header_read_seconds: 5");
    let home = Home::new(&format!("{bounds}{config}"), &provider.base_url());
    let server = home.start().await;
    served(&server).await;
    let before = server.resident_kib();
    let half = vec![b'x'; 4 << 20];
    let head = b"POST /p/w HTTP/1.1\r\nhost: x\r\ncontent-length: 4194304\r\n\r\n";
    let mut held = Vec::new();
    for _ in 0..60 {
        let mut socket = begun(server.addr, head).await;
        // Those that find no place are streamed, and their connection holds back what is not taken.
        let _ = timeout(Duration::from_millis(200), socket.write_all(&half[..half.len() - 1])).await;
        held.push(socket);
    }
    grew_little(&server, before);
    drop(held);
    crate::rig::until("others are served again", SOON, async || server.ask(&Call::get("/p/ok")).await.status == 200)
        .await;
    server.stop().await;
}
