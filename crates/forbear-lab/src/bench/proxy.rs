//! The least that a hop can cost: hyper on both sides, a keep-alive pool, and no logic at all. It reads no header,
//! decides nothing, retries nothing; what Forbear costs beyond it is what governing costs.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// More than the largest case has connections.
const IDLE_MAX: usize = 1_024;

type Sender = SendRequest<Incoming>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, origin: SocketAddr) {
    let pool = Arc::new(Pool { origin, idle: Mutex::new(Vec::new()) });
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        let pool = Arc::clone(&pool);
        let forward = service_fn(move |request| {
            let pool = Arc::clone(&pool);
            async move { Ok::<_, std::convert::Infallible>(forward(pool, request).await) }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), forward));
    }
}

async fn forward(pool: Arc<Pool>, request: Request<Incoming>) -> Response<Either<Pooled, Empty<Bytes>>> {
    let sent = async {
        let mut sender = pool.take().await?;
        let response = sender.send_request(request).await?;
        Ok::<_, Failure>((sender, response))
    };
    match sent.await {
        Ok((sender, response)) => response.map(|inner| Either::Left(Pooled { inner, back: Some((sender, pool)) })),
        Err(_) => {
            let mut response = Response::new(Either::Right(Empty::new()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

struct Pool {
    origin: SocketAddr,
    idle: Mutex<Vec<Sender>>,
}

impl Pool {
    async fn take(&self) -> Result<Sender, Failure> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut sender) = idle else { return self.connect().await };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
    }

    async fn connect(&self) -> Result<Sender, Failure> {
        let socket = TcpStream::connect(self.origin).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn give_back(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }
}

/// A body that gives its connection back when it was read to its end.
struct Pooled {
    inner: Incoming,
    back: Option<(Sender, Arc<Pool>)>,
}

impl Body for Pooled {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let ended = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        if ended && let Some((sender, pool)) = self.back.take() {
            pool.give_back(sender);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
