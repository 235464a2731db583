//! How fast the journal is on this disk: `cargo run --release -p forbear-store --example append_bench [DIR]`.
//!
//! Single commits, groups of 64 and of 512 straight reads, and 64 callers that each wait for their own event.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forbear_core::effect::Effect;
use forbear_core::event::{ActionFinished, EVENT_VERSION, Event, Fact, Outcome, Straight};
use forbear_core::ids::{ActionId, Route, RunId, ScopeId, Seq, TaskId};
use forbear_core::time::Wall;
use forbear_store::{Batch, Options, Progress, Store};

const ROUND: Duration = Duration::from_secs(2);
const CALLERS: usize = 64;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let rounds = [1, 64, 512].map(|size| one_caller(&dir, size)).into_iter().chain([callers(&dir)]);
    for round in rounds {
        match round {
            Ok(line) => println!("{line}"),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Groups of `size` events, each awaited before the next is given.
fn one_caller(dir: &Path, size: u64) -> Result<String, Failure> {
    let (store, durable, scratch) = open(dir)?;
    let (start, mut seq, mut groups) = (Instant::now(), 0, 0u128);
    while start.elapsed() < ROUND {
        store.append(Batch { events: (seq + 1..=seq + size).map(read).collect(), ..Batch::default() })?;
        seq += size;
        groups += 1;
        durable.wait_for(seq);
    }
    let micros = start.elapsed().as_micros().max(1);
    drop(store);
    std::fs::remove_dir_all(scratch)?;
    let (groups_s, events_s) = (groups * 1_000_000 / micros, u128::from(seq) * 1_000_000 / micros);
    Ok(format!("{size:>4} a group: {groups_s:>6} groups/s, {events_s:>7} events/s, {:>5} µs each", micros / groups))
}

/// Many callers, as the server has them: append under a lock, then each waits for its own.
fn callers(dir: &Path) -> Result<String, Failure> {
    let (store, durable, scratch) = open(dir)?;
    let last = Mutex::new(0u64);
    let start = Instant::now();
    let call = || {
        while start.elapsed() < ROUND {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let seq = *last + 1;
            if store.append(Batch { events: vec![read(seq)], ..Batch::default() }).is_err() {
                return;
            }
            *last = seq;
            drop(last);
            durable.wait_for(seq);
        }
    };
    std::thread::scope(|scope| (0..CALLERS).for_each(|_| drop(scope.spawn(call))));
    let events = u128::from(*last.lock().unwrap_or_else(PoisonError::into_inner));
    let micros = start.elapsed().as_micros().max(1);
    drop(store);
    std::fs::remove_dir_all(scratch)?;
    Ok(format!("{CALLERS:>4} callers: {:>7} durable events/s", events * 1_000_000 / micros))
}

#[derive(Default)]
struct Durable {
    seq: Mutex<u64>,
    moved: Condvar,
}

impl Durable {
    fn wait_for(&self, wanted: u64) {
        let seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.moved.wait_while(seq, |seq| *seq < wanted).unwrap_or_else(PoisonError::into_inner));
    }

    fn reach(&self, reached: u64) {
        *self.seq.lock().unwrap_or_else(PoisonError::into_inner) = reached;
        self.moved.notify_all();
    }
}

fn open(dir: &Path) -> Result<(Store, Arc<Durable>, PathBuf), Failure> {
    let scratch = dir.join(format!("forbear-append-bench-{}", std::process::id()));
    let durable = Arc::new(Durable::default());
    let told = Arc::clone(&durable);
    let report = move |progress| match progress {
        Progress::Durable { seq, .. } => told.reach(seq.0),
        Progress::Failed { error, .. } => {
            eprintln!("{error}");
            told.reach(u64::MAX);
        }
    };
    let opened = Store::open(Options::new(&scratch), Box::new(report))?;
    Ok((opened.store, durable, scratch))
}

fn read(seq: u64) -> Event {
    let at_ms = 1_772_323_200_000 + seq;
    let straight = Straight {
        task: TaskId::new(&format!("research-{}", seq / 40)),
        run: RunId::new(&format!("run-{:010}", seq / 20)),
        scope: ScopeId::new("openai/3f2a9c1d5e7b"),
        tenant: None,
        route: Route::new("GET /v1/models/{id}"),
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
    let noise = u128::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Event {
        v: EVENT_VERSION,
        seq: Seq(seq),
        at: Wall(at_ms.cast_signed()),
        action: Some(ActionId(u128::from(at_ms) << 80 | noise)),
        prev: None,
        policy: "3f2a9c1d5e7b4a60".into(),
        fact: Fact::ActionFinished(Box::new(finished)),
    }
}
