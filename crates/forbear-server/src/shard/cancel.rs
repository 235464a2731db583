//! Decisions from aside: a cancel, another policy. It holds in this process from the decision on; that it holds over a crash as well is
//! promised only when the journal has it. Beside it, for those who read the journal: a wait until it has caught up.

use std::sync::Arc;
use std::time::Duration;

use forbear_core::ids::Seq;
use forbear_core::input::{Input, Settings, Whose};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Inner, Shard};

/// How long somebody waits for the disk; then it is said that it has not taken it yet.
const KEPT_WITHIN: Duration = Duration::from_secs(5);

/// What was decided is written within some milliseconds, or the disk is not well.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(1);

/// How far the journal is. Numbers of events mean the same only between two failures: a thaw gives them anew.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    durable: Seq,
    failures: u64,
    fails: bool,
}

impl Written {
    pub(super) fn reached(&mut self, seq: Seq) {
        self.durable = self.durable.max(seq);
    }

    pub(super) const fn failed(&mut self) {
        self.failures += 1;
        self.fails = true;
    }

    pub(super) const fn thawed(&mut self) {
        self.fails = false;
    }
}

/// What holds in this process from now on: a cancel, its end, another policy.
#[derive(Debug)]
pub struct Decided {
    /// Its actions that were in line or on the wire.
    pub actions: u32,
    /// The last event of it; none where the journal took nothing.
    last: Option<Seq>,
    failures: u64,
    written: watch::Receiver<Written>,
}

impl Decided {
    /// Waits until the journal has it.
    ///
    /// # Errors
    /// Why it is not known to have it.
    pub async fn kept(mut self) -> Result<(), &'static str> {
        const FAILED: &str = "the journal cannot be written";
        let Some(last) = self.last else { return Err(FAILED) };
        let known = self.written.wait_for(|w| w.failures != self.failures || w.durable >= last);
        match timeout(KEPT_WITHIN, known).await {
            Ok(Ok(written)) if written.failures == self.failures => Ok(()),
            Ok(_) => Err(FAILED),
            Err(_) => Err("the disk has not taken it yet"),
        }
    }
}

impl Shard {
    /// Waits until the journal has what was decided so far, or is known not to take it, and not for long.
    pub async fn caught_up(&self) {
        let (last, before) = {
            let inner = self.lock();
            (inner.core.last_seq(), *self.written.borrow())
        };
        let mut written = self.written.subscribe();
        let known = written.wait_for(|w| w.fails || w.failures != before.failures || w.durable >= last);
        // Late or never, the journal is read as it is.
        let _ = timeout(CAUGHT_UP_WITHIN, known).await;
    }

    pub fn cancel(&self, whose: Whose, by: String) -> Decided {
        let mut inner = self.lock();
        let actions = inner.core.owned_by(&whose);
        self.decide(&mut inner, actions, Input::Cancel { whose, by })
    }

    /// None: it is not cancelled.
    pub fn reopen(&self, whose: Whose, by: String) -> Option<Decided> {
        let mut inner = self.lock();
        inner.core.is_cancelled(&whose).then(|| self.decide(&mut inner, 0, Input::Reopen { whose, by }))
    }

    pub fn load_policy(&self, settings: Arc<Settings>, by: String) -> Decided {
        let mut inner = self.lock();
        self.decide(&mut inner, 0, Input::PolicyLoaded { settings, by })
    }

    fn decide(&self, inner: &mut Inner, actions: usize, input: Input) -> Decided {
        let before = *self.written.borrow();
        let commands = inner.core.handle(self.clock.now(), input);
        let last = (!before.fails).then(|| inner.core.last_seq());
        self.settle(inner, commands, None);
        Decided {
            actions: u32::try_from(actions).unwrap_or(u32::MAX),
            last,
            failures: before.failures,
            written: self.written.subscribe(),
        }
    }
}
