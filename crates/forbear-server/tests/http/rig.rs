//! Raw peers around the pass-through example: bytes written by hand on both sides, nothing parsed by what is tested.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forbear_server::http::dial::client_config;
use forbear_server::http::origin::Origin;
use forbear_server::http::pool::Pool;
use forbear_server::http::serve::{ServeOptions, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::proxy::{self, Proxy};

/// No wait of a test is longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a connection, read by hand.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    async fn fill(&mut self) -> bool {
        timeout(PATIENCE, self.stream.read_buf(&mut self.read))
            .await
            .expect("bytes within patience")
            .is_ok_and(|n| n > 0)
    }

    /// Reads up to and with `end`. What came until then, if the peer closes first.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|w| w == end.as_bytes()) {
                return String::from_utf8(self.read.drain(..at + end.len()).collect()).unwrap();
            }
            if !self.fill().await {
                return String::from_utf8(std::mem::take(&mut self.read)).unwrap();
            }
        }
    }

    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            assert!(self.fill().await, "closed after {} of {count} bytes", self.read.len());
        }
        self.read.drain(..count).collect()
    }

    /// Everything until the peer closes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.read)
    }
}

/// A provider that is a listener and a function called once a connection.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
}

/// Where a provider writes down the heads it saw.
#[derive(Clone)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn push(&self, head: String) {
        self.0.lock().unwrap().push(head);
    }
}

impl Provider {
    pub(crate) async fn start<F>(serve: impl Fn(Raw, usize, Seen) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let (count, heads) = (Arc::clone(&connections), Seen(Arc::clone(&seen)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let n = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(Raw::new(stream), n, heads.clone()));
            }
        });
        Self { address, connections, seen }
    }

    /// Answers every request without a body by `answer`, keeping the connection.
    pub(crate) async fn answering(answer: &'static str) -> Self {
        Self::start(move |mut raw, _, seen| async move {
            loop {
                let head = raw.head().await;
                if head.is_empty() {
                    return;
                }
                seen.push(head);
                raw.write(answer).await;
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// The pass-through proxy on a port of its own.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) drain: Option<oneshot::Sender<()>>,
    pub(crate) served: tokio::task::JoinHandle<()>,
}

impl Gateway {
    pub(crate) async fn before(base_url: &str) -> Self {
        Self::with(base_url, rustls::RootCertStore::empty(), ServeOptions::default(), |_| {}).await
    }

    pub(crate) async fn with(
        base_url: &str,
        roots: rustls::RootCertStore,
        options: ServeOptions,
        change: impl FnOnce(&mut Proxy),
    ) -> Self {
        let (origin, base_path) = Origin::parse(base_url).unwrap();
        let mut proxy = Proxy::new(Pool::new(client_config(roots).unwrap()), origin, base_path);
        change(&mut proxy);
        let proxy = Arc::new(proxy);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (drain, drained) = oneshot::channel();
        let drained = async {
            let _ = drained.await;
        };
        let handler = Arc::clone(&proxy);
        let served = tokio::spawn(serve(listener, options, drained, move |request, _| {
            proxy::handle(Arc::clone(&handler), request)
        }));
        Self { address, proxy, drain: Some(drain), served }
    }

    /// One request on a connection of its own, with everything that comes back until the connection closes.
    pub(crate) async fn once(&self, request: impl AsRef<[u8]>) -> String {
        let mut agent = Raw::connect(self.address).await;
        agent.write(request).await;
        let mut all = Vec::new();
        let read = timeout(PATIENCE, agent.stream.read_to_end(&mut all)).await.expect("an end within patience");
        read.expect("the connection is closed, not reset, so that no answer is lost");
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    timeout(PATIENCE, async {
        while !is_so() {
            // sleep: the condition is another task's, with no one to tell of it
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("not within patience: {what}"));
}
