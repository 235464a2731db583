//! What the agents of a schedule want: logical effects, each asked for by one call or several.

use std::sync::Arc;

use forbear_core::event::{KeyOrigin, KeyUsed};
use forbear_core::ids::{ClassName, Digest, Key, ProviderName, Route, RunId, ScopeId, TaskId, TenantId};
use forbear_core::policy::{Priority, Rank};

use super::chance::Rng;
use super::plan::index;

/// Homes.
/// Whose scopes they all are.
pub(super) const PROVIDER: &str = "p";
const HOMES_MAX: usize = 3;
/// Below each home: two models, and a family of routes that cuts across them.
const NARROW: [&str; 3] = ["family", "m0", "m1"];
pub(super) const SCOPES_MAX: usize = HOMES_MAX * (1 + NARROW.len());
/// A home and what may be below it, for one call.
pub(super) const DEPTH_MAX: usize = 3;
pub(super) const TASKS_MAX: usize = 4;
const INTENTS_MIN: u64 = 4;
const INTENTS_MAX: u64 = 20;

/// Names that every seed shares, made once.
pub(super) struct Fixtures {
    pub(super) provider: ProviderName,
    pub(super) scopes: Vec<ScopeId>,
    /// Of each home, the credentials that are one account there.
    pub(super) tenants: Vec<[TenantId; 2]>,
    pub(super) tasks: Vec<TaskId>,
    pub(super) run: RunId,
    pub(super) routes: Vec<Route>,
    pub(super) classes: [ClassName; 4],
}

impl Default for Fixtures {
    fn default() -> Self {
        Self {
            provider: ProviderName::new(PROVIDER),
            scopes: scopes(),
            tenants: (0..HOMES_MAX).map(|n| ["one", "two"].map(|key| TenantId::new(&format!("s{n}-{key}")))).collect(),
            tasks: (0..TASKS_MAX).map(|n| TaskId::new(&format!("t{n}"))).collect(),
            run: RunId::new("r"),
            routes: vec![Route::new("POST /v1/a"), Route::new("POST /v1/b")],
            classes: ["read", "inference", "idempotent_write", "uncertain_write"].map(ClassName::new),
        }
    }
}

/// The homes, then what is below each.
fn scopes() -> Vec<ScopeId> {
    let homes = (0..HOMES_MAX).map(|n| format!("p/s{n}"));
    let below = homes.clone().flat_map(|home| NARROW.map(|name| format!("{home}/{name}")));
    homes.chain(below).map(|name| ScopeId::new(&name)).collect()
}

/// One logical effect that an agent wants.
#[derive(Debug, Clone)]
pub(super) struct Intent {
    /// Its home.
    pub(super) scope: usize,
    /// What is below that, broad to narrow.
    pub(super) narrow: Vec<usize>,
    pub(super) tenant: Option<usize>,
    pub(super) priority: Priority,
    pub(super) task: usize,
    pub(super) route: usize,
    pub(super) rank: Rank,
    pub(super) key: Option<KeyUsed>,
    pub(super) reference: Option<Arc<str>>,
    pub(super) digest: Option<Digest>,
    /// What its client calls it over all its sends.
    pub(super) invocation: Option<Digest>,
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
    /// All scopes that it needs, broad to narrow.
    pub(super) fn scopes(&self) -> [Option<usize>; DEPTH_MAX] {
        let mut all = std::iter::once(self.scope).chain(self.narrow.iter().copied());
        std::array::from_fn(|_| all.next())
    }

    pub(super) fn needs(&self, scope: usize) -> bool {
        self.scopes().contains(&Some(scope))
    }

    /// It has a name that its agent gives again: a key of its own or a reference.
    pub(super) fn is_named(&self) -> bool {
        self.reference.is_some() || self.key.as_ref().is_some_and(|k| k.origin != KeyOrigin::Made)
    }

    /// Its client gives it an id, by which it is known whatever came of the call before.
    pub(super) fn is_marked_exactly(&self) -> bool {
        self.invocation.is_some() && self.digest.is_some() && self.rank.writes() && !self.is_named()
    }
}

/// `crowded`: in one scope, for few tasks.
pub(super) fn draw(rng: &mut Rng, retention_seconds: u64, crowded: bool) -> Vec<Intent> {
    let n = rng.range(INTENTS_MIN, INTENTS_MAX);
    let scopes = if crowded { 1 } else { rng.range(1, HOMES_MAX as u64) };
    let tasks = rng.range(1, if crowded { 2 } else { TASKS_MAX as u64 });
    (0..n).map(|id| one(rng, id, retention_seconds, scopes, tasks)).collect()
}

/// Gives some of them an id that their client sends along.
pub(super) fn call(rng: &mut Rng, intents: &mut [Intent]) {
    for (n, intent) in (0..).zip(intents) {
        intent.invocation = rng.permille(300).then_some(Digest([n; 32]));
    }
}

/// Gives some of them scopes below their home, tenants and priorities.
pub(super) fn cut(rng: &mut Rng, intents: &mut [Intent]) {
    for intent in intents {
        let below = |n: usize| HOMES_MAX + intent.scope * NARROW.len() + n;
        intent.narrow = match rng.range(0, 6) {
            0 | 1 => Vec::new(),
            2 => vec![below(0)],
            3 => vec![below(0), below(1)],
            n => vec![below(if n == 4 { 1 } else { 2 })],
        };
        intent.tenant = rng.pick(&[None, Some(0), Some(1)]);
        intent.priority = rng.pick(&[Priority::Normal, Priority::Normal, Priority::Interactive, Priority::Background]);
    }
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
        narrow: Vec::new(),
        tenant: None,
        priority: Priority::Normal,
        task: index(rng.range(0, tasks - 1)),
        route: index(rng.range(0, 1)),
        rank,
        key: key.filter(|_| rank.writes()),
        reference: rng.permille(100 + 900 * u64::from(is_derived)).then(|| Arc::from(format!("ref{id}"))),
        digest: (!streamed_once).then_some(Digest([content; 32])),
        invocation: None,
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
