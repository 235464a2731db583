//! How exchanges end: cut answers, agents that leave, connections that die, and what is said of them.

use std::sync::Arc;
use std::time::Duration;

use forbear_core::effect::Evidence;
use forbear_server::http::serve::ServeOptions;
use forbear_server::http::upstream::Stage;
use tokio::sync::Semaphore;

use super::rig::{Gateway, PATIENCE, Provider, Raw, eventually};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GET: &str = "GET /p/x HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";

/// The evidence of the last send that had no answer.
fn evidence(gateway: &Gateway) -> Option<(Evidence, Stage)> {
    let sends = gateway.proxy.sends.lock().unwrap();
    sends.last().and_then(|s| s.as_ref().err()).map(|e| (e.evidence, e.stage))
}

#[tokio::test]
async fn a_cut_answer_is_cut_for_the_agent() {
    // FB-104, FB-105
    for given in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntrun\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ntrun",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntrun",
    ] {
        let provider = Provider::start(move |mut raw, _, _| async move {
            raw.head().await;
            raw.write(given).await;
        })
        .await;
        let gateway = Gateway::before(&provider.url()).await;
        let mut agent = Raw::connect(gateway.address).await;
        agent.write(GET).await;
        agent.head().await;
        let body = String::from_utf8(agent.rest().await).unwrap();
        assert!(body.contains("trun") && !body.contains("\r\n0\r\n"), "{given:?}: {body:?}");
    }
}

#[tokio::test]
async fn an_answer_without_framing_ends_with_its_connection() {
    let provider = Provider::start(|mut raw, _, _| async move {
        raw.head().await;
        raw.write("HTTP/1.1 200 OK\r\n\r\nall of it").await;
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write(GET).await;
    assert!(agent.head().await.contains("chunked"));
    assert_eq!(agent.until("0\r\n\r\n").await, "9\r\nall of it\r\n0\r\n\r\n");
}

#[tokio::test]
async fn an_agent_that_leaves_ends_the_call() {
    // FB-109, and the same with bytes behind the request that nobody wants yet.
    for behind in ["", GET] {
        for given in ["", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"] {
            let gone = Arc::new(Semaphore::new(0));
            let seen = Arc::clone(&gone);
            let provider = Provider::start(move |mut raw, _, heads| {
                let seen = Arc::clone(&seen);
                async move {
                    heads.push(raw.head().await);
                    raw.write(given).await;
                    raw.rest().await;
                    seen.add_permits(1);
                }
            })
            .await;
            let gateway = Gateway::before(&provider.url()).await;
            let mut agent = Raw::connect(gateway.address).await;
            agent.write(format!("{GET}{behind}")).await;
            eventually("the request at the provider", || provider.seen().len() == 1).await;
            if !given.is_empty() {
                agent.until("a\r\n").await;
            }
            drop(agent);
            let closed = tokio::time::timeout(PATIENCE, gone.acquire()).await;
            assert!(closed.is_ok(), "{behind:?} {given:?}");
            assert_eq!(provider.seen().len(), 1);
        }
    }
}

#[tokio::test]
async fn nothing_listening_is_proof_of_not_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let gateway = Gateway::before(&url).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write(POST).await;
    assert!(agent.head().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(evidence(&gateway), Some((Evidence::NotSent, Stage::Connect)));
    assert!(gateway.proxy.sends.lock().unwrap()[0].as_ref().is_err_and(|e| e.unsent_body.is_some()));
}

#[tokio::test]
async fn a_connection_that_dies_after_the_request_proves_nothing() {
    for reads_first in [true, false] {
        let provider = Provider::start(move |mut raw, _, _| async move {
            if reads_first {
                raw.until("hi").await;
            } else {
                raw.stream.readable().await.unwrap();
            }
        })
        .await;
        let gateway = Gateway::before(&provider.url()).await;
        let mut agent = Raw::connect(gateway.address).await;
        agent.write(POST).await;
        assert!(agent.head().await.starts_with("HTTP/1.1 502 "));
        assert_eq!(evidence(&gateway), Some((Evidence::Unknown, Stage::AwaitHead)));
    }
}

#[tokio::test]
async fn connections_are_reused_after_complete_answers_only() {
    let provider = Provider::answering(OK).await;
    let gateway = Gateway::before(&provider.url()).await;
    let mut agent = Raw::connect(gateway.address).await;
    for _ in 0..5 {
        agent.write(GET).await;
        agent.until("ok").await;
    }
    assert_eq!((provider.seen().len(), provider.connections()), (5, 1));
    let sends = gateway.proxy.sends.lock().unwrap();
    let reused: Vec<_> = sends.iter().map(|s| s.as_ref().is_ok_and(|(reused, _)| *reused)).collect();
    assert_eq!(reused, [false, true, true, true, true]);
}

#[tokio::test]
async fn a_kept_connection_that_closed_or_spoke_unasked_is_not_used() {
    // FB-067, and a stale 408 or 400 that would be taken for the next answer.
    for last_word in [
        "",
        "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ] {
        let speak = Arc::new(Semaphore::new(0));
        let spoken = Arc::new(Semaphore::new(0));
        let (speaks, says) = (Arc::clone(&speak), Arc::clone(&spoken));
        let provider = Provider::start(move |mut raw, n, seen| {
            let (speaks, says) = (Arc::clone(&speaks), Arc::clone(&says));
            async move {
                seen.push(raw.until("hi").await);
                raw.write(OK).await;
                if n == 0 {
                    speaks.acquire().await.unwrap().forget();
                    raw.write(last_word).await;
                    drop(raw);
                    says.add_permits(1);
                } else {
                    raw.rest().await;
                }
            }
        })
        .await;
        let gateway = Gateway::before(&provider.url()).await;
        let mut agent = Raw::connect(gateway.address).await;
        agent.write(POST).await;
        agent.until("ok").await;
        speak.add_permits(1);
        spoken.acquire().await.unwrap().forget();
        // The loopback has delivered what was written before; the runtime has to hear of it.
        tokio::task::yield_now().await;
        agent.write(POST).await;
        assert!(agent.head().await.starts_with("HTTP/1.1 200 OK\r\n"), "{last_word:?}");
        assert_eq!((provider.seen().len(), provider.connections()), (2, 2), "{last_word:?}");
    }
}

#[tokio::test]
async fn a_long_body_is_streamed_in_flat_memory() {
    const BYTES: usize = 50 << 20;
    let provider = Provider::start(|mut raw, _, seen| async move {
        raw.head().await;
        raw.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n")).await;
        for _ in 0..BYTES / 65536 {
            let piece = raw.bytes(65536).await;
            raw.write(piece).await;
        }
        seen.push("all".into());
    })
    .await;
    let gateway = Gateway::before(&provider.url()).await;
    let agent = Raw::connect(gateway.address).await.stream;
    let (mut read, mut write) = agent.into_split();
    let before_kib = resident_kib();
    let writing = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        write
            .write_all(format!("POST /p/x HTTP/1.1\r\nHost: a\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        for n in 0..BYTES / 65536 {
            write.write_all(&[n.to_le_bytes()[0]; 65536]).await.unwrap();
        }
        write
    });
    let (mut total, mut peak_kib) = (0, 0);
    let mut buffer = vec![0; 65536];
    let mut head = Vec::new();
    while total < BYTES {
        use tokio::io::AsyncReadExt;
        let n = tokio::time::timeout(PATIENCE, read.read(&mut buffer)).await.unwrap().unwrap();
        assert!(n > 0, "closed after {total} bytes");
        let mut piece = &buffer[..n];
        if total == 0 {
            head.extend_from_slice(piece);
            let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let start = n - (head.len() - end - 4);
            piece = &buffer[start..n];
        }
        for (i, byte) in piece.iter().enumerate() {
            assert_eq!(*byte, ((total + i) / 65536).to_le_bytes()[0], "at {}", total + i);
        }
        total += piece.len();
        peak_kib = peak_kib.max(resident_kib());
    }
    writing.await.unwrap();
    let grown_kib = peak_kib.saturating_sub(before_kib);
    assert!(grown_kib < 20 << 10, "{grown_kib} KiB more for a body of {} KiB", BYTES >> 10);
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn draining_lets_calls_end_and_takes_no_new_ones() {
    let release = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&release);
    let provider = Provider::start(move |mut raw, _, seen| {
        let released = Arc::clone(&released);
        async move {
            seen.push(raw.head().await);
            released.acquire().await.unwrap().forget();
            raw.write(OK).await;
        }
    })
    .await;
    let mut gateway = Gateway::before(&provider.url()).await;
    let mut idle = Raw::connect(gateway.address).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write(GET).await;
    eventually("the request at the provider", || provider.seen().len() == 1).await;
    drop(gateway.drain.take());
    assert_eq!(idle.rest().await, b"");
    // Who comes late is heard, once; what the answer is, is the handler's to say.
    let mut late = Raw::connect(gateway.address).await;
    late.write(GET).await;
    eventually("the late request at the provider", || provider.seen().len() == 2).await;
    release.add_permits(2);
    let answer = String::from_utf8(late.rest().await).unwrap();
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    assert!(String::from_utf8(agent.rest().await).unwrap().ends_with("ok"));
    gateway.served.await.unwrap();
}

#[tokio::test]
async fn draining_ends_what_does_not_end_itself() {
    let provider = Provider::start(|mut raw, _, seen| async move {
        seen.push(raw.head().await);
        raw.rest().await;
    })
    .await;
    let options = ServeOptions { drain_timeout: Duration::from_millis(20), ..ServeOptions::default() };
    let mut gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), options, |_| {}).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write(GET).await;
    eventually("the request at the provider", || provider.seen().len() == 1).await;
    drop(gateway.drain.take());
    assert_eq!(agent.rest().await, b"");
    gateway.served.await.unwrap();
}

#[tokio::test]
async fn a_connection_without_a_call_is_closed_in_time_and_one_with_a_call_is_not() {
    const IDLE: Duration = Duration::from_millis(400);
    let release = Arc::new(Semaphore::new(0));
    let released = Arc::clone(&release);
    let provider = Provider::start(move |mut raw, _, seen| {
        let released = Arc::clone(&released);
        async move {
            seen.push(raw.head().await);
            released.acquire().await.unwrap().forget();
            raw.write(OK).await;
        }
    })
    .await;
    let options = ServeOptions { idle_timeout: IDLE, ..ServeOptions::default() };
    let gateway = Gateway::with(&provider.url(), rustls::RootCertStore::empty(), options, |_| {}).await;
    let mut agent = Raw::connect(gateway.address).await;
    agent.write(GET).await;
    eventually("the request at the provider", || provider.seen().len() == 1).await;
    // sleep: that time passes without the connection's end is what is tested.
    tokio::time::sleep(IDLE * 2).await;
    let released_at = tokio::time::Instant::now();
    release.add_permits(1);
    assert!(agent.until("ok").await.ends_with("ok"), "closed with a call under way");
    assert_eq!(agent.rest().await, b"");
    // From the end of the call, not from an earlier moment, and not two idle times later.
    let closed_after = released_at.elapsed();
    assert!(closed_after >= IDLE && closed_after < IDLE * 3, "{closed_after:?}");
}
