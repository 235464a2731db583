//! What is on record afterwards, and what the register shows meanwhile.

use std::time::Duration;

use forbear_core::classify::Classification;
use forbear_core::event::{Event, Fact};
use forbear_core::ids::Seq;
use forbear_core::view::ScopeView;
use forbear_store::Reader;

use crate::rig::Rig;

/// Far longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Short waits of our own, so that a test of them is short.
pub(crate) const QUICK: &str = "backoff: {base_ms: 200, cap_ms: 1000, floor_ms: 200}\n";
/// The longest wait of `QUICK` before a first retry, with jitter, and what a busy machine adds to it.
pub(crate) const QUICK_FIRST_MAX: Duration = Duration::from_millis(400 + 100 + 700);

/// Stops the server and gives all that it wrote.
pub(crate) async fn journal(rig: Rig) -> Vec<Event> {
    let data = rig.running.data_dir().to_owned();
    rig.running.stop().await;
    let mut events = Vec::new();
    let reader = Reader::open(&data).unwrap();
    let mut from = Seq(1);
    loop {
        let page = reader.events(from, 1_000).unwrap();
        let Some(last) = page.last() else { return events };
        from = Seq(last.seq.0 + 1);
        events.extend(page);
    }
}

/// How each answer that was recorded was understood.
pub(crate) fn understood(events: &[Event]) -> Vec<Classification> {
    let results = events.iter().filter_map(|event| match &event.fact {
        Fact::ActionResult(result) => result.classification.as_deref().cloned(),
        _ => None,
    });
    results.collect()
}

/// What each movement of the register gave as its reason.
pub(crate) fn register_reasons(events: &[Event]) -> Vec<String> {
    let updates = events.iter().filter_map(|event| match &event.fact {
        Fact::ScopeUpdated(update) => Some(update.reason.clone()),
        _ => None,
    });
    updates.collect()
}

/// The register's first row that is closed, as soon as there is one.
pub(crate) async fn closed_row(rig: &Rig) -> ScopeView {
    rig.provider.wait_until(SOON, |arrivals| arrivals.iter().any(|a| a.head_written_at_ns.is_some())).await.unwrap();
    until(|| rig.running.shard().scopes(100).into_iter().find(|row| row.next_allowed_at.is_some())).await
}

/// Asks again and again until there is an answer, at most for [`SOON`].
pub(crate) async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask() {
                return found;
            }
            // sleep: between two looks, with a bound around them all
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SOON, asking).await.expect("it comes within the bound")
}
