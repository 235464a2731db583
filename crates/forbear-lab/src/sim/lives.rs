//! How processes begin and end: a crash and the start after it, and a second process that takes the journal over while the
//! first goes on.

use forbear_core::Coordinator;
use forbear_core::input::Input;

use super::chance::Site;
use super::coverage::Seen;
use super::ledger::{Ledger, Reading};
use super::node::Node;
use super::world::{Happening, World};

impl World<'_> {
    pub(super) fn crashes(&mut self) {
        let Some(node) = self.owner.take() else { return };
        let nth = self.count(Site::Crash);
        let mut rng = self.chance.at(Site::Crash, nth, 0);
        let lost = self.store.lose_suffix(&mut rng);
        self.cover(Seen::Crash);
        if lost > 0 {
            self.cover(Seen::EventsLost);
        }
        if self.calls.iter().any(|c| c.home == node.number && c.on_wire && c.effects > 0 && !c.relaying) {
            self.cover(Seen::CrashAfterEffect);
        }
        self.note(|w| format!("{}crash, {lost} events lost", w.tag(node.number)));
        self.tally.lossy = true;
        self.connections_lost(node.number);
        let in_ms = rng.range(1, 20_000);
        self.later(in_ms, Happening::Starts);
    }

    pub(super) fn starts(&mut self) {
        let nth = self.count(Site::Start);
        let mut rng = self.chance.at(Site::Start, nth, 0);
        let (snapshot, from) = self.store.read_back(&mut rng);
        let seed = rng.next();
        self.processes += 1;
        let number = self.processes;
        self.note(|w| format!("{}start, from event {} of {}", w.tag(number), from + 1, w.store.durable));
        let settings = self.plan.policies[self.policy].settings.clone();
        let (core, out) = Coordinator::recover(settings, seed, self.now, snapshot, self.store.tail(from));
        self.owner = Some(Node::new(number, core, Ledger::default(), self.store.durable));
        self.read_journal(number, Reading::Afresh);
        self.take(number, out);
        self.check_recovered();
    }

    /// Another process opens the journal: from here on nothing that the first appends is written.
    pub(super) fn takes_over(&mut self) {
        if self.old.is_some() {
            return;
        }
        let Some(mut old) = self.owner.take() else { return };
        let nth = self.count(Site::Takeover);
        let mut rng = self.chance.at(Site::Takeover, nth, 0);
        let lost = self.store.lose_suffix(&mut rng);
        old.fenced_at = Some(self.store.durable);
        self.cover(Seen::Takeover);
        self.note(|w| format!("p{} is fenced after event {}, {lost} events lost", old.number, w.store.durable));
        self.old = Some(old);
        self.tally.lossy = true;
        self.later(rng.pick(&[1_000, 0, 20_000, 100_000]), Happening::OldEnds);
        self.starts();
    }

    pub(super) fn drains(&mut self) {
        let Some(by) = self.owner.as_ref().map(|n| n.number) else { return };
        self.cover(Seen::Drain);
        self.note(|_| "drain".to_owned());
        self.tell(by, Input::Drain);
        let in_ms = self.chance.at(Site::Drain, u64::from(by), 0).pick(&[29_000, 7_000, 100, 0]);
        self.later(in_ms, Happening::DrainOver { by });
    }

    /// The patience with what is on the wire is over.
    pub(super) fn drain_over(&mut self, by: u32) {
        let Some(node) = self.node(by) else { return };
        let live = node.core.live_actions();
        self.cover(Seen::DrainOver);
        self.note(|_| "the drain is over".to_owned());
        self.tell(by, Input::DrainOver);
        let Some(node) = self.node_mut(by) else { return };
        node.is_drained = true;
        if node.core.live_actions() < live {
            self.cover(Seen::DrainCut);
        }
    }

    pub(super) fn old_ends(&mut self) {
        let Some(old) = self.old.take() else { return };
        self.note(|_| format!("p{} ends", old.number));
        self.connections_lost(old.number);
    }
}
