//! What a schedule's policy says: the one in force at the start, and those that are loaded later. From then on calls carry
//! its limits and rules; those that came before keep what they came with.

use std::collections::BTreeMap;
use std::sync::Arc;

use forbear_core::breaker::BreakerRule;
use forbear_core::ids::{Digest, PolicyMark, ProviderName};
use forbear_core::input::{HomeRule, Settings};
use forbear_core::pacer::{Rate, Unit};
use forbear_core::policy::{BackoffRule, ClassRule, Limits, PacingRule, TaskRule};

use super::chance::Rng;
use super::intents::PROVIDER;

const SHARE_BP: u64 = 9_500;

#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) settings: Arc<Settings>,
    pub(super) rules: [Arc<ClassRule>; 4],
    pub(super) limits: Limits,
    /// Slots of each scope below a home.
    pub(super) narrow_slots: Option<u32>,
    /// Requests in milliseconds, of every scope.
    pub(super) rate: Option<(u64, u64)>,
    /// What an event says that was decided under it.
    pub(super) name: PolicyMark,
}

impl Policy {
    /// `number` makes its digest.
    pub(super) fn draw(rng: &mut Rng, number: u8, few_slots: bool) -> Self {
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
            pacing: PacingRule {
                release_gap_ms: rng.pick(&[0, 200]),
                jitter_ms: rng.pick(&[0, 250, 2_000]),
                target_share_bp: SHARE_BP,
                arrival_spread_ms: 0,
            },
            breakers: NEVER,
            cancelled_at_once: 1_000,
            homes: BTreeMap::new(),
            digest: Digest([number; 32]),
        };
        let limits = Limits {
            max_delayed_requests: rng.pick(&[2, 5, 25]),
            max_concurrent_requests: if few_slots { rng.pick(&[1, 2]) } else { rng.pick(&[1, 2, 8]) },
            max_retries_per_minute: rng.pick(&[3, 10, 100]),
            ..Limits::default()
        };
        let name = PolicyMark::new(&settings.digest.to_string()[..16]);
        Self { settings: Arc::new(settings), rules, limits, narrow_slots: None, rate: None, name }
    }
}

/// No circuit ever opens.
const NEVER: BreakerRule = BreakerRule {
    equal_failures: 0,
    changed_failures: 0,
    unauthorized: 0,
    scope_failures: 0,
    open_seconds: 600,
    scope_open_seconds: 30,
};

impl Policy {
    /// Some schedules stop what fails again and again, soon and for a while that they last.
    pub(super) fn break_circuits(&mut self, rng: &mut Rng) {
        let mut settings = (*self.settings).clone();
        settings.breakers = BreakerRule {
            equal_failures: rng.pick(&[0, 1, 2, 3]),
            changed_failures: rng.pick(&[0, 2, 4]),
            unauthorized: rng.pick(&[0, 1, 3]),
            scope_failures: rng.pick(&[0, 2, 5]),
            open_seconds: rng.pick(&[5, 60, 600]),
            scope_open_seconds: rng.pick(&[2, 30]),
        };
        self.settings = Arc::new(settings);
    }

    pub(super) fn stop_at_once(&mut self, actions: usize) {
        let mut settings = (*self.settings).clone();
        settings.cancelled_at_once = actions;
        self.settings = Arc::new(settings);
    }

    /// Said last, when all else of it is: homes keep to it from when it is loaded.
    pub(super) fn rule_homes(&mut self) {
        let mut settings = (*self.settings).clone();
        let rule = HomeRule { limits: self.limits, rates: self.rates() };
        settings.homes = BTreeMap::from([(ProviderName::new(PROVIDER), rule)]);
        self.settings = Arc::new(settings);
    }

    pub(super) fn rates(&self) -> Arc<[Rate]> {
        let rate = |(amount, per_ms): &(u64, u64)| Rate::of_limit(Unit::Requests, *amount, *per_ms, None, SHARE_BP);
        self.rate.iter().map(rate).collect()
    }
}

fn rule(rng: &mut Rng, attempts: u64, statuses: &[u16]) -> Arc<ClassRule> {
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
}
