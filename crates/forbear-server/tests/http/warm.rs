//! Connections that are opened ahead: who gets them, and how long a provider is kept warm. Counted at the provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forbear_server::http::dial::client_config;
use forbear_server::http::origin::Origin;
use forbear_server::http::pipe::{Network, Pipe};
use forbear_server::http::pool::{IDLE_MAX, Keep, Pool};
use forbear_server::http::socket::Dialler;
use forbear_server::http::upstream::{SendOptions, send};
use forbear_server::http::warm::WARM_FOR;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{Provider, eventually};
use super::sending::{call, complete, options, pool, post};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const KEYLESS: bool = true;

/// Writes down on which connection each request came.
async fn numbered() -> Provider {
    Provider::start(|mut raw, n, seen| async move {
        while !raw.until("hi").await.is_empty() {
            seen.push(n.to_string());
            raw.write(OK).await;
        }
    })
    .await
}

fn origin(provider: &Provider) -> Origin {
    Origin::parse(&provider.url()).unwrap().0
}

fn of(fresh: bool) -> SendOptions {
    SendOptions { fresh, ..options() }
}

#[tokio::test]
async fn a_keyless_write_takes_an_open_connection_that_nothing_was_sent_on() {
    let (provider, pool) = (numbered().await, pool());
    pool.keep_warm(&origin(&provider), 2);
    let (mut wanted, mut writes_at) = (2, Vec::new());
    for (n, fresh) in [!KEYLESS, KEYLESS, KEYLESS, !KEYLESS, KEYLESS].into_iter().enumerate() {
        eventually("two unused connections", || provider.connections() >= wanted).await;
        // The one that is taken will be replaced; a later read has the idle ones of those before it.
        wanted += usize::from(fresh || n == 0);
        assert!(complete(call(&pool, &provider, of(fresh)).await).await, "call {n} dialed");
        let seen = provider.seen();
        let (at, earlier) = seen.split_last().unwrap();
        if fresh {
            assert!(!earlier.contains(at), "call {n} came on a used connection: {seen:?}");
            writes_at.push(at.clone());
        }
    }
    assert_eq!(writes_at.len(), 3);
}

#[tokio::test]
async fn without_the_wish_nothing_is_opened_ahead() {
    let (provider, pool) = (numbered().await, pool());
    pool.keep_warm(&origin(&provider), 0);
    assert!(!complete(call(&pool, &provider, of(KEYLESS)).await).await);
    assert!(!complete(call(&pool, &provider, of(KEYLESS)).await).await);
    assert_eq!(provider.connections(), 2);
}

#[tokio::test]
async fn one_that_the_provider_spoke_on_is_not_handed_out() {
    let provider = Provider::start(|mut raw, n, seen| async move {
        if n == 0 {
            raw.write("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n").await;
            seen.push("spoke".into());
        }
        while !raw.until("hi").await.is_empty() {
            seen.push(n.to_string());
            raw.write(OK).await;
        }
    })
    .await;
    let pool = pool();
    pool.keep_warm(&origin(&provider), 1);
    eventually("a word before the request", || provider.seen() == ["spoke"]).await;
    complete(call(&pool, &provider, of(KEYLESS)).await).await;
    assert_eq!(provider.seen().len(), 2);
    assert_ne!(provider.seen()[1], "0");
}

/// A provider over pipes that answers nothing, and counts who connects and what is open to it.
struct Counted {
    pool: Pool,
    knocks: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Counted {
    fn start(lets_in: bool) -> Self {
        let network = Network::default();
        let mut listener = network.listen("127.0.0.1", 9);
        let (knocks, open) = (Arc::default(), Arc::default());
        let (counted, opened): (Arc<AtomicUsize>, Arc<AtomicUsize>) = (Arc::clone(&knocks), Arc::clone(&open));
        tokio::spawn(async move {
            while let Some(knock) = listener.knock().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if let Some(pipe) = lets_in.then(|| knock.accept()).flatten() {
                    opened.fetch_add(1, Ordering::SeqCst);
                    let open = Arc::clone(&opened);
                    tokio::spawn(async move {
                        answer(pipe).await;
                        open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
        });
        let tls = client_config(rustls::RootCertStore::empty()).unwrap();
        let pool = Pool::keeping(Dialler::Pipes(network), tls, Keep::default());
        Self { pool, knocks, open }
    }

    fn knocks(&self) -> usize {
        self.knocks.load(Ordering::SeqCst)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Under a clock that is paused, and jumps from one timer to the next.
async fn pass(time: Duration) {
    // sleep: the clock under test is the paused one
    tokio::time::sleep(time).await;
}

async fn answer(mut pipe: Pipe) {
    let mut read = Vec::new();
    while pipe.read_buf(&mut read).await.is_ok_and(|n| n > 0) {
        if read.ends_with(b"hi") {
            read.clear();
            pipe.write_all(OK.as_bytes()).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_is_replaced_before_it_is_old_and_a_provider_that_nobody_calls_is_left_alone() {
    let provider = Counted::start(true);
    let origin = Origin::parse("http://127.0.0.1:9").unwrap().0;
    provider.pool.keep_warm(&origin, 3);
    provider.pool.keep_warm(&origin, 2);
    pass(IDLE_MAX * 2).await;
    let early = provider.knocks();
    assert!((6..=12).contains(&early) && provider.open() == 3, "{early} and {}", provider.open());
    pass(WARM_FOR).await;
    let (late, open) = (provider.knocks(), provider.open());
    assert!(late <= 3 * 60 / 2 && open == 0, "{late}, {open} open");
    pass(WARM_FOR * 60).await;
    assert_eq!((provider.knocks(), provider.open()), (late, 0));
    // The first call after that has to dial; the next will not.
    for is_warm in [false, true] {
        let answer = send(&provider.pool, &origin, post(&origin), of(KEYLESS), || true).await;
        assert_eq!(complete(answer).await, is_warm);
        pass(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_is_asked_ever_less_often() {
    let provider = Counted::start(false);
    provider.pool.keep_warm(&Origin::parse("http://127.0.0.1:9").unwrap().0, 8);
    pass(Duration::from_secs(59)).await;
    // After 0, 1, 3, 7, 15 and 31 seconds.
    assert_eq!(provider.knocks(), 6);
}
