//! The bench's own parts over real sockets: what is measured must first be right.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use forbear_lab::bench::load::{self, Span, Target, Window};
use forbear_lab::bench::{origin, proxy};
use tokio::net::TcpListener;

const LOOPBACK: &str = "127.0.0.1:0";

async fn start_origin() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    let address = listener.local_addr()?;
    tokio::spawn(origin::serve(listener));
    Ok(address)
}

async fn start_proxy(origin: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    let address = listener.local_addr()?;
    tokio::spawn(proxy::serve(listener, origin));
    Ok(address)
}

async fn load(address: SocketAddr, path: &str, body_bytes: usize) -> Window {
    let start = Instant::now();
    let span = Span { start, end: start + Duration::from_millis(300) };
    load::run(&Target { address, path: path.into(), call: load::Call::Read, body_bytes }, 4, span).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_whole_with_and_without_the_proxy() {
    let origin = start_origin().await.unwrap();
    for address in [origin, start_proxy(origin).await.unwrap()] {
        for (path, body_bytes) in
            [(origin::JSON_PATH, origin::JSON.len()), (origin::STREAM_PATH, origin::EVENT.len() * origin::EVENTS)]
        {
            let window = load(address, path, body_bytes).await;
            assert_eq!((window.errors, &window.first_error), (0, &None), "{path}");
            assert!(window.latencies.count() > 0, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_answer_is_an_error_and_never_a_sample() {
    let window = load(start_origin().await.unwrap(), origin::JSON_PATH, 1).await;
    assert!(window.errors > 0);
    assert!(window.first_error.unwrap_or_default().contains("bytes of body"));
    assert_eq!(window.latencies.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_peer_ends_the_window_and_is_said() {
    let gone = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
    let window = load(gone, origin::JSON_PATH, origin::JSON.len()).await;
    assert!(window.errors > 0);
    assert!(window.first_error.unwrap_or_default().starts_with("connect"));
    // The proxy says so itself, and serves on.
    let window = load(start_proxy(gone).await.unwrap(), origin::JSON_PATH, origin::JSON.len()).await;
    assert!(window.first_error.unwrap_or_default().contains("502"));
}
