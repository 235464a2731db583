//! The model store: one order, group commit, durable up to a point. A crash or a failed flush may lose any suffix that
//! was not acknowledged, and may as well keep what was not acknowledged.

use std::collections::BTreeMap;

use forbear_core::durable::Durable;
use forbear_core::event::{Event, Fact};
use forbear_core::ids::ActionId;
use forbear_core::time::Now;

use super::chance::Rng;
use super::plan::index;

pub(super) struct Entry {
    pub(super) event: Event,
    pub(super) at: Now,
}

/// What the disk knows of an action.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Proof {
    pub(super) requested: bool,
    /// The last attempt whose send was announced, and the last whose result is there.
    pub(super) sent: u32,
    pub(super) result: u32,
    pub(super) ended: bool,
}

#[derive(Default)]
pub(super) struct Store {
    pub(super) journal: Vec<Entry>,
    /// How many of them are on the disk.
    pub(super) durable: usize,
    proofs: BTreeMap<ActionId, Proof>,
    snapshots: Vec<Durable>,
}

impl Store {
    pub(super) fn append(&mut self, event: Event, at: Now) {
        self.journal.push(Entry { event, at });
    }

    pub(super) fn advance(&mut self, up_to: usize) {
        for entry in &self.journal[self.durable..up_to] {
            let Some(action) = entry.event.action else { continue };
            let proof = self.proofs.entry(action).or_default();
            match &entry.event.fact {
                Fact::ActionRequested(_) => proof.requested = true,
                Fact::ActionSent { attempt } => proof.sent = attempt.0,
                Fact::ActionResult(result) => proof.result = result.attempt.0,
                Fact::ActionFinished(finished) => proof.ended = finished.outcome.is_terminal(),
                _ => {}
            }
        }
        self.durable = up_to;
    }

    pub(super) fn proof(&self, action: ActionId) -> Proof {
        self.proofs.get(&action).copied().unwrap_or_default()
    }

    pub(super) fn snapshot(&mut self, state: Durable) {
        self.snapshots.push(state);
    }

    /// The process or the disk is gone: of what was not acknowledged some prefix survives. Says how many do not.
    pub(super) fn lose_suffix(&mut self, rng: &mut Rng) -> usize {
        let waiting = self.journal.len() - self.durable;
        let lost = index(rng.range(0, waiting as u64));
        self.advance(self.durable + waiting - lost);
        self.journal.truncate(self.durable);
        lost
    }

    /// What a start would read: the newest durable snapshot, and events from at or before its end.
    pub(super) fn read_back(&mut self, rng: &mut Rng) -> (Option<Durable>, usize) {
        let end = self.durable as u64;
        self.snapshots.retain(|s| s.seq.0 <= end);
        let Some(snapshot) = self.snapshots.last() else { return (None, 0) };
        let from = rng.range(0, snapshot.seq.0);
        (Some(snapshot.clone()), index(from))
    }

    pub(super) fn tail(&self, from: usize) -> impl Iterator<Item = &Event> {
        self.journal[from..self.durable].iter().map(|e| &e.event)
    }
}
