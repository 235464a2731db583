//! A new connection to a provider: names, addresses, TLS.
//!
//! It promises that nothing of a request is sent here, so that every failure is proof of not sent. The addresses of a name
//! are tried one after the other within the one connect timeout. It refuses plaintext where the base URL says https and
//! certificates that neither the system's roots, the built-in ones nor the extra file vouch for.

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
}

/// The counters at one instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    socket: u64,
    above_tls: u64,
}

impl Counts {
    pub(super) fn mark(&self) -> Mark {
        Mark { socket: self.socket.bytes(), above_tls: self.above_tls.as_ref().map_or(0, Written::bytes) }
    }

    /// Whether it is proven that nothing was written since: one layer that took nothing suffices.
    pub(super) fn nothing_since(&self, mark: Mark) -> bool {
        let now = self.mark();
        now.socket == mark.socket || (self.above_tls.is_some() && now.above_tls == mark.above_tls)
    }
}

pub(super) enum Transport {
    Plain(Counted<Socket>),
    Tls(Box<Counted<TlsStream<Counted<Socket>>>>),
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
    let stream = Counted::new(stream);
    let socket = stream.written();
    let Some(name) = origin.tls_name() else {
        let counts = Counts { socket, above_tls: None };
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
    let counts = Counts { socket, above_tls: Some(stream.written()) };
    Ok(Dialed { transport: Transport::Tls(Box::new(stream)), counts, is_http2 })
}

/// Nothing was sent when an address does not answer, so the next one is no second attempt.
async fn connect(origin: &Origin, until: Instant) -> Result<TcpStream, String> {
    let host = origin.host();
    let lookup = timeout_at(until, tokio::net::lookup_host((host, origin.port()))).await;
    let addresses: Vec<SocketAddr> = match lookup {
        Ok(Ok(found)) => found.take(ADDRESSES_MAX).collect(),
        Ok(Err(e)) => return Err(format!("the name {host} was not found: {e}")),
        Err(_) => return Err(format!("looking up the name {host} timed out")),
    };
    let mut last = format!("the name {host} has no address");
    for (n, address) in addresses.iter().enumerate() {
        // An address that swallows packets leaves half of what remains to the others.
        let now = Instant::now();
        let is_last = n + 1 == addresses.len();
        let share = if is_last { until } else { now + until.saturating_duration_since(now) / 2 };
        last = match timeout_at(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(e)) => format!("connecting to {address} failed: {e}"),
            Err(_) => format!("connecting to {address} timed out"),
        };
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
