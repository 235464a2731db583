//! One send, called directly: its bounds in time, what it says of bodies, and what it gives back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forbear_core::effect::Evidence;
use forbear_server::http::answer::{BodyEnd, BodyEvent};
use forbear_server::http::begun::begin;
use forbear_server::http::body::{Framing, Replay, UpstreamBody};
use forbear_server::http::dial::client_config;
use forbear_server::http::origin::Origin;
use forbear_server::http::pool::{IDLE_MAX, Pool};
use forbear_server::http::relay::AgentBody;
use forbear_server::http::upstream::{Answer, SendError, SendOptions, Stage, send};
use http::Request;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::rig::{PATIENCE, Provider, eventually};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

pub(crate) fn pool() -> Pool {
    Pool::new(client_config(rustls::RootCertStore::empty()).unwrap())
}

pub(crate) fn options() -> SendOptions {
    SendOptions {
        not_after: Instant::now() + Duration::from_secs(5),
        fresh: false,
        connect_timeout: Duration::from_secs(5),
        head_timeout: Duration::from_secs(5),
    }
}

pub(crate) fn post(origin: &Origin) -> Request<UpstreamBody> {
    let body = Replay::new(vec![Bytes::from("hi")], None, Framing::Length(2));
    let body = UpstreamBody::replay(&Arc::new(body));
    Request::post("/x").header("host", origin.authority().as_str()).body(body).unwrap()
}

pub(crate) async fn call(pool: &Pool, provider: &Provider, options: SendOptions) -> Result<Answer, SendError> {
    let origin = Origin::parse(&provider.url()).unwrap().0;
    send(pool, &origin, post(&origin), options, || true).await
}

pub(crate) async fn complete(answer: Result<Answer, SendError>) -> bool {
    let answer = answer.unwrap();
    assert_eq!(answer.body.collect().await.unwrap().to_bytes(), "ok");
    answer.reused
}

async fn posts() -> Provider {
    Provider::start(|mut raw, _, seen| async move {
        loop {
            let request = raw.until("hi").await;
            if request.is_empty() {
                return;
            }
            seen.push(request);
            raw.write(OK).await;
        }
    })
    .await
}

#[tokio::test]
async fn past_its_time_not_a_byte_leaves() {
    let provider = posts().await;
    let pool = pool();
    assert!(!complete(call(&pool, &provider, options()).await).await);
    let late = SendOptions { not_after: Instant::now() - Duration::from_millis(1), ..options() };
    let error = call(&pool, &provider, late).await.unwrap_err();
    assert_eq!((error.evidence, error.unsent_body.is_some()), (Evidence::NotSent, true));
    // The connection it would have used is as good as before.
    assert!(complete(call(&pool, &provider, options()).await).await);
    assert_eq!((provider.seen().len(), provider.connections()), (2, 1));
}

#[tokio::test]
async fn fresh_takes_a_new_connection() {
    let provider = posts().await;
    let pool = pool();
    assert!(!complete(call(&pool, &provider, options()).await).await);
    assert!(!complete(call(&pool, &provider, SendOptions { fresh: true, ..options() }).await).await);
    assert_eq!(provider.connections(), 2);
}

#[tokio::test]
async fn no_head_in_time_is_unknown_and_ends_the_connection() {
    let provider = Provider::start(|mut raw, _, seen| async move {
        raw.until("hi").await;
        raw.rest().await;
        seen.push("closed".into());
    })
    .await;
    let short = SendOptions { head_timeout: Duration::from_millis(30), ..options() };
    let error = call(&pool(), &provider, short).await.unwrap_err();
    assert_eq!((error.evidence, error.stage), (Evidence::Unknown, Stage::AwaitHead));
    eventually("the close at the provider", || provider.seen() == ["closed"]).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_before_its_server_would() {
    let provider = Provider::start(|mut raw, _, seen| async move {
        raw.until("hi").await;
        raw.write(OK).await;
        let waited = Instant::now();
        raw.rest().await;
        assert!(waited.elapsed() >= IDLE_MAX);
        seen.push("closed".into());
    })
    .await;
    let pool = pool();
    complete(call(&pool, &provider, options()).await).await;
    tokio::time::pause();
    tokio::time::advance(IDLE_MAX + Duration::from_secs(2)).await;
    eventually("the close at the provider", || provider.seen() == ["closed"]).await;
}

#[tokio::test]
async fn the_end_of_a_body_is_told_once_and_truly() {
    for (given, read, end) in [
        (OK, true, BodyEnd::Complete),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true, BodyEnd::Complete),
        ("HTTP/1.1 204 No Content\r\n\r\n", false, BodyEnd::Complete),
        ("HTTP/1.1 200 OK\r\n\r\nok", true, BodyEnd::UntilClose),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", true, BodyEnd::Cut(String::new())),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", false, BodyEnd::Abandoned),
    ] {
        let provider = Provider::start(move |mut raw, _, _| async move {
            raw.until("hi").await;
            raw.write(given).await;
        })
        .await;
        let mut answer = call(&pool(), &provider, options()).await.unwrap();
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        answer.body.watch(Box::new(move |event| {
            if let BodyEvent::Ended { end, bytes } = event {
                let end = if matches!(end, BodyEnd::Cut(_)) { BodyEnd::Cut(String::new()) } else { end.clone() };
                tells.lock().unwrap().push((end, bytes));
            }
        }));
        if read {
            let _ = answer.body.collect().await;
        } else {
            drop(answer);
        }
        assert_eq!(*told.lock().unwrap(), [(end, if read { 2 } else { 0 })], "{given:?}");
    }
}

#[tokio::test]
async fn a_body_read_for_its_meaning_can_still_be_passed_on() {
    for (bytes_max, all) in [(100, true), (1, false)] {
        let provider = Provider::start(|mut raw, _, _| async move {
            raw.until("hi").await;
            raw.write("HTTP/1.1 429 Slow\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n").await;
            raw.write("2\r\n[]\r\n0\r\n\r\n").await;
        })
        .await;
        let answer = call(&pool(), &provider, options()).await.unwrap();
        let begun = begin(answer.body, bytes_max, PATIENCE).await;
        assert_eq!(begun.is_complete(), all);
        assert!(begun.bytes().starts_with(b"{}"));
        assert_eq!(AgentBody::begun(begun).collect().await.unwrap().to_bytes(), "{}[]");
    }
}
