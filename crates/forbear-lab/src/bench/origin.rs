//! The fast origin behind every peer: a fixed small JSON answer, and a stream of events that are flushed one by one.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

pub const JSON_PATH: &str = "/json";
pub const STREAM_PATH: &str = "/stream";
/// For writes: without a key, and with one that the origin is said to honour.
pub const WRITE_PATH: &str = "/writes";
pub const KEYED_PATH: &str = "/keyed-writes";

pub const JSON: &[u8] =
    br#"{"id":"item_0001","object":"item","created":1764500000,"name":"a small answer","tags":["one","two"],"ok":true}"#;
pub const EVENT: &[u8] = b"data: {\"id\":\"c1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n";
pub const EVENTS: usize = 200;

/// Serves until it is dropped. A connection that fails is the load generator's to count.
pub async fn serve(listener: TcpListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        // Without this the kernel holds back the second small write of a stream.
        let _ = socket.set_nodelay(true);
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(
            TokioIo::new(socket),
            service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) }),
        );
        tokio::spawn(connection);
    }
}

fn answer(request: &Request<Incoming>) -> Response<Either<Full<Bytes>, Events>> {
    let (kind, body) = match request.uri().path() {
        JSON_PATH | WRITE_PATH | KEYED_PATH => ("application/json", Either::Left(Full::new(Bytes::from_static(JSON)))),
        STREAM_PATH => ("text/event-stream", Either::Right(Events { left: EVENTS, flush: false })),
        _ => ("text/plain", Either::Left(Full::new(Bytes::new()))),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// Gives way after each event, so that hyper flushes it instead of gathering several into one write.
struct Events {
    left: usize,
    flush: bool,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.flush = !self.flush;
        if self.flush {
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EVENT)))));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
