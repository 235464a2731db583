//! A new connection to a provider: names, addresses, TLS.
//!
//! It promises that nothing of a request is sent here, so that every failure is proof of not sent. The addresses of a name
//! are tried one after the other within the one connect timeout: one that refuses makes way at once, one that swallows
//! packets when its equal share of what is left is over. That is one stage of one attempt, charged once, since nothing was
//! written to an address that is left. It refuses another address once one is connected: whatever fails from there on, TLS
//! included, ends the dial. It refuses plaintext where the base URL says https and certificates that neither the system's
//! roots, the built-in ones nor the extra file vouch for.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::attentive::{Asks, Attentive};
use super::counted::{Counted, Written};
use super::origin::Origin;
use super::socket::{Dialler, Socket};
use super::upstream::Stage;

/// Addresses of one name that are tried in one dial.
const ADDRESSES_MAX: usize = 8;

const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP11: &[u8] = b"http/1.1";

/// Why there is no connection. The words carry no credential: nothing of a request is known here.
#[derive(Debug)]
pub(super) struct DialError {
    pub(super) stage: Stage,
    pub(super) what: String,
}

/// An open connection, before anybody spoke HTTP on it.
pub(super) struct Dialed {
    pub(super) transport: Transport,
    pub(super) counts: Counts,
    pub(super) is_http2: bool,
}

/// The counters of a connection's layers.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    socket: Written,
    above_tls: Option<Written>,
    asks: Asks,
}

/// The counters at one instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    socket: u64,
    above_tls: u64,
}

impl Counts {
    /// The counters now. From here on it is noted when the peer speaks first.
    pub(super) fn mark(&self) -> Mark {
        self.outer().listen();
        self.now()
    }

    fn now(&self) -> Mark {
        Mark { socket: self.socket.bytes(), above_tls: self.above_tls.as_ref().map_or(0, Written::bytes) }
    }

    /// Whether it is proven that nothing was written since: one layer that took nothing suffices.
    pub(super) fn nothing_since(&self, mark: Mark) -> bool {
        let now = self.now();
        now.socket == mark.socket || (self.above_tls.is_some() && now.above_tls == mark.above_tls)
    }

    /// Whether all that was to be written had been when the peer spoke first since the mark. The caller knows whether
    /// there was anything else to write.
    pub(super) fn was_heard_last(&self) -> bool {
        self.outer().was_heard_last()
    }

    /// Does something with the connection while its reads ask the kernel what is there.
    pub(super) fn while_asking<T>(&self, look: impl FnOnce() -> T) -> T {
        self.asks.while_asking(look)
    }

    /// The layer that sees bytes of HTTP, and none of the handshake's.
    fn outer(&self) -> &Written {
        self.above_tls.as_ref().unwrap_or(&self.socket)
    }
}

pub(super) enum Transport {
    Plain(Counted<Attentive>),
    Tls(Box<Counted<TlsStream<Counted<Attentive>>>>),
}

/// The TLS settings of all connections.
///
/// # Errors
/// When the extra file cannot be read or holds no certificate.
pub fn tls_config(extra_roots_file: Option<&Path>) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    // Some systems have no store, or a broken certificate in it: the built-in roots still stand.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = extra_roots_file {
        let certs: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        let certs = certs.map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
        let (added, _) = roots.add_parsable_certificates(certs);
        if added == 0 {
            let what = format!("{} holds no usable certificate", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    client_config(roots)
}

/// The TLS settings with exactly these roots.
///
/// # Errors
/// When the crypto provider supports no TLS version, which it does.
pub fn client_config(roots: RootCertStore) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP11.to_vec()];
    Ok(Arc::new(config))
}

pub(super) async fn dial(
    dialler: &Dialler,
    origin: &Origin,
    tls: &Arc<ClientConfig>,
    timeout: Duration,
) -> Result<Dialed, DialError> {
    let until = Instant::now() + timeout;
    let stream = match dialler {
        Dialler::Tcp => connect(origin, until).await.map(Socket::Tcp),
        Dialler::Pipes(network) => match timeout_at(until, network.connect(origin.host(), origin.port())).await {
            Ok(Ok(pipe)) => Ok(Socket::Pipe(pipe)),
            Ok(Err(e)) => Err(format!("connecting to {} failed: {e}", origin.authority())),
            Err(_) => Err(format!("connecting to {} timed out", origin.authority())),
        },
    };
    let stream = stream.map_err(|what| DialError { stage: Stage::Connect, what })?;
    stream.set_nodelay();
    let stream = Attentive::new(stream);
    let asks = stream.asks();
    let stream = Counted::new(stream);
    let socket = stream.written();
    let Some(name) = origin.tls_name() else {
        let counts = Counts { socket, above_tls: None, asks };
        return Ok(Dialed { transport: Transport::Plain(stream), counts, is_http2: origin.http2_prior_knowledge() });
    };
    let handshake = TlsConnector::from(Arc::clone(tls)).connect(name.clone(), stream);
    let stream = match timeout_at(until, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(e)) => return Err(DialError { stage: Stage::Tls, what: format!("TLS handshake failed: {e}") }),
        Err(_) => return Err(DialError { stage: Stage::Tls, what: "TLS handshake timed out".into() }),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
    let stream = Counted::new(stream);
    let counts = Counts { socket, above_tls: Some(stream.written()), asks };
    Ok(Dialed { transport: Transport::Tls(Box::new(stream)), counts, is_http2 })
}

async fn connect(origin: &Origin, until: Instant) -> Result<TcpStream, String> {
    let host = origin.host();
    let lookup = timeout_at(until, tokio::net::lookup_host((host, origin.port()))).await;
    let addresses: Vec<SocketAddr> = match lookup {
        Ok(Ok(found)) => found.take(ADDRESSES_MAX).collect(),
        Ok(Err(e)) => return Err(format!("the name {host} was not found: {e}")),
        Err(_) => return Err(format!("looking up the name {host} timed out")),
    };
    let none = || format!("the name {host} has no address");
    first_of(&addresses, until).await.map_err(|last| last.unwrap_or_else(none))
}

/// The first of the addresses that takes a connection, or why the last did not.
async fn first_of(addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, Option<String>> {
    let mut last = None;
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let now = Instant::now();
        let share = now + until.saturating_duration_since(now) / u32::try_from(left).unwrap_or(u32::MAX);
        last = Some(match timeout_at(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(e)) => format!("connecting to {address} failed: {e}"),
            Err(_) => format!("connecting to {address} timed out"),
        });
    }
    Err(last)
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Transport::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, s => s.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, s => s.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(s) => s.is_write_vectored(),
            Self::Tls(s) => s.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, s => s.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::{ADDRESSES_MAX, first_of};

    /// Longer than any of these connects takes.
    const LONG: Duration = Duration::from_secs(20);
    /// For addresses that hang: so long is waited for in the test.
    const SHORT: Duration = Duration::from_millis(1_600);

    #[tokio::test]
    async fn one_that_refuses_makes_way_at_once_and_only_one_is_connected() {
        let (first, second) = (listening("127.0.0.2:0").await, listening("127.0.0.3:0").await);
        let addresses = [closed().await, address(&first), address(&second)];
        let began = Instant::now();
        let stream = first_of(&addresses, began + LONG).await.expect("the second address listens");
        assert!(began.elapsed() < LONG / 3, "the refused address kept its share");
        assert_eq!(stream.peer_addr().ok(), Some(addresses[1]));
        assert_eq!((arrivals(&first).await, arrivals(&second).await), (1, 0));
    }

    #[tokio::test]
    async fn those_that_swallow_packets_leave_the_last_its_share() {
        let (silent, _filling) = silent().await;
        let open = listening("127.0.0.2:0").await;
        let mut addresses = [silent; ADDRESSES_MAX];
        addresses[ADDRESSES_MAX - 1] = address(&open);
        let until = Instant::now() + SHORT;
        let dialed = first_of(&addresses, until).await;
        // An eighth, less what a busy machine takes of it.
        let left = until.saturating_duration_since(Instant::now());
        assert!(dialed.is_ok() && left > SHORT / 32 && left <= SHORT / 8, "{dialed:?} with {left:?} left");
        assert_eq!(arrivals(&open).await, 1);
    }

    #[tokio::test]
    async fn all_of_them_together_have_the_one_time() {
        let (silent, _filling) = silent().await;
        let began = Instant::now();
        let failed = first_of(&[silent; 3], began + SHORT).await.expect_err("nobody takes a connection");
        assert!(began.elapsed() >= SHORT && began.elapsed() < SHORT * 3, "{:?}", began.elapsed());
        assert_eq!(failed, Some(format!("connecting to {silent} timed out")));
        assert!(first_of(&[], began + SHORT).await.is_err_and(|last| last.is_none()));
    }

    async fn listening(at: &str) -> TcpListener {
        TcpListener::bind(at).await.unwrap()
    }

    fn address(listener: &TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    async fn closed() -> SocketAddr {
        address(&listening("127.0.0.1:0").await)
    }

    /// What stands in the listener's queue: the connections that were made to it.
    async fn arrivals(listener: &TcpListener) -> usize {
        let mut count = 0;
        while timeout(Duration::from_millis(20), listener.accept()).await.is_ok() {
            count += 1;
        }
        count
    }

    /// An address whose queue is full, so that the kernel drops what asks for a connection. Full while the rest is kept.
    async fn silent() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let at = address(&listener);
        let mut filling = Vec::new();
        while let Ok(Ok(stream)) = timeout(Duration::from_millis(100), TcpStream::connect(at)).await {
            filling.push(stream);
        }
        (at, (listener, filling))
    }
}
