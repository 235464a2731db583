//! One request from its head to its fate, the same for both HTTP versions.
//!
//! Whatever happens to the task that serves it, an exchange ends exactly once: its slots come back, its unfinished key
//! is released, its log entry has a fate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::arrival::{Arrival, BODY_KEPT_BYTES_MAX, Fate};
use super::limit::{LimitView, Slot};
use super::render::Rendered;
use super::request::{Request, hex};
use super::scenario::step::{At, Step};
use super::world::{Admission, Kind, Now, Plan, Seen, World};

/// So much of a body can be asked for by `when`, templates and keys; the digest is over all of it.
pub(crate) const BODY_MATCHED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One monotonic clock for everything in the log; wall time is that clock put on the wall once, at the start.
pub(crate) struct Clock {
    start: Instant,
    wall_start_ms: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall_start_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(0) }
    }

    pub(crate) fn ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn wall_ms(&self, ns: u64) -> u64 {
        self.wall_start_ms.saturating_add(ns / 1_000_000)
    }

    fn now(&self) -> Now {
        let mono_ns = self.ns();
        Now { mono_ns, wall_ms: self.wall_ms(mono_ns) }
    }
}

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    world: Mutex<World>,
    /// Told of every change to the log.
    pub(crate) changed: watch::Sender<()>,
    /// Raised to have idle connections closed; the value says whether with a reset.
    pub(crate) close_idle: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(clock: Clock, world: World) -> Arc<Self> {
        let (changed, close_idle) = (watch::Sender::new(()), watch::Sender::new(false));
        Arc::new(Self { clock, world: Mutex::new(world), changed, close_idle })
    }

    /// A panic while the lock was held was somebody's test failing; the state is still the truth about what arrived.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Exchange {
    shared: Arc<Shared>,
    generation: u64,
    n: u64,
    request: Request,
    body: Body,
    admission: Admission,
    plan: Option<Plan>,
    committed: bool,
    finished: bool,
    read: bool,
}

#[derive(Default)]
pub(crate) struct Body {
    digest: Sha256,
    kept: BytesMut,
    bytes: u64,
    trailers: Vec<(String, String)>,
    sha256: Option<String>,
    complete: bool,
}

impl Body {
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        self.digest.update(chunk);
        self.bytes += chunk.len() as u64;
        let room = BODY_MATCHED_BYTES_MAX.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    pub(crate) fn end(&mut self, trailers: Vec<(String, String)>) {
        self.trailers = trailers;
        self.complete = true;
    }
}

impl Exchange {
    /// The head has been read: it is logged, and the limits are asked.
    pub(crate) fn arrive(shared: &Arc<Shared>, mut request: Request) -> Self {
        let now = shared.clock.now();
        let mut world = shared.world();
        let document = Arc::clone(&world.document);
        request.set_credential(&document.credentials);
        let n = world.log.next_number();
        let admission = world.admit(&request, now);
        let refused = admission.refused.as_ref().map(|(index, _)| document.limits[*index].name.clone());
        let arrival = Arrival {
            n,
            at_ns: request.at_ns,
            wall_ms: shared.clock.wall_ms(request.at_ns),
            connection: request.connection,
            client_port: request.client_port,
            version: request.version,
            stream: request.stream,
            method: request.method.clone(),
            target: request.target.clone(),
            headers: request.loggable_headers(&document.credentials),
            trailers: Vec::new(),
            credential: request.credential.clone(),
            route: None,
            idempotency_key: None,
            body_bytes: 0,
            body_sha256: String::new(),
            body: None,
            body_complete: false,
            refused_by_limit: refused.is_some(),
            limit: refused,
            effect: None,
            status: None,
            head_written_at_ns: None,
            finished_at_ns: None,
            peer_closed_at_ns: None,
            fate: Fate::Underway,
        };
        world.log.add(arrival);
        let plan = world.plan_refusal(&admission);
        let generation = world.generation;
        let plans_at_head = plan.is_none() && world.plans_at_head(&request);
        drop(world);
        let shared = Arc::clone(shared);
        let body = Body::default();
        let (committed, finished, read) = (false, false, false);
        let mut exchange = Self { shared, generation, n, request, body, admission, plan, committed, finished, read };
        if plans_at_head {
            exchange.make_plan();
        }
        exchange
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The step, once it is chosen; before the body was read only if it may have to act before.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.plan.as_ref().map(|plan| &*plan.step)
    }

    pub(crate) fn fault_at(&self, at: At) -> Option<super::scenario::step::Fault> {
        self.step().and_then(|step| step.fault.clone()).filter(|fault| fault.at == at)
    }

    pub(crate) fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// No more of the body will be read before the answer: what there is goes to the log, and a plan is made.
    pub(crate) fn body_is_read(&mut self) {
        if self.read {
            return;
        }
        self.read = true;
        let sha256 = hex(&self.body.digest.clone().finalize());
        self.body.sha256 = Some(sha256);
        self.log_body();
        if self.plan.is_none() {
            self.make_plan();
        }
        self.in_world(|world, _| world.log.count_read());
        self.shared.changed.send_replace(());
    }

    /// What was read of the body after an early answer.
    pub(crate) fn log_body(&mut self) {
        let kept = Bytes::copy_from_slice(&self.body.kept[..self.body.kept.len().min(BODY_KEPT_BYTES_MAX)]);
        let sha256 = hex(&self.body.digest.clone().finalize());
        let (bytes, complete, trailers) = (self.body.bytes, self.body.complete, self.body.trailers.clone());
        self.log(|arrival| {
            arrival.body_bytes = bytes;
            arrival.body_sha256 = sha256;
            arrival.body_complete = complete;
            arrival.trailers = trailers;
            arrival.body = Some(kept);
        });
    }

    fn make_plan(&mut self) {
        let now = self.shared.clock.now();
        let (plan, planned) = {
            let mut world = self.shared.world();
            world.plan(&seen(&self.request, self.n, &self.body), now)
        };
        if let Some(planned) = planned {
            self.request.path_values = planned.path_values;
            self.log(|arrival| {
                arrival.route = Some(planned.route);
                arrival.idempotency_key = planned.key;
            });
        }
        self.plan = Some(plan);
    }

    /// The work is done: effects become true, and the answer is made.
    pub(crate) fn commit(&mut self) -> Arc<Rendered> {
        let now = self.shared.clock.now();
        let Some(plan) = self.plan.clone() else { return Arc::default() };
        let (answer, effect) = {
            let mut world = self.shared.world();
            if world.generation != self.generation {
                return Arc::default();
            }
            let views: &[(usize, LimitView)] = &self.admission.views;
            world.commit(&plan, &seen(&self.request, self.n, &self.body), views, now)
        };
        self.committed = true;
        self.log(|arrival| arrival.effect = effect);
        self.shared.changed.send_replace(());
        answer
    }

    /// Taken just before the first byte of the response head is written.
    pub(crate) fn head_written(&mut self, at_ns: u64, status: u16) {
        self.log(|arrival| {
            arrival.status = Some(status);
            arrival.head_written_at_ns = Some(at_ns);
        });
        self.shared.changed.send_replace(());
    }

    pub(crate) fn peer_closed(&mut self, stream_code: Option<u32>) {
        let at_ns = self.shared.clock.ns();
        let (n, connection) = (self.n, self.request.connection);
        let mut first = false;
        self.log(|arrival| {
            first = arrival.peer_closed_at_ns.is_none();
            arrival.peer_closed_at_ns = arrival.peer_closed_at_ns.or(Some(at_ns));
        });
        if first {
            peer_closed_line(&self.shared, at_ns, connection, Some(n), stream_code);
        }
    }

    /// The fate of an answer that went out whole.
    pub(crate) fn answered_fate(&self) -> Fate {
        match self.plan.as_ref().map(|plan| &plan.kind) {
            Some(Kind::NoRoute) => Fate::NoRoute,
            Some(Kind::Refused(_)) => Fate::RefusedByLimit,
            Some(Kind::Replay(_)) => Fate::Replayed,
            Some(Kind::KeyInProgress) => Fate::KeyInProgress,
            Some(Kind::KeyMismatch) => Fate::KeyMismatch,
            Some(Kind::KeyMissing) => Fate::KeyMissing,
            Some(Kind::Scripted) | None => Fate::Answered,
        }
    }

    pub(crate) fn finish(mut self, fate: Fate) {
        self.end(fate);
    }

    fn end(&mut self, fate: Fate) {
        if self.finished {
            return;
        }
        if !self.read {
            self.read = true;
            self.log_body();
            self.in_world(|world, _| world.log.count_read());
        }
        self.finished = true;
        let at_ns = self.shared.clock.ns();
        let slots: Vec<Slot> = std::mem::take(&mut self.admission.slots);
        let given_up = self.plan.take().filter(|_| !self.committed);
        self.in_world(|world, n| {
            world.give_back(slots);
            if let Some(plan) = given_up {
                world.give_up(&plan);
            }
            if let Some(arrival) = world.log.entry(n) {
                arrival.fate = fate;
                arrival.finished_at_ns = Some(at_ns);
            }
            world.log.write_arrival(n);
        });
        self.shared.changed.send_replace(());
    }

    fn log(&self, change: impl FnOnce(&mut Arrival)) {
        self.in_world(|world, n| world.log.entry(n).map(change));
    }

    /// Nothing from before a reset changes what is after it.
    fn in_world<T>(&self, change: impl FnOnce(&mut World, u64) -> T) {
        let mut world = self.shared.world();
        if world.generation == self.generation {
            change(&mut world, self.n);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.end(Fate::Abandoned);
    }
}

fn seen<'a>(request: &'a Request, arrival: u64, body: &'a Body) -> Seen<'a> {
    let body_sha256 = body.sha256.as_deref();
    Seen { request, arrival, body: body_sha256.map(|_| &body.kept[..]), body_sha256 }
}

/// The line that tells of a peer's leaving.
pub(crate) fn peer_closed_line(
    shared: &Shared,
    at_ns: u64,
    connection: u64,
    arrival: Option<u64>,
    stream_code: Option<u32>,
) {
    let line = serde_json::json!({
        "line": "peer_closed", "at_ns": at_ns, "connection": connection, "arrival": arrival, "stream_code": stream_code,
    });
    shared.world().log.write(&line.to_string());
    shared.changed.send_replace(());
}
