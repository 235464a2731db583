//! The model provider for those who drive something else than the bare core: the same moods, told without the core's
//! words, so that a real driver can be made to meet them over a connection.

use forbear_core::classify::Kind;
use forbear_core::effect::Evidence;
use forbear_core::time::Now;

use super::chance::Rng;
use super::plan::Storm;
use super::provider::{Arrival, Provider};

/// Who arrives.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    pub scope: usize,
    pub key: Option<u128>,
    /// How long the key is honoured; none where it is not.
    pub retention_ms: Option<u64>,
}

/// What the provider does with one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mood {
    pub answer: Said,
    /// The effect happens so much later, if it happens.
    pub effect_in_ms: Option<u64>,
    pub after_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Head {
        status: u16,
        kind: Kind,
        before_work: bool,
        wait_ms: Option<u64>,
    },
    /// The connection ends without a word.
    Lost,
    /// Proven unprocessed, where the protocol can say so.
    Refused,
    /// Nothing ever comes.
    Silence,
}

/// One provider, and how stormy it is.
pub struct Moods {
    rng: Rng,
    storm: Storm,
    provider: Provider,
}

impl Moods {
    /// `retry_after_s_max`: the longest wait that a 429 asks for.
    #[must_use]
    pub fn new(seed: u64, retry_after_s_max: u64) -> Self {
        let mut rng = Rng::new(seed);
        let weights = if rng.permille(300) {
            [60, 4, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
        } else {
            std::array::from_fn(|i| if i == 0 { rng.range(2, 20) } else { rng.pick(&[0, 1, 3, 6]) })
        };
        let storm = Storm { weights, retry_after_s_max, slow_permille: rng.pick(&[0, 50, 300]) };
        Self { rng, storm, provider: Provider::default() }
    }

    pub fn arrive(&mut self, now: Now, who: Caller) -> Mood {
        let who = Arrival {
            scopes: [Some(who.scope), None, None],
            key: who.key,
            retention_ms: who.retention_ms,
            content: None,
        };
        let reply = self.provider.arrive(&mut self.rng, now, &self.storm, who);
        let answer = match reply.answer {
            _ if reply.silent => Said::Silence,
            None if reply.evidence == Evidence::Refused => Said::Refused,
            None => Said::Lost,
            Some(head) => {
                let c = head.classification;
                let wait_ms = c.boundary.map(|b| b.wait_ms);
                Said::Head { status: head.status, kind: c.kind, before_work: c.before_work, wait_ms }
            }
        };
        Mood { answer, effect_in_ms: reply.effect_in_ms, after_ms: reply.after_ms }
    }

    /// A late effect has happened.
    pub fn commit(&mut self, key: Option<u128>) {
        self.provider.commit(key);
    }
}

/// The simulator's chance, for plans that are drawn elsewhere.
#[derive(Debug, Clone)]
pub struct Dice(Rng);

impl Dice {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub const fn seed(&mut self) -> u64 {
        self.0.next()
    }

    /// In `low..=high`.
    pub const fn range(&mut self, low: u64, high: u64) -> u64 {
        self.0.range(low, high)
    }

    pub const fn permille(&mut self, of_a_thousand: u64) -> bool {
        self.0.permille(of_a_thousand)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0.pick(from)
    }

    /// An index in proportion to its weight.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        self.0.weighted(weights)
    }
}
