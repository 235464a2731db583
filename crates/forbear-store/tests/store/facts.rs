//! Events as the core makes them, and a store under test that tells what was reported durable.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{
    ActionFinished, ActionRequested, ActionResult, EVENT_VERSION, Event, Fact, KeyOrigin, KeyUsed, Outcome, Straight,
};
use forbear_core::ids::{ActionId, AttemptNo, Digest, Key, ProviderName, Route, RunId, ScopeId, Seq, TaskId};
use forbear_core::policy::Rank;
use forbear_core::time::Wall;
use forbear_store::{Batch, Options, Progress, Store};

/// 2026-03-01T00:00:00Z.
pub(crate) const MARCH_MS: i64 = 1_772_323_200_000;
pub(crate) const DAY_MS: i64 = 86_400_000;
/// Longer than anything here may take on a busy machine; nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// An id as the driver makes it: its time, then something that looks random.
pub(crate) fn id(at_ms: i64, n: u64) -> ActionId {
    let noise = u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 16 | u128::from(n & 0xffff);
    ActionId(u128::from(at_ms.cast_unsigned()) << 80 | noise)
}

pub(crate) fn event(seq: u64, at_ms: i64, action: Option<ActionId>, prev: Option<u64>, fact: Fact) -> Event {
    let policy = "3f2a9c1d5e7b4a60".to_owned();
    Event { v: EVENT_VERSION, seq: Seq(seq), at: Wall(at_ms), action, prev: prev.map(Seq), policy: policy.into(), fact }
}

pub(crate) fn finished(outcome: Outcome, effect: Effect) -> ActionFinished {
    ActionFinished {
        outcome,
        effect,
        attempts: 1,
        waited_ms: 0,
        status: Some(200),
        reason: None,
        waited_for: None,
        straight: None,
        agent_left: false,
        refused: None,
    }
}

/// A read that went straight: one event.
pub(crate) fn straight_read(seq: u64, at_ms: i64) -> Event {
    let straight = Straight {
        task: TaskId::new(&format!("research-{}", seq / 40)),
        run: RunId::new(&format!("run-{:010}", seq / 20)),
        scope: ScopeId::new("openai/3f2a9c1d5e7b"),
        tenant: None,
        route: Route::new("GET /v1/models/{id}"),
        class: "read".into(),
    };
    let finished =
        ActionFinished { waited_for: None, straight: Some(straight), ..finished(Outcome::Succeeded, Effect::Applied) };
    event(seq, at_ms, Some(id(at_ms, seq)), None, Fact::ActionFinished(Box::new(finished)))
}

pub(crate) fn requested(seq: u64, at_ms: i64, action: ActionId) -> Event {
    let wanted = ActionRequested {
        task: TaskId::new("invoices-march"),
        run: RunId::new("run-0000000001"),
        provider: ProviderName::new("stripe"),
        scope: ScopeId::new("stripe/77aa01b2c3d4"),
        tenant: None,
        route: Route::new("POST /v1/charges"),
        class: "idempotent_write".into(),
        rank: Rank::IdempotentWrite,
        content_digest: Some(Digest([0x5a; 32])),
        content_bytes: 412,
        key: Some(KeyUsed {
            header: "Idempotency-Key".into(),
            value: Key::new("inv-2026-03-000017"),
            origin: KeyOrigin::Agent,
            retention_seconds: Some(86_400),
        }),
        deadline: Wall(at_ms + 900_000),
        goal: Some("charge the invoices of march".into()),
        reference: None,
        reference_key: None,
        invocation: None,
    };
    event(seq, at_ms, Some(action), None, Fact::ActionRequested(Box::new(wanted)))
}

/// A write from its intent to its end: four events from `seq` on.
pub(crate) fn whole_write(seq: u64, at_ms: i64) -> [Event; 4] {
    let action = id(at_ms, seq);
    let attempt = AttemptNo(1);
    let result = ActionResult {
        attempt,
        evidence: Evidence::Answered,
        effect: Effect::Applied,
        status: Some(200),
        classification: None,
        transport: None,
    };
    [
        requested(seq, at_ms, action),
        event(seq + 1, at_ms, Some(action), Some(seq), Fact::ActionSent { attempt }),
        event(seq + 2, at_ms + 80, Some(action), Some(seq + 1), Fact::ActionResult(Box::new(result))),
        event(
            seq + 3,
            at_ms + 80,
            Some(action),
            Some(seq + 2),
            Fact::ActionFinished(Box::new(finished(Outcome::Succeeded, Effect::Applied))),
        ),
    ]
}

pub(crate) fn batch(events: impl IntoIterator<Item = Event>) -> Batch {
    Batch { events: events.into_iter().collect(), ..Batch::default() }
}

/// A store, what it began from, and what it reports.
pub(crate) struct Under {
    pub(crate) store: Store,
    pub(crate) snapshot: Option<forbear_store::Snapshot>,
    pub(crate) tail: Vec<Event>,
    pub(crate) last_seq: u64,
    pub(crate) reports: Receiver<Progress>,
}

impl Under {
    pub(crate) fn open(dir: &Path) -> Self {
        Self::open_with(Options::new(dir))
    }

    pub(crate) fn open_with(options: Options) -> Self {
        let (tell, reports) = channel();
        let opened = Store::open(options, Box::new(move |p| drop(tell.send(p)))).unwrap();
        let tail = opened.tail.collect::<Result<_, _>>().unwrap();
        let (store, snapshot, last_seq) = (opened.store, opened.snapshot, opened.last_seq.0);
        Self { store, snapshot, tail, last_seq, reports }
    }

    pub(crate) fn report(&self) -> Progress {
        self.reports.recv_timeout(PATIENCE).expect("a report")
    }

    /// Waits until everything up to `seq` is durable.
    pub(crate) fn durable(&self, wanted: u64) {
        loop {
            match self.report() {
                Progress::Durable { seq, .. } if seq.0 >= wanted => return,
                Progress::Durable { .. } => {}
                Progress::Failed { error, .. } => panic!("{error}"),
            }
        }
    }

    pub(crate) fn append(&self, events: impl IntoIterator<Item = Event>) {
        self.store.append(batch(events)).unwrap();
    }
}

/// What an open that must fail says.
pub(crate) fn refusal(options: Options) -> forbear_store::StoreError {
    match Store::open(options, Box::new(drop)) {
        Ok(opened) => opened.tail.collect::<Result<Vec<_>, _>>().expect_err("a refusal"),
        Err(error) => error,
    }
}
