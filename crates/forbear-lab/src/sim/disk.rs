//! What the model store does for a process: group commits that are slow, acknowledged late, or fail, with their word lost
//! or their events; and a fence, behind which nothing is written.

use forbear_core::event::{Event, Fact};
use forbear_core::ids::Seq;
use forbear_core::input::Input;

use super::chance::Site;
use super::coverage::Seen;
use super::ledger::Reading;
use super::trace::fact;
use super::world::{Happening, World};

const FAST_FLUSH_MS: u64 = 1;
const BEHIND_FLUSH_MS: u64 = 10;
const SLOW_FLUSH_MS: u64 = 1_000;

impl World<'_> {
    pub(super) fn append(&mut self, by: u32, event: Event, behind: bool) {
        self.note(|w| {
            let who = event.action.map_or(String::new(), |a| format!(" a{}", a.0));
            let behind = if behind { " behind" } else { "" };
            format!("  {}> append {}{behind}{who} {}", w.tag(by), event.seq.0, fact(&event.fact))
        });
        self.check_decided(by, &event);
        self.check_event(by, &event);
        if matches!(event.fact, Fact::CallJoined { .. }) {
            self.cover(Seen::Joined);
        }
        let now = self.now;
        let Some(node) = self.node_mut(by) else { return };
        node.disk.appended = event.seq.0;
        let (idle, failed, fenced) = (node.disk.committing.is_none(), node.disk.failed, node.fenced_at.is_some());
        let seq = event.seq.0;
        if !failed && !fenced {
            self.store.append(event, now);
        }
        if idle && !failed {
            self.commit_soon(by, behind);
        }
        if !fenced && self.plan.snapshots_permille > 0 {
            self.snapshots(by, seq);
        }
    }

    fn snapshots(&mut self, by: u32, seq: u64) {
        let due = self.chance.at(Site::Append, u64::from(by), seq).permille(self.plan.snapshots_permille);
        let at = self.store.journal.len() as u64;
        let ready = |n: &&super::node::Node| n.core.not_ready().is_none() && n.core.last_seq().0 == at;
        if due && let Some(state) = self.node(by).filter(ready).map(|n| n.core.durable_state().to_snapshot()) {
            self.store.snapshot(state);
        }
    }

    fn commit_soon(&mut self, by: u32, behind: bool) {
        let flush_ms_max = self.plan.flush_ms_max.max(FAST_FLUSH_MS);
        let Some(node) = self.node_mut(by) else { return };
        let up_to = super::plan::index(node.disk.appended);
        node.disk.committing = Some(up_to);
        let flush = self.chance.at(Site::Commit, u64::from(by), up_to as u64).range(0, flush_ms_max);
        if flush >= SLOW_FLUSH_MS {
            self.cover(Seen::SlowFlush);
        }
        let in_ms = flush + if behind { BEHIND_FLUSH_MS } else { 0 };
        self.later(in_ms, Happening::Flushed { by, up_to });
    }

    pub(super) fn flushed(&mut self, by: u32, up_to: usize) {
        let fails_permille = self.plan.store_fails_permille;
        let Some(node) = self.node_mut(by).filter(|n| n.disk.committing == Some(up_to)) else { return };
        node.disk.committing = None;
        let (fenced_at, appended) = (node.fenced_at, super::plan::index(node.disk.appended));
        let mut rng = self.chance.at(Site::Flush, u64::from(by), up_to as u64);
        let in_ms = rng.pick(&[0, 0, 0, 5, 500]);
        match fenced_at {
            Some(fence) if up_to > fence => {
                self.cover(Seen::FencedAppend);
                return self.append_fails(by);
            }
            Some(_) => {}
            None if rng.permille(fails_permille) => return self.append_fails(by),
            None => self.store.advance(up_to),
        }
        if in_ms >= 500 {
            self.cover(Seen::LateAcknowledgement);
        }
        self.later(in_ms, Happening::Acknowledged { by, up_to });
        if appended > up_to {
            self.commit_soon(by, false);
        }
    }

    /// Maybe it is all there and only the word is lost; maybe none of it is.
    fn append_fails(&mut self, by: u32) {
        let nth = self.count(Site::Fails);
        let mut rng = self.chance.at(Site::Fails, nth, 0);
        let fenced = self.node(by).is_some_and(|n| n.fenced_at.is_some());
        if !fenced {
            let lost = self.store.lose_suffix(&mut rng);
            self.cover(Seen::AppendFailed);
            if lost == 0 {
                self.cover(Seen::AcknowledgementLost);
            }
            self.note(|w| format!("{}append fails, {lost} events lost", w.tag(by)));
        }
        if let Some(node) = self.node_mut(by) {
            // What is appended until the core is told is lost as well.
            node.disk.failed = true;
        }
        self.tally.lossy = true;
        let in_ms = rng.pick(&[0, 0, 1, 300]);
        self.later(in_ms, Happening::FailureIsTold { by });
    }

    pub(super) fn failure_is_told(&mut self, by: u32) {
        if self.node(by).is_none() {
            return;
        }
        self.note(|w| format!("{}hears of the failed append", w.tag(by)));
        self.tell(by, Input::AppendFailed { why: "disk full".into() });
        let nth = self.count(Site::Told);
        let in_ms = self.chance.at(Site::Told, nth, 0).pick(&[10, 1_000, 20_000]);
        self.later(in_ms, Happening::Thaws { by });
    }

    pub(super) fn acknowledged(&mut self, by: u32, up_to: usize) {
        self.tell(by, Input::Durable { seq: Seq(up_to as u64) });
    }

    /// A fenced process cannot open the journal again.
    pub(super) fn thaws(&mut self, by: u32) {
        let nth = self.count(Site::Thaw);
        let now = self.now;
        let durable = self.store.durable as u64;
        let Some(node) = self.node_mut(by).filter(|n| n.fenced_at.is_none()) else { return };
        node.disk.failed = false;
        node.disk.appended = durable;
        self.cover(Seen::Thaw);
        self.note(|w| format!("{}thaw", w.tag(by)));
        self.read_journal(by, Reading::Again);
        let (snapshot, from) = self.store.read_back(&mut self.chance.at(Site::Thaw, nth, 0));
        let Some(node) = self.owner.as_mut().filter(|n| n.number == by) else { return };
        let out = node.core.thaw(now, snapshot, self.store.tail(from));
        self.tally.thawing = true;
        self.take(by, out);
        self.tally.thawing = false;
    }
}
