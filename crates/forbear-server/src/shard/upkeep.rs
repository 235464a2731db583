//! What the shard does beside the calls: it wakes the core when something is due, saves snapshots, deletes old days,
//! opens a journal again that failed, and closes it at the end.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use forbear_core::ids::ActionId;
use forbear_core::input::Input;
use tokio::task::JoinError;
use tokio::time::MissedTickBehavior;

use super::Shard;
use super::cancel::Written;
use crate::journal::Journal;
use crate::serve::{Recovered, StartError};

/// How often days beyond the retention are looked for.
const RETAIN_EVERY: Duration = Duration::from_secs(3600);
/// How long a frozen shard waits before it tries the store again.
const THAW_EVERY: Duration = Duration::from_secs(2);

/// A call that is held for so long is said in the log; so often it is looked for those, and so many are named at once.
const HELD_LONG_MS: u64 = 5_000;
const HELD_LOOK_EVERY: Duration = Duration::from_secs(1);
const HELD_SAID_MAX: usize = 20;

impl Shard {
    /// From here on until [`Shard::close`].
    pub(super) fn start_upkeep(self: &Arc<Self>) {
        let tasks = [
            tokio::spawn(Arc::clone(self).run_timer()).abort_handle(),
            tokio::spawn(Arc::clone(self).run_thaw()).abort_handle(),
            tokio::spawn(Arc::clone(self).run_snapshots()).abort_handle(),
            tokio::spawn(Arc::clone(self).run_retention()).abort_handle(),
            tokio::spawn(Arc::clone(self).run_holds()).abort_handle(),
        ];
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).extend(tasks);
    }

    /// Saves a snapshot and closes the journal. Call it when nothing is live any more.
    pub async fn close(self: &Arc<Self>) {
        let this = Arc::clone(self);
        if let Err(error) = self.waiting(move || this.close_journal()).await {
            tracing::error!(%error, "closing the journal broke off");
        }
    }

    fn close_journal(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        let Some(store) = self.store.get() else { return };
        if self.not_ready().is_none_or(|why| why == "shutting down") {
            self.save_snapshot(&**store);
        }
        if let Err(error) = store.flush_and_close() {
            tracing::error!(%error, "the journal did not close cleanly; the next start replays more");
        }
    }

    async fn run_timer(self: Arc<Self>) {
        loop {
            let next = self.lock().core.next_wakeup();
            match next {
                None => self.timer.notified().await,
                Some((at, _)) => {
                    let due = tokio::time::sleep_until(self.clock.instant(at));
                    tokio::select! {
                        biased;
                        () = due => self.note(Input::Wake),
                        () = self.timer.notified() => {}
                    }
                }
            }
        }
    }

    /// A frozen shard is rebuilt from the journal as soon as that can be written again.
    async fn run_thaw(self: Arc<Self>) {
        loop {
            self.frozen.notified().await;
            loop {
                tokio::time::sleep(THAW_EVERY).await;
                let this = Arc::clone(&self);
                match self.waiting(move || this.thaw()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => tracing::warn!(%error, "the journal still cannot be written"),
                    Err(error) => tracing::error!(%error, "the attempt to open the journal again broke off"),
                }
            }
            tracing::info!("the journal is written again");
        }
    }

    fn thaw(&self) -> Result<(), StartError> {
        let Some(store) = self.store.get() else { return Ok(()) };
        let reopened = store.reopen()?;
        let state = Recovered::read(reopened)?;
        let mut inner = self.lock();
        let now = self.clock.now();
        let commands = inner.core.thaw(now, state.snapshot, &state.tail);
        self.written.send_modify(Written::thawed);
        self.settle(&mut inner, commands, None);
        Ok(())
    }

    async fn run_snapshots(self: Arc<Self>) {
        loop {
            self.snapshot_due.notified().await;
            let this = Arc::clone(&self);
            let done = self.waiting(move || {
                if let Some(store) = this.store.get() {
                    this.save_snapshot(&**store);
                }
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "a snapshot broke off");
            }
        }
    }

    /// Old days go, soon after the start and then every so often.
    async fn run_retention(self: Arc<Self>) {
        let mut due = tokio::time::interval(RETAIN_EVERY);
        loop {
            due.tick().await;
            let this = Arc::clone(&self);
            let done = self.waiting(move || {
                let Some(store) = this.store.get() else { return };
                // What is deleted must be in a snapshot first.
                this.save_snapshot(&**store);
                let needed = this.lock().core.durable_state().oldest_needed();
                match store.retain(this.clock.now().wall, needed) {
                    Ok(retained) if retained.rows > 0 => {
                        tracing::info!(rows = retained.rows, actions = retained.actions, "old days were deleted");
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "old days could not be deleted"),
                }
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "deleting old days broke off");
            }
        }
    }

    /// Says which calls are held for long, once each.
    async fn run_holds(self: Arc<Self>) {
        let mut due = tokio::time::interval(HELD_LOOK_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut said: BTreeSet<ActionId> = BTreeSet::new();
        loop {
            due.tick().await;
            let now = self.clock.now();
            let held: BTreeSet<ActionId> = self.lock().core.waiting_for(now, HELD_LONG_MS).collect();
            said.retain(|action| held.contains(action));
            let new: Vec<ActionId> = held.difference(&said).copied().collect();
            for action in new.iter().take(HELD_SAID_MAX) {
                let Some(view) = self.live_action(*action) else { continue };
                let waits_for = view.waits_for.map_or("", forbear_core::register::WaitReason::as_str);
                let next_allowed_at = view.next_allowed_at.map(|at| forbear_api::At(at.0).to_string());
                let (scope, task, place) = (view.scope.as_str(), view.task.as_str(), view.place);
                tracing::info!(%action, scope, task, waits_for, next_allowed_at, place, "a call is held for longer than 5 s");
            }
            if new.len() > HELD_SAID_MAX {
                let more = new.len() - HELD_SAID_MAX;
                tracing::info!(more, "others are held for longer than 5 s; `forbear live` shows them");
            }
            said.extend(new);
        }
    }

    /// Runs what waits for the journal.
    async fn waiting<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        if self.store.get().is_some_and(|store| !store.waits()) {
            return Ok(f());
        }
        tokio::task::spawn_blocking(f).await
    }

    fn save_snapshot(&self, store: &dyn Journal) {
        let state = self.lock().core.durable_state().to_snapshot();
        let bytes = match serde_json::to_vec(&state) {
            Ok(bytes) => bytes,
            Err(error) => return tracing::error!(%error, "a snapshot could not be written out"),
        };
        if let Err(error) = store.save_snapshot(state.seq, bytes) {
            tracing::warn!(%error, "no snapshot was saved; the next start replays more");
        }
    }
}
