//! The journal's share: straight reads, as many to a flush as under load.

use std::path::Path;
use std::sync::mpsc;

use forbear_core::effect::Effect;
use forbear_core::event::{ActionFinished, EVENT_VERSION, Event, Fact, Outcome, Straight};
use forbear_core::ids::{ActionId, RunId, Seq, TaskId};
use forbear_core::time::Wall;
use forbear_store::{Batch, Options, Progress, Store};

use super::Failure;

/// What gathers in 10 ms at 25,000 reads a second.
const GROUP_EVENTS: u64 = 256;
const START_MS: u64 = 1_772_323_200_000;

/// Writes so many groups, each after the one before is durable.
pub(super) fn groups(directory: &Path, count: u64) -> Result<(), Failure> {
    let (told, durable) = mpsc::channel();
    let report = move |progress| {
        let seq = match progress {
            Progress::Durable { seq, .. } => Ok(seq.0),
            Progress::Failed { error, .. } => Err(error),
        };
        // Nobody listens any more only when it ends.
        let _ = told.send(seq);
    };
    let opened = Store::open(Options::new(directory.join("journal")), Box::new(report))?;
    for group in 0..count {
        let last = (group + 1) * GROUP_EVENTS;
        let events = (group * GROUP_EVENTS + 1..=last).map(straight_read).collect();
        opened.store.append(Batch { events, contents: Vec::new(), behind: false })?;
        while durable.recv()?? < last {}
    }
    opened.store.flush_and_close()?;
    Ok(())
}

/// As an agent's call that names neither task nor run leaves it.
fn straight_read(seq: u64) -> Event {
    let at_ms = START_MS + seq / 25;
    let action = ActionId(u128::from(at_ms) << 80 | u128::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let straight = Straight {
        task: TaskId::new(action.text().as_str()),
        run: RunId::new(action.text().as_str()),
        scope: "bench/3f2a9c1d5e7b".into(),
        tenant: None,
        route: "GET /v1/items".into(),
        class: "read".into(),
    };
    let finished = ActionFinished {
        outcome: Outcome::Succeeded,
        effect: Effect::Applied,
        attempts: 1,
        waited_ms: 0,
        status: Some(200),
        reason: None,
        waited_for: None,
        straight: Some(straight),
        agent_left: false,
        refused: None,
    };
    Event {
        v: EVENT_VERSION,
        seq: Seq(seq),
        at: Wall(at_ms.cast_signed()),
        action: Some(action),
        prev: None,
        policy: "3f2a9c1d5e7b4a60".into(),
        fact: Fact::ActionFinished(Box::new(finished)),
    }
}
