//! What one seed is like: its policy, its scopes and tasks, how stormy the provider is and how bad the machine.

use std::sync::Arc;

use forbear_core::event::{KeyOrigin, KeyUsed};
use forbear_core::ids::{ClassName, Digest, Key, ProviderName, Route, RunId, ScopeId, TaskId};
use forbear_core::input::Settings;
use forbear_core::policy::Limits;
use forbear_core::policy::{BackoffRule, ClassRule, PacingRule, Rank, TaskRule};

use super::rng::Rng;

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

/// One seed's world, drawn before its first step.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) settings: Arc<Settings>,
    pub(super) rules: [Arc<ClassRule>; 4],
    pub(super) limits: Limits,
    pub(super) retention_seconds: u64,
    pub(super) storm: Storm,
    /// How late the driver's timer fires, at most.
    pub(super) wake_late_ms: u64,
    /// How long a command may lie before the driver runs it, at most.
    pub(super) command_late_ms: u64,
    pub(super) flush_ms_max: u64,
    pub(super) span_ms: u64,
    /// The store fails so often in a thousand commits.
    pub(super) store_fails_permille: u64,
    pub(super) crashes: u64,
    pub(super) wall_steps: u64,
    pub(super) suspends: u64,
    pub(super) cancels: u64,
    pub(super) drains: bool,
    pub(super) fills: bool,
    pub(super) leaves_permille: u64,
    pub(super) snapshots_permille: u64,
}

/// The weights of a provider's moods, in the order of [`super::provider::Fate`].
#[derive(Debug, Clone)]
pub(super) struct Storm {
    pub(super) weights: [u64; 16],
    pub(super) retry_after_s_max: u64,
    pub(super) slow_permille: u64,
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

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let rule = |rng: &mut Rng, attempts: u64, statuses: &[u16]| {
            Arc::new(ClassRule {
                rank: None,
                max_attempts: u32::try_from(attempts).unwrap_or(1),
                max_wait_seconds: rng.pick(&[0, 5, 30, 90, 120]),
                retry_statuses: statuses.to_vec(),
                unknown_resends: 1,
                unsent_resends: 2,
                max_queue_seconds: rng.pick(&[1, 10, 60]),
                deadline_seconds: 900,
            })
        };
        let all = [408, 429, 500, 502, 503, 504];
        let attempts = rng.range(2, 5);
        // A policy may allow more attempts of an uncertain write: those that are proven undone.
        let uncertain = rng.pick(&[1, 1, 3]);
        let rules = [
            rule(rng, attempts, &all),
            rule(rng, attempts, &all),
            rule(rng, attempts, &all),
            if uncertain == 1 { rule(rng, 1, &[]) } else { rule(rng, uncertain, &all) },
        ];
        let settings = Settings {
            task: TaskRule { max_retries: rng.pick(&[2, 4, 10, 100]), max_wait_seconds: rng.pick(&[10, 60, 600]) },
            backoff: BackoffRule { base_ms: 1_000, cap_ms: 60_000, floor_ms: rng.pick(&[1_000, 1_000, 100]) },
            pacing: PacingRule { release_gap_ms: rng.pick(&[0, 200]), jitter_ms: rng.pick(&[0, 250, 2_000]) },
            digest: Digest([7; 32]),
        };
        let calm = rng.permille(300);
        let weights = if calm {
            [60, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
        } else {
            std::array::from_fn(|i| if i == 0 { rng.range(2, 20) } else { rng.pick(&[0, 1, 3, 6]) })
        };
        let rough = rng.permille(500);
        Self {
            settings: Arc::new(settings),
            rules,
            limits: Limits {
                max_delayed_requests: rng.pick(&[2, 5, 25]),
                max_concurrent_requests: rng.pick(&[1, 2, 8]),
                max_retries_per_minute: rng.pick(&[3, 10, 100]),
            },
            retention_seconds: rng.pick(&[30, 120, 600, 86_400]),
            storm: Storm {
                weights,
                retry_after_s_max: rng.pick(&[2, 10, 40, 150]),
                slow_permille: rng.pick(&[0, 50, 300]),
            },
            wake_late_ms: rng.pick(&[0, 0, 3, 40, 2_000]),
            command_late_ms: rng.pick(&[0, 0, 1, 20, 3_000]),
            flush_ms_max: rng.pick(&[1, 1, 20, 4_000]),
            span_ms: rng.pick(&[200, 5_000, 60_000]),
            store_fails_permille: if rough { rng.pick(&[0, 10, 60]) } else { 0 },
            crashes: if rough { rng.pick(&[0, 0, 1, 2, 3]) } else { 0 },
            wall_steps: rng.pick(&[0, 0, 0, 0, 1, 2]),
            suspends: rng.pick(&[0, 0, 0, 0, 1]),
            cancels: rng.pick(&[0, 0, 0, 1, 2]),
            drains: rng.permille(50),
            fills: rng.permille(50),
            leaves_permille: rng.pick(&[0, 50, 300]),
            snapshots_permille: rng.pick(&[0, 10, 100]),
        }
    }

    pub(super) fn intents(&self, rng: &mut Rng) -> Vec<Intent> {
        let n = rng.range(INTENTS_MIN, INTENTS_MAX);
        let scopes = rng.range(1, SCOPES_MAX as u64);
        let tasks = rng.range(1, TASKS_MAX as u64);
        (0..n).map(|id| self.intent(rng, id, scopes, tasks)).collect()
    }

    fn intent(&self, rng: &mut Rng, id: u64, scopes: u64, tasks: u64) -> Intent {
        let rank = rng.pick(&[
            Rank::Read,
            Rank::Inference,
            Rank::IdempotentWrite,
            Rank::IdempotentWrite,
            Rank::UncertainWrite,
        ]);
        let index = |n: u64| usize::try_from(n).unwrap_or(0);
        let streamed_once = rng.permille(50);
        let retention_seconds = rng.permille(800).then_some(self.retention_seconds);
        let key =
            |value: String, origin| KeyUsed { header: "k".into(), value: Key::new(&value), origin, retention_seconds };
        // A made key has its action's name; it is put in at each call.
        let key = match rng.range(0, 3) {
            0 | 1 => Some(key(format!("k{id}"), KeyOrigin::Agent)),
            2 => Some(key(String::new(), KeyOrigin::Made)),
            _ => None,
        };
        // Few digests, so that different intents of equal content meet.
        let content = rng.pick(&[u8::try_from(id % 200).unwrap_or(0), 250, 251]);
        Intent {
            scope: index(rng.range(0, scopes - 1)),
            task: index(rng.range(0, tasks - 1)),
            route: index(rng.range(0, 1)),
            rank,
            key: key.filter(|_| rank.writes()),
            reference: rng.permille(100).then(|| Arc::from(format!("ref{id}"))),
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
}

pub(super) fn rank_index(rank: Rank) -> usize {
    match rank {
        Rank::Read => 0,
        Rank::Inference => 1,
        Rank::IdempotentWrite => 2,
        Rank::UncertainWrite => 3,
    }
}
