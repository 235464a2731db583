//! A scriptable fake provider that misbehaves on request and measures what it is sent.
//!
//! It speaks HTTP/1.1 by hand on the raw socket and HTTP/2 through `h2` over a tapped one, in the clear or over TLS.
//! A [`Scenario`] says how each route answers, which limits are enforced, which keys are honoured and where a
//! connection breaks. Every [`Arrival`] is logged with the time its first byte was read; every effect is counted.
//! What a test asserts about an agent or a gateway is asserted here, at the provider, and nowhere nearer.
//!
//! It promises exactness of the log over speed, and bounds on everything. It refuses to guess: a scenario that
//! contradicts itself does not start.

mod arrival;
mod control;
mod effect;
mod exchange;
mod keys;
mod limit;
mod pattern;
mod render;
mod request;
mod routing;
mod run;
mod scenario;
mod template;
mod wire;
mod world;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use arrival::{ARRIVALS_KEPT_MAX, Arrival, BODY_KEPT_BYTES_MAX, Fate};
pub use effect::{EFFECTS_KEPT_MAX, EffectRecord, Effects};
pub use request::credential_digest;
pub use run::{RunError, RunOptions, run};
pub use scenario::{Scenario, ScenarioError};

use arrival::Log;
use exchange::{Clock, Shared};
use world::World;

/// How a provider listens and logs.
pub struct Options {
    pub listen: SocketAddr,
    pub tls: bool,
    /// Names and addresses in the certificate.
    pub tls_names: Vec<String>,
    pub http2: Http2,
    /// Where arrivals are written as NDJSON when they are finished, beside being kept.
    pub log: Option<Box<dyn Write + Send>>,
    pub arrivals_kept_max: usize,
}

/// Whether HTTP/2 is spoken: by ALPN over TLS, by prior knowledge without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Http2 {
    #[default]
    Auto,
    Off,
    Only,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: false,
            tls_names: vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()],
            http2: Http2::Auto,
            log: None,
            arrivals_kept_max: ARRIVALS_KEPT_MAX,
        }
    }
}

/// A running fake provider. Dropping it ends it.
pub struct Provider {
    shared: Arc<Shared>,
    addr: SocketAddr,
    tls: bool,
    ca_pem: Option<String>,
    task: JoinHandle<()>,
}

impl Provider {
    /// Binds, and serves until [`stop`](Self::stop) or drop.
    pub async fn start(scenario: Scenario, options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen).await?;
        Self::start_on(listener, scenario, options)
    }

    fn start_on(listener: TcpListener, scenario: Scenario, options: Options) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let tls = if options.tls { Some(wire::tls::make(&options.tls_names, options.http2)?) } else { None };
        let (acceptor, ca_pem) = tls.map_or((None, None), |tls| (Some(tls.acceptor), Some(tls.ca_pem)));
        let log = Log::new(options.log, options.arrivals_kept_max.max(1));
        let world = World::new(scenario.0, base_url(options.tls, addr), log);
        let shared = Shared::new(Clock::start(), world);
        let listening = wire::Listener {
            shared: Arc::clone(&shared),
            listener,
            tls: acceptor,
            http2: options.http2,
            connections: Arc::new(AtomicU64::new(0)),
        };
        let task = tokio::spawn(listening.serve());
        Ok(Self { shared, addr, tls: options.tls, ca_pem, task })
    }

    /// `http://127.0.0.1:port`, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        base_url(self.tls, self.addr)
    }

    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The certificate of the authority that a client must trust, with TLS.
    #[must_use]
    pub fn ca_pem(&self) -> Option<String> {
        self.ca_pem.clone()
    }

    /// The arrivals that are kept, in order.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.world().log.arrivals()
    }

    #[must_use]
    pub fn effects(&self) -> Effects {
        self.shared.world().effects.clone()
    }

    /// Nanoseconds of the clock that arrivals are stamped with.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.clock.ns()
    }

    /// Forgets arrivals, effects, keys, limits and the place in every sequence.
    pub fn reset(&self) {
        control::reset(&self.shared, None);
    }

    /// Replaces the scenario, and starts over.
    pub fn set_scenario(&self, scenario: Scenario) {
        control::reset(&self.shared, Some(scenario));
    }

    /// Closes every connection that has no request under way.
    pub fn close_idle(&self, reset: bool) {
        self.shared.close_idle.send_replace(reset);
    }

    /// Waits until the requests of `n` arrivals were read whole (or given up). `Err` has what came in time.
    pub async fn wait_for_arrivals(&self, n: usize, within: Duration) -> Result<Vec<Arrival>, Vec<Arrival>> {
        self.wait(within, |shared| shared.world().log.read() >= n as u64).await
    }

    /// Waits until `holds` is true of the arrivals.
    pub async fn wait_until(
        &self,
        within: Duration,
        holds: impl Fn(&[Arrival]) -> bool,
    ) -> Result<Vec<Arrival>, Vec<Arrival>> {
        self.wait(within, |shared| holds(&shared.world().log.arrivals())).await
    }

    /// Ends the listener and every connection.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    async fn wait(&self, within: Duration, holds: impl Fn(&Shared) -> bool) -> Result<Vec<Arrival>, Vec<Arrival>> {
        let mut changed = self.shared.changed.subscribe();
        let waiting = async {
            while !holds(&self.shared) {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        let in_time = timeout(within, waiting).await.is_ok();
        let arrivals = self.arrivals();
        if in_time { Ok(arrivals) } else { Err(arrivals) }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn base_url(tls: bool, addr: SocketAddr) -> String {
    format!("{}://{addr}", if tls { "https" } else { "http" })
}
