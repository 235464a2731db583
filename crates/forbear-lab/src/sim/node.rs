//! One process: the real core, what its disk handle knows, and what a reader of its events and answers knows.
//!
//! Two may be there at once. A second one that recovers from the journal fences the first: nothing that the first appends
//! is written from then on, and it finds out when its next commit fails. Until it ends it goes on with what it has: reads,
//! and writes whose intent was durable before the fence, within their `send_not_after`.

use forbear_core::Coordinator;

use super::ledger::Ledger;

pub(super) struct Node {
    /// Processes are numbered in the order of their starts.
    pub(super) number: u32,
    pub(super) core: Coordinator,
    pub(super) ledger: Ledger,
    pub(super) disk: Disk,
    /// Another process owns the journal since it was so long.
    pub(super) fenced_at: Option<usize>,
    /// Its drain is over.
    pub(super) is_drained: bool,
}

#[derive(Default)]
pub(super) struct Disk {
    /// The last number that the core appended, written or not.
    pub(super) appended: u64,
    /// A commit is under way, up to here.
    pub(super) committing: Option<usize>,
    /// Nothing is written any more, whether the core knows it yet or not.
    pub(super) failed: bool,
}

impl Node {
    /// It starts from a journal of so many events.
    pub(super) fn new(number: u32, core: Coordinator, ledger: Ledger, appended: usize) -> Self {
        let disk = Disk { appended: appended as u64, ..Disk::default() };
        Self { number, core, ledger, disk, fenced_at: None, is_drained: false }
    }
}
