//! What a journal says after its server is gone: whether it verifies, and what became of each task.

use std::collections::BTreeMap;

use forbear_core::event::{Event, Fact};
use forbear_core::ids::{ActionId, Seq};

use crate::rig::Home;

/// Events read from the journal at once.
const PAGE: usize = 5_000;

/// What the journal says of each task, which is one logical call here.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) events: u64,
    task_of: BTreeMap<ActionId, String>,
    pub(crate) sent: BTreeMap<String, u64>,
    finished: BTreeMap<ActionId, Vec<String>>,
}

impl Journal {
    pub(crate) fn read(home: &Home) -> Self {
        let reader = home.reader();
        let verified = reader.verify(|_| ()).expect("the chain verifies");
        assert_eq!(verified.first_seq, Seq(1));
        let mut journal = Self::default();
        let mut from = Seq(1);
        loop {
            let events = reader.events(from, PAGE).expect("the journal can be read");
            let Some(last) = events.last() else { break };
            from = Seq(last.seq.0 + 1);
            events.iter().for_each(|e| journal.note(e));
        }
        assert_eq!(journal.events, verified.head.seq);
        journal
    }

    fn note(&mut self, event: &Event) {
        self.events += 1;
        let Some(action) = event.action else { return };
        match &event.fact {
            Fact::ActionRequested(asked) => {
                self.task_of.insert(action, asked.task.to_string());
            }
            Fact::ActionSent { .. } => {
                let task = self.task_of.get(&action).expect("nothing is sent before its intent").clone();
                *self.sent.entry(task).or_default() += 1;
            }
            Fact::ActionFinished(end) => {
                if let Some(straight) = &end.straight {
                    self.task_of.insert(action, straight.task.to_string());
                }
                self.finished.entry(action).or_default().push(end.outcome.as_str().to_owned());
            }
            _ => {}
        }
    }

    /// Every action that was accepted has one end; one that stands as unknown may have been followed by none.
    pub(crate) fn check(&self) {
        for (action, task) in &self.task_of {
            let ends = self.finished.get(action).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(ends.len(), 1, "{task} ({action}) ended as {ends:?}");
        }
    }

    pub(crate) fn outcomes(&self, task: &str) -> Vec<&str> {
        let actions = self.task_of.iter().filter(|(_, t)| *t == task);
        actions.flat_map(|(a, _)| self.finished.get(a).into_iter().flatten()).map(String::as_str).collect()
    }
}
