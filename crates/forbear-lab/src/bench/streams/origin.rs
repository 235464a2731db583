//! A provider whose answers do not end before they are told to: one event at once, one more at the end.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Wire;
use crate::bench::origin::EVENT;

/// Serves until it is dropped. A connection that fails is the agents' to count.
pub(super) async fn serve(listener: TcpListener, wire: Wire, ends: watch::Receiver<bool>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        let ends = ends.clone();
        let service = service_fn(move |request: Request<Incoming>| answer(request, ends.clone()));
        let io = TokioIo::new(socket);
        match wire {
            Wire::Http1 => {
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
            }
            Wire::Http2 => {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(io, service));
            }
        }
    }
}

/// Answers once the whole of the request was read, as who computes a completion does.
async fn answer(request: Request<Incoming>, ends: watch::Receiver<bool>) -> Result<Response<Held>, hyper::Error> {
    http_body_util::BodyExt::collect(request.into_body()).await?;
    let mut response = Response::new(Held::new(ends));
    let kind = http::HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

struct Held {
    events_sent: u8,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Held {
    fn new(mut ends: watch::Receiver<bool>) -> Self {
        let end = Box::pin(async move {
            let _ = ends.wait_for(|is_end| *is_end).await;
        });
        Self { events_sent: 0, end }
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.events_sent {
            0 => {}
            1 => ready!(self.end.as_mut().poll(cx)),
            _ => return Poll::Ready(None),
        }
        self.events_sent += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EVENT)))))
    }
}
