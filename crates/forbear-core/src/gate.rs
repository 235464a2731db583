//! The write-ahead rule. An event is applied at its decision; what depends on it is held here, by sequence number,
//! until that number is durable. Driver and simulator share this code.
//!
//! After a failed append the gate is frozen: nothing new that must be durable is let in. It thaws only when the state
//! was rebuilt from the journal. What was decided meanwhile is kept, up to a bound, and written then.

use std::collections::{BTreeMap, VecDeque};

use crate::command::{Command, Commands};
use crate::event::Fact;
use crate::ids::{ActionId, Seq};
use crate::time::Wall;

/// Facts decided while frozen that are kept for the thaw; more are counted into a `log_gap`.
pub const KEPT_FACTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub struct Gate {
    last: u64,
    durable: u64,
    held: BTreeMap<u64, Vec<Command>>,
    frozen: Option<String>,
    /// Facts that were appended and are not durable yet, those that must not be lost with a failed append.
    pending: VecDeque<(u64, Kept)>,
    kept: Vec<Kept>,
    lost: u64,
}

/// A fact that could not be written when it was decided.
#[derive(Debug)]
pub struct Kept {
    pub at: Wall,
    pub action: Option<ActionId>,
    pub fact: Fact,
}

impl Gate {
    #[must_use]
    pub fn resume(last: Seq) -> Self {
        Self { last: last.0, durable: last.0, ..Self::default() }
    }

    pub fn next_seq(&mut self) -> Seq {
        self.last += 1;
        Seq(self.last)
    }

    #[must_use]
    pub const fn last_seq(&self) -> Seq {
        Seq(self.last)
    }

    #[must_use]
    pub const fn durable_seq(&self) -> Seq {
        Seq(self.durable)
    }

    #[must_use]
    pub fn frozen(&self) -> Option<&str> {
        self.frozen.as_deref()
    }

    /// Runs `command` once `seq` is durable; at once if it is. While frozen, what is true is said at once, and nothing
    /// is sent or forgotten.
    pub fn after(&mut self, seq: Seq, command: Command, out: &mut Commands) {
        if self.frozen.is_some() {
            if !matches!(command, Command::Dispatch(_) | Command::ForgetContent { .. }) {
                out.push(command);
            }
        } else if seq.0 <= self.durable {
            out.push(command);
        } else {
            self.held.entry(seq.0).or_default().push(command);
        }
    }

    pub fn durable(&mut self, seq: Seq, out: &mut Commands) {
        if self.frozen.is_some() || seq.0 <= self.durable {
            return;
        }
        // An acknowledgement of what was never appended would let commands through that nothing protects.
        self.durable = seq.0.min(self.last);
        while self.pending.front().is_some_and(|(at, _)| *at <= self.durable) {
            self.pending.pop_front();
        }
        while let Some(entry) = self.held.first_entry() {
            if *entry.key() > self.durable {
                break;
            }
            out.append(&mut entry.remove());
        }
    }

    /// Takes back the attempt of `action` that is held, if one is: it has not left.
    pub fn withdraw(&mut self, action: ActionId) -> bool {
        let is_it = |c: &Command| matches!(c, Command::Dispatch(d) if d.action == action);
        let Some((&seq, _)) = self.held.iter().find(|(_, held)| held.iter().any(is_it)) else { return false };
        if let Some(held) = self.held.get_mut(&seq) {
            held.retain(|c| !is_it(c));
        }
        true
    }

    /// Freezes, and hands back what was held: its events will never be durable.
    pub fn freeze(&mut self, why: String) -> Vec<Command> {
        self.frozen = Some(why);
        std::mem::take(&mut self.held).into_values().flatten().collect()
    }

    /// Remembers an appended fact until it is durable. At the bound it is not: the thaw counts it as lost.
    pub fn remember(&mut self, seq: Seq, at: Wall, action: Option<ActionId>, fact: &Fact) {
        if self.pending.len() < KEPT_FACTS_MAX {
            self.pending.push_back((seq.0, Kept { at, action, fact: fact.clone() }));
        }
    }

    /// Keeps a fact for the thaw. Facts of reads are only counted.
    pub fn keep(&mut self, at: Wall, action: Option<ActionId>, fact: Fact, must_last: bool) {
        if must_last && self.kept.len() < KEPT_FACTS_MAX {
            self.kept.push(Kept { at, action, fact });
        } else {
            self.lost += 1;
        }
    }

    /// Opens again at the journal's end. Gives back what the journal does not have and was kept and how many facts are gone at most.
    pub fn thaw(&mut self, last: Seq) -> (Vec<Kept>, u64) {
        let pending = std::mem::take(&mut self.pending).into_iter().filter(|(seq, _)| *seq > last.0);
        let mut kept: Vec<Kept> = pending.map(|(_, kept)| kept).collect();
        let gone = self.last.saturating_sub(last.0).saturating_sub(kept.len() as u64);
        let lost = self.lost + gone;
        kept.append(&mut self.kept);
        *self = Self::resume(last);
        (kept, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(n: u128) -> Command {
        Command::ForgetContent { action: ActionId(n) }
    }

    #[test]
    fn nothing_passes_before_its_number_is_durable() {
        let mut gate = Gate::resume(Seq(10));
        let mut out = Vec::new();
        let (a, b) = (gate.next_seq(), gate.next_seq());
        gate.after(b, command(2), &mut out);
        gate.after(a, command(1), &mut out);
        assert!(out.is_empty());
        gate.durable(a, &mut out);
        assert_eq!(out, [command(1)]);
        gate.durable(b, &mut out);
        assert_eq!(out, [command(1), command(2)]);
        gate.after(a, command(3), &mut out);
        assert_eq!(out.len(), 3, "what is durable holds nothing up");
    }

    #[test]
    fn a_late_acknowledgement_does_not_pass_a_frozen_gate() {
        let mut gate = Gate::resume(Seq(0));
        let mut out = Vec::new();
        let a = gate.next_seq();
        gate.after(a, command(1), &mut out);
        assert_eq!(gate.freeze("disk full".into()), [command(1)]);
        gate.durable(a, &mut out);
        assert!(out.is_empty());
        gate.keep(Wall(1), None, Fact::LogGap { events_at_most: 0, reason: String::new() }, true);
        gate.keep(Wall(1), None, Fact::LogGap { events_at_most: 0, reason: String::new() }, false);
        let (kept, lost) = gate.thaw(Seq(0));
        assert_eq!((kept.len(), lost), (1, 2), "one appended and one decided while frozen");
        assert_eq!(gate.next_seq(), Seq(1));
    }

    #[test]
    fn what_was_appended_and_is_not_in_the_journal_is_given_back() {
        let mut gate = Gate::resume(Seq(0));
        let fact = Fact::LogGap { events_at_most: 0, reason: String::new() };
        for _ in 0..4 {
            let seq = gate.next_seq();
            gate.remember(seq, Wall(i64::try_from(seq.0).unwrap()), None, &fact);
        }
        gate.next_seq();
        gate.durable(Seq(1), &mut Vec::new());
        gate.freeze("disk full".into());
        let (kept, lost) = gate.thaw(Seq(2));
        assert_eq!(kept.iter().map(|k| k.at.0).collect::<Vec<_>>(), [3, 4], "the second was durable after all");
        assert_eq!(lost, 1, "the fifth was behind");
    }

    #[test]
    fn an_acknowledgement_beyond_the_end_is_cut() {
        let mut gate = Gate::resume(Seq(0));
        let mut out = Vec::new();
        gate.durable(Seq(9), &mut out);
        let a = gate.next_seq();
        gate.after(a, command(1), &mut out);
        assert!(out.is_empty());
    }
}
