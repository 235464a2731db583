//! An HTTP/2 connection: its streams are served each by a task, its endings are ordered by them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::http1::Stream;
use super::http2_stream::StreamTask;
use super::socket::{DRAIN_MS, ResetOnDrop};
use super::tap::{Tap, Wire};
use crate::provider::exchange::{Shared, peer_closed_line};
use crate::provider::scenario::step::{Goaway, Then};

/// What `h2` would announce if the scenario says nothing.
const STREAMS_MAX_DEFAULT: u32 = 100;
const ORDERS_MAX: usize = 64;

pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    pub(crate) client_port: u16,
    pub(crate) reset: ResetOnDrop,
}

/// What a stream asks of its connection.
pub(crate) enum Order {
    Fin,
    Rst,
    /// A GOAWAY; the stream that is left unanswered is held, because dropping it would reset it.
    Goaway {
        goaway: Goaway,
        last_stream: u32,
        held: Option<SendResponse<Bytes>>,
    },
}

enum Ending {
    Fin,
    Rst,
    PeerGone,
}

type Server = h2::server::Connection<Tap<Box<dyn Stream>>, Bytes>;

impl Connection {
    pub(crate) async fn serve(self, io: Box<dyn Stream>, buffered: BytesMut, first_ns: u64) {
        let (tap, wire) = Tap::new(io, buffered, first_ns, Arc::clone(&self.shared));
        let mut builder = h2::server::Builder::new();
        {
            let world = self.shared.world();
            let settings = &world.document.http2;
            builder.max_concurrent_streams(settings.max_concurrent_streams.unwrap_or(STREAMS_MAX_DEFAULT));
            if let Some(bytes) = settings.initial_window_bytes {
                builder.initial_window_size(bytes);
            }
            if let Some(bytes) = settings.max_frame_bytes {
                builder.max_frame_size(bytes);
            }
        }
        let Ok(mut server) = builder.handshake(tap).await else {
            let at_ns = self.shared.clock.ns();
            return peer_closed_line(&self.shared, at_ns, self.number, None, None);
        };
        let mut tasks = JoinSet::new();
        let mut held = Vec::new();
        match self.run(&mut server, &wire, &mut tasks, &mut held).await {
            Ending::Fin => {
                wire.mute_and_shut();
                drive(&mut server, Duration::from_millis(DRAIN_MS), || false).await;
            }
            Ending::Rst => {
                drive(&mut server, Duration::from_millis(DRAIN_MS), || wire.is_settled()).await;
                self.reset.set();
            }
            Ending::PeerGone => {
                let at_ns = self.shared.clock.ns();
                peer_closed_line(&self.shared, at_ns, self.number, None, None);
                drop(server);
                // Work that was begun goes on without its caller, as it does at a real provider.
                while tasks.join_next().await.is_some() {}
            }
        }
    }

    async fn run(
        &self,
        server: &mut Server,
        wire: &Wire,
        tasks: &mut JoinSet<()>,
        held: &mut Vec<SendResponse<Bytes>>,
    ) -> Ending {
        let (orders, mut received) = mpsc::channel(ORDERS_MAX);
        let mut close_idle = self.shared.close_idle.subscribe();
        let mut closing = false;
        loop {
            tokio::select! {
                biased;
                Some(order) = received.recv() => match order {
                    Order::Fin => return Ending::Fin,
                    Order::Rst => return Ending::Rst,
                    Order::Goaway { goaway, last_stream, held: stream } => {
                        wire.goaway(last_stream, goaway.code.0);
                        held.extend(stream);
                        match goaway.then {
                            Then::Close => return Ending::Fin,
                            Then::Rst => return Ending::Rst,
                            Then::Keep | Then::Answer => closing = true,
                        }
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {
                    if closing && tasks.is_empty() {
                        drive(server, Duration::from_millis(DRAIN_MS), || wire.is_settled()).await;
                        return Ending::Fin;
                    }
                }
                _ = close_idle.changed(), if tasks.is_empty() => {
                    return if *close_idle.borrow() { Ending::Rst } else { Ending::Fin };
                }
                accepted = server.accept() => match accepted {
                    Some(Ok((_, mut respond))) if closing => respond.send_reset(h2::Reason::REFUSED_STREAM),
                    Some(Ok((request, respond))) => {
                        let task = self.stream(request, respond, wire, &orders);
                        tasks.spawn(task.serve());
                    }
                    Some(Err(_)) | None => return Ending::PeerGone,
                },
            }
        }
    }

    fn stream(
        &self,
        request: http::Request<RecvStream>,
        respond: SendResponse<Bytes>,
        wire: &Wire,
        orders: &mpsc::Sender<Order>,
    ) -> StreamTask {
        let stream = respond.stream_id().as_u32();
        StreamTask {
            shared: Arc::clone(&self.shared),
            connection: self.number,
            client_port: self.client_port,
            stream,
            at_ns: wire.head_began_ns(stream).unwrap_or_else(|| self.shared.clock.ns()),
            request,
            respond,
            wire: wire.clone(),
            orders: orders.clone(),
        }
    }
}

/// Lets the connection work until it ends, `done` says so, or the time is over.
async fn drive(server: &mut Server, within: Duration, done: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    loop {
        // One turn of the connection, so that what is pending is written before `done` is asked.
        let turn = std::future::poll_fn(|cx| {
            let ended = match server.poll_accept(cx) {
                std::task::Poll::Ready(Some(Ok(_))) => false,
                std::task::Poll::Ready(_) => true,
                std::task::Poll::Pending if done() => true,
                std::task::Poll::Pending => return std::task::Poll::Pending,
            };
            std::task::Poll::Ready(ended)
        });
        tokio::select! {
            biased;
            ended = turn => if ended { return },
            () = sleep_until(deadline) => return,
        }
    }
}
