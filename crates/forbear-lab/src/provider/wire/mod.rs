//! The sockets: accepting, TLS, telling HTTP/2 from HTTP/1.1, and serving each connection until it ends.

mod http1;
mod http1_write;
mod http2;
mod http2_stream;
mod reader;
mod socket;
mod tap;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Http2;
use super::exchange::{Shared, peer_closed_line};
use super::scenario::Accept;
use http1::Stream;
use reader::Reader;
use socket::{ResetOnDrop, Socket};

/// More connections than this are closed as they come.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

pub(crate) struct Listener {
    pub(crate) shared: Arc<Shared>,
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) http2: Http2,
    pub(crate) connections: Arc<AtomicU64>,
}

impl Listener {
    /// Accepts until the task is aborted; its connections end with it.
    pub(crate) async fn serve(self) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    // Out of descriptors, most likely: the connections that end give some back.
                    let Ok((stream, peer)) = accepted else {
                        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                        continue;
                    };
                    if tasks.len() >= CONNECTIONS_MAX {
                        continue;
                    }
                    let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
                    let accept = Accepted {
                        shared: Arc::clone(&self.shared),
                        number,
                        peer,
                        tls: self.tls.clone(),
                        http2: self.http2,
                    };
                    tasks.spawn(accept.serve(stream));
                }
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }
}

struct Accepted {
    shared: Arc<Shared>,
    number: u64,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    http2: Http2,
}

impl Accepted {
    async fn serve(self, stream: TcpStream) {
        let (mut socket, reset) = Socket::new(stream);
        let accept = {
            let world = self.shared.world();
            let index = usize::try_from(self.number - 1).unwrap_or(usize::MAX);
            world.document.connections.accept.get(index).copied().unwrap_or(Accept::Ok)
        };
        match accept {
            Accept::Ok => {}
            Accept::Fin => return socket.fin().await,
            Accept::Rst => return reset.set(),
            Accept::Stall => {
                let _held = socket;
                return std::future::pending().await;
            }
        }
        match &self.tls {
            None => self.sniff(Box::new(socket), reset).await,
            Some(acceptor) => {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let io: Box<dyn Stream> = Box::new(stream);
                    let first_ns = self.shared.clock.ns();
                    self.http2(io, BytesMut::new(), first_ns, reset).await;
                } else {
                    self.sniff(Box::new(stream), reset).await;
                }
            }
        }
    }

    /// Reads until it is clear which version the peer speaks.
    async fn sniff(self, io: Box<dyn Stream>, reset: ResetOnDrop) {
        let (half, writer) = tokio::io::split(io);
        let mut reader = Reader::new(half, BytesMut::new(), self.shared.clock.ns());
        let is_http2 = loop {
            let known = match self.http2 {
                Http2::Off => Some(false),
                Http2::Only => Some(true),
                Http2::Auto if reader.is_empty() => None,
                Http2::Auto => reader.starts_with_preface(),
            };
            if let Some(known) = known {
                break known;
            }
            if !reader.fill(&self.shared.clock).await {
                let at_ns = self.shared.clock.ns();
                return peer_closed_line(&self.shared, at_ns, self.number, None, None);
            }
        };
        if is_http2 {
            let (half, buffered, first_ns) = reader.into_parts();
            return self.http2(half.unsplit(writer), buffered, first_ns, reset).await;
        }
        let close_idle = self.shared.close_idle.subscribe();
        let connection = http1::Connection {
            shared: self.shared,
            number: self.number,
            client_port: self.peer.port(),
            reader,
            writer,
            reset,
            answered: 0,
            close_idle,
        };
        connection.serve().await;
    }

    async fn http2(self, io: Box<dyn Stream>, buffered: BytesMut, first_ns: u64, reset: ResetOnDrop) {
        let connection =
            http2::Connection { shared: self.shared, number: self.number, client_port: self.peer.port(), reset };
        connection.serve(io, buffered, first_ns).await;
    }
}
