//! What the agents of a schedule want: logical effects, each asked for by one call or several.

use std::sync::Arc;

use forbear_core::event::{KeyOrigin, KeyUsed};
use forbear_core::ids::{ClassName, Digest, Key, ProviderName, Route, RunId, ScopeId, TaskId};
use forbear_core::policy::Rank;

use super::chance::Rng;
use super::plan::index;

pub(super) const SCOPES_MAX: usize = 3;
pub(super) const TASKS_MAX: usize = 4;
const INTENTS_MIN: u64 = 4;
const INTENTS_MAX: u64 = 20;

/// Names that every seed shares, made once.
pub(super) struct Fixtures {
    pub(super) provider: ProviderName,
    pub(super) scopes: Vec<ScopeId>,
    pub(super) tasks: Vec<TaskId>,
    pub(super) run: RunId,
    pub(super) routes: Vec<Route>,
    pub(super) classes: [ClassName; 4],
}

impl Default for Fixtures {
    fn default() -> Self {
        Self {
            provider: ProviderName::new("p"),
            scopes: (0..SCOPES_MAX).map(|n| ScopeId::new(&format!("p/s{n}"))).collect(),
            tasks: (0..TASKS_MAX).map(|n| TaskId::new(&format!("t{n}"))).collect(),
            run: RunId::new("r"),
            routes: vec![Route::new("POST /v1/a"), Route::new("POST /v1/b")],
            classes: ["read", "inference", "idempotent_write", "uncertain_write"].map(ClassName::new),
        }
    }
}

/// One logical effect that an agent wants.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    pub(super) scope: usize,
    pub(super) task: usize,
    pub(super) route: usize,
    pub(super) rank: Rank,
    pub(super) key: Option<KeyUsed>,
    pub(super) reference: Option<Arc<str>>,
    pub(super) digest: Option<Digest>,
    pub(super) repeatable: bool,
    pub(super) replayable: bool,
    pub(super) body_pending: bool,
    pub(super) journal_before: bool,
    pub(super) deadline_ms: u64,
    /// Calls made for it so far.
    pub(super) calls: u32,
    /// Effects at the provider.
    pub(super) effects: u32,
    /// The agent made a call that Forbear could not know to be a repeat: effects are counted by call then.
    pub(super) loose: bool,
}

impl Intent {
    /// It has a name that its agent gives again: a key of its own or a reference.
    pub(super) fn is_named(&self) -> bool {
        self.reference.is_some() || self.key.as_ref().is_some_and(|k| k.origin != KeyOrigin::Made)
    }
}

/// `crowded`: in one scope, for few tasks.
pub(super) fn draw(rng: &mut Rng, retention_seconds: u64, crowded: bool) -> Vec<Intent> {
    let n = rng.range(INTENTS_MIN, INTENTS_MAX);
    let scopes = if crowded { 1 } else { rng.range(1, SCOPES_MAX as u64) };
    let tasks = rng.range(1, if crowded { 2 } else { TASKS_MAX as u64 });
    (0..n).map(|id| one(rng, id, retention_seconds, scopes, tasks)).collect()
}

fn one(rng: &mut Rng, id: u64, retention_seconds: u64, scopes: u64, tasks: u64) -> Intent {
    let rank =
        rng.pick(&[Rank::Read, Rank::Inference, Rank::IdempotentWrite, Rank::IdempotentWrite, Rank::UncertainWrite]);
    let streamed_once = rng.permille(50);
    let retention_seconds = rng.permille(800).then_some(retention_seconds);
    let key =
        |value: String, origin| KeyUsed { header: "k".into(), value: Key::new(&value), origin, retention_seconds };
    // A made key has its action's name; it is put in at each call.
    let key = match rng.range(0, 7) {
        0..=3 => Some(key(format!("k{id}"), KeyOrigin::Agent)),
        4 | 5 => Some(key(String::new(), KeyOrigin::Made)),
        6 => Some(key(format!("d{id}"), KeyOrigin::Derived)),
        _ => None,
    };
    let is_derived = key.as_ref().is_some_and(|k| k.origin == KeyOrigin::Derived);
    // Few digests, so that different intents of equal content meet.
    let content = rng.pick(&[u8::try_from(id % 200).unwrap_or(0), 250, 251]);
    Intent {
        scope: index(rng.range(0, scopes - 1)),
        task: index(rng.range(0, tasks - 1)),
        route: index(rng.range(0, 1)),
        rank,
        key: key.filter(|_| rank.writes()),
        reference: rng.permille(100 + 900 * u64::from(is_derived)).then(|| Arc::from(format!("ref{id}"))),
        digest: (!streamed_once).then_some(Digest([content; 32])),
        repeatable: rank == Rank::IdempotentWrite && rng.permille(30),
        replayable: !streamed_once,
        body_pending: rng.permille(50),
        journal_before: rng.permille(100),
        deadline_ms: rng.pick(&[3_000, 30_000, 300_000, 900_000]),
        calls: 0,
        effects: 0,
        loose: false,
    }
}

pub(super) fn rank_index(rank: Rank) -> usize {
    match rank {
        Rank::Read => 0,
        Rank::Inference => 1,
        Rank::IdempotentWrite => 2,
        Rank::UncertainWrite => 3,
    }
}
