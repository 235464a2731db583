//! Start and stop: configuration, key, journal, core, listener, in that order; the other way round at the end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, RwLock, Weak};
use std::time::Duration;

use forbear_api::client::TOKEN_FILE;
use forbear_core::command::Commands;
use forbear_core::coordinator::Coordinator;
use forbear_core::durable::{Durable, SNAPSHOT_VERSION};
use forbear_core::event::Event;
use forbear_core::input::Settings;
use forbear_store::{Reopened, StoreError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::{ConfigErrors, JournalReads, Loaded};
use crate::control::{ControlToken, write_address};
use crate::gateway::{Answering, BadProvider, Gateway, Held, Hop, Table, Told};
use crate::http::body::BodyLimits;
use crate::http::dial;
use crate::http::pool::{Keep, Pool};
use crate::http::serve as listener;
use crate::journal::Journal;
use crate::keys::{KeyError, Keys, Missing};
use crate::outside::{OpenJournal, Opened, Outside};
use crate::reload::{self, Reload, Started};
use crate::shard::Shard;
use crate::surface;

/// What is kept of the time for draining, so that whoever still waits then can be answered.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

/// Why a server did not start. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Provider(#[from] BadProvider),
    #[error("FB3101: {addr} cannot be listened on: {source}; is another server running? choose another with --listen")]
    Listen { addr: SocketAddr, source: io::Error },
    #[error("FB3102: the trust roots for TLS cannot be read: {0}; check ca_file")]
    Tls(io::Error),
    #[error(
        "FB3103: the newest snapshot cannot be read: {0}; it was written by a newer version, or the store is damaged"
    )]
    Snapshot(String),
    #[error("FB3104: the control token {} cannot be used: {source}", path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("FB3105: {0}")]
    Random(#[from] getrandom::Error),
}

/// A server that runs.
pub struct Running {
    addr: SocketAddr,
    data_dir: PathBuf,
    shard: Arc<Shard>,
    reload: Arc<Reload>,
    stop: oneshot::Sender<()>,
    listening: JoinHandle<()>,
}

/// What a journal gives back.
pub(crate) struct Recovered {
    pub snapshot: Option<Durable>,
    pub tail: Vec<Event>,
}

impl Recovered {
    pub(crate) fn read(Reopened { snapshot, tail, .. }: Reopened) -> Result<Self, StartError> {
        let snapshot = snapshot
            .map(|s| serde_json::from_slice::<Durable>(&s.bytes).map_err(|e| StartError::Snapshot(e.to_string())))
            .transpose()?;
        if let Some(version) = snapshot.as_ref().map(|s| s.version).filter(|v| *v != SNAPSHOT_VERSION) {
            return Err(StartError::Snapshot(format!("its version is {version}, this build knows {SNAPSHOT_VERSION}")));
        }
        Ok(Self { snapshot, tail: tail.collect::<Result<_, _>>()? })
    }

    /// Whether nothing was ever recorded.
    fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.tail.is_empty()
    }
}

/// Starts a server. It listens when this returns.
///
/// # Errors
/// When any part of it cannot be had; nothing is left running then.
pub async fn start(loaded: Loaded) -> Result<Running, StartError> {
    let addr = loaded.settings.listen;
    let listening = TcpListener::bind(addr).await.map_err(|source| StartError::Listen { addr, source })?;
    start_in(Outside::real(listening), loaded).await
}

/// As [`start`], in a world of the caller's: its listener is listened on, whatever the configuration says.
///
/// # Errors
/// As [`start`].
pub async fn start_in(outside: Outside, loaded: Loaded) -> Result<Running, StartError> {
    let Outside { clock, chance, listener: listening, dialler, open_journal } = outside;
    let data_dir = loaded.data_dir()?;
    let settings = loaded.settings.clone();
    let addr = settings.listen;
    let addr = listening.local_addr().map_err(|source| StartError::Listen { addr, source })?;
    let Loaded { file, overrides, compiled, .. } = loaded;
    let started = Started { file, overrides, settings: settings.clone(), listening: addr };
    let compiled = Arc::new(compiled);
    let core_settings = Arc::new(reload::core_settings(&compiled));

    let cell = Arc::new(OnceLock::new());
    let options = forbear_store::Options {
        store_bytes_max: settings.store_bytes_max,
        retention_days: u32::try_from(settings.retention_days).unwrap_or(u32::MAX),
        ..forbear_store::Options::new(&data_dir)
    };
    let report = Arc::clone(&cell);
    let opening = tokio::task::spawn_blocking(move || open(open_journal, options, report));
    let (journal, recovered, log_id) = opening.await.map_err(|e| StartError::Snapshot(e.to_string()))??;
    let missing = if recovered.is_empty() { Missing::Make } else { Missing::Refuse };
    let keys = Keys::load(&settings.master_key_file(&data_dir), missing)?;
    let token = ControlToken::load_or_make(&data_dir)
        .map_err(|source| StartError::Token { path: data_dir.join(TOKEN_FILE), source })?;
    if let Err(error) = write_address(&data_dir, addr) {
        tracing::warn!(%error, "the data directory does not say where this server is; commands need --server");
    }
    let table = Table::new(Arc::clone(&compiled))?;
    let tls = dial::tls_config(settings.upstream.ca_file.as_deref()).map_err(StartError::Tls)?;

    let (mut core, mut commands) = Coordinator::recover(
        Arc::clone(&core_settings),
        chance.seed()?,
        clock.now(),
        recovered.snapshot,
        &recovered.tail,
    );
    commands.extend(load_policy(&mut core, clock, core_settings));
    // Known before the first write comes, not only with the first commit.
    let store_full = journal.usage_bytes() >= settings.store_bytes_max;
    commands.extend(core.handle(clock.now(), forbear_core::input::Input::StoreFull(store_full)));
    let shard = Shard::new(core, clock);
    // Nothing was appended yet, so nothing was reported to nobody.
    let _ = cell.set(Arc::downgrade(&shard));
    shard.connect(journal, commands);

    let keep = Keep {
        idle: Duration::from_millis(settings.upstream.idle_timeout_ms),
        age: Duration::from_secs(settings.upstream.age_seconds),
        idle_connections_max: usize::try_from(settings.upstream.idle_connections_max).unwrap_or(usize::MAX),
    };
    let gateway = Arc::new(Gateway {
        shard: Arc::clone(&shard),
        table: RwLock::new(Arc::new(table)),
        pool: Pool::keeping(dialler, tls, keep),
        chance,
        hop: Hop::new(&keys),
        keys,
        log_id,
        limits: BodyLimits {
            replay_bytes_max: settings.body_replay_bytes_max,
            body_bytes_max: settings.body_bytes_max,
            silence_max: Duration::from_secs(settings.header_read_seconds),
        },
        held: Held::new(settings.replay_bytes_total_max),
        connect_timeout: Duration::from_millis(settings.upstream.connect_timeout_ms),
        head_timeout: Duration::from_secs(settings.upstream.head_timeout_seconds),
        journal_before: settings.journal_reads == JournalReads::Before,
        told: Told::default(),
    });
    gateway.keep_warm(&gateway.table());
    let reload = Arc::new(Reload::new(Arc::clone(&gateway), started));
    let own = surface::build(token, data_dir.clone(), &gateway, &reload, vec![addr.ip().to_string()]);
    let options = listener::ServeOptions {
        connections_max: usize::try_from(settings.connections_max).unwrap_or(usize::MAX),
        head_timeout: Duration::from_secs(settings.header_read_seconds),
        drain_timeout: Duration::from_secs(settings.drain_seconds),
        ..listener::ServeOptions::default()
    };
    let (stop, stopped) = oneshot::channel();
    let draining = Arc::clone(&shard);
    let drain_timeout = options.drain_timeout;
    let drain_ends = Arc::new(OnceLock::new());
    let drain_begins = Arc::clone(&drain_ends);
    let drain = async move {
        // A dropped sender means the same as a word: stop.
        let _ = stopped.await;
        let ends = Instant::now() + drain_timeout;
        let _ = drain_begins.set(ends);
        draining.drain();
        let last_word = ends - LAST_WORD_MAX.min(drain_timeout / 4);
        // Not held: what is done sooner is over sooner, and its journal free.
        let draining = Arc::downgrade(&draining);
        tokio::spawn(async move {
            tokio::time::sleep_until(last_word).await;
            if let Some(shard) = draining.upgrade() {
                shard.drain_over();
            }
        });
    };
    let serving = listener::serve(listening, options, drain, move |request, _peer| -> Answering {
        let path = request.uri().path();
        let is_own = path == "/-" || path.starts_with("/-/");
        if is_own { Box::pin(surface::serve(own.clone(), request)) } else { Arc::clone(&gateway).serve(request) }
    });
    let ended = Arc::clone(&shard);
    let listening = tokio::spawn(async move {
        serving.await;
        // Writes whose agents left are on nobody's connection.
        let until = drain_ends.get().copied().unwrap_or_else(Instant::now);
        if tokio::time::timeout_at(until, ended.idle()).await.is_err() {
            tracing::warn!(actions = ended.live_actions(), "drain_seconds are over; what is on the wire stays unknown");
        }
        ended.close().await;
    });
    Ok(Running { addr, data_dir, shard, reload, stop, listening })
}

type Found = (Box<dyn Journal>, Recovered, forbear_store::LogId);

fn open(
    open: OpenJournal,
    options: forbear_store::Options,
    shard: Arc<OnceLock<Weak<Shard>>>,
) -> Result<Found, StartError> {
    let on_durable = move |progress| {
        if let Some(shard) = shard.get().and_then(Weak::upgrade) {
            shard.progress(progress);
        }
    };
    let Opened { journal, recovered, log_id } = open(options, Box::new(on_durable))?;
    Ok((journal, Recovered::read(recovered)?, log_id))
}

fn load_policy(core: &mut Coordinator, clock: Clock, settings: Arc<Settings>) -> Commands {
    let by = "start".to_owned();
    core.handle(clock.now(), forbear_core::input::Input::PolicyLoaded { settings, by })
}

impl Running {
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    #[must_use]
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// What reads its configuration again.
    #[must_use]
    pub const fn reload(&self) -> &Arc<Reload> {
        &self.reload
    }

    /// Drains: not ready, no new calls, what waits is answered, what is in flight has `drain_seconds`.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        if let Err(error) = self.listening.await {
            tracing::error!(%error, "the listener broke off");
        }
    }
}
