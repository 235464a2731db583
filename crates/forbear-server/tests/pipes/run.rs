//! One seed: a whole server from accept to dial in one thread whose clock jumps, killed and started again as often as
//! the plan says, and asked at the end whether anything is left.

use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use forbear_core::ids::{Seq, TaskId};
use forbear_core::input::Whose;
use forbear_server::clock::Clock;
use forbear_server::config::load_text;
use forbear_server::http::pipe::Network;
use forbear_server::http::socket::{Dialler, Listener};
use forbear_server::outside::{Chance, Outside};
use forbear_server::serve::{Running, start_in};
use forbear_store::Reader;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::agent::{self, SERVER};
use crate::disk::Disk;
use crate::provider;
use crate::world::World;

/// After the last deadline nothing may be waiting any more.
const LEFT_OVER: Duration = Duration::from_secs(3_600);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const EVENTS_MAX: usize = 100_000;

/// What one seed showed.
pub(crate) struct Shown {
    pub(crate) trace: Vec<String>,
    pub(crate) broken: Vec<String>,
    pub(crate) arrivals: u32,
    pub(crate) virtual_ms: u64,
}

/// What a flush costs is drawn here; the disk below need not take its own time.
fn memory() -> std::io::Result<&'static Path> {
    let shm = Path::new("/dev/shm");
    shm.metadata().map(|_| shm)
}

/// Runs one seed. A panic is a broken promise like others.
pub(crate) fn run(seed: u64) -> Shown {
    let world = World::new(seed);
    let lived = catch_unwind(AssertUnwindSafe(|| live(&world, seed)));
    if let Err(panic) = lived {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        world.end();
        world.fail("no_panic", words.unwrap_or_default());
    }
    let state = world.lock();
    let (arrivals, virtual_ms) = (state.books.calls.iter().map(|c| c.arrivals).sum(), state.now_ms());
    drop(state);
    let (trace, broken) = world.into_parts();
    Shown { trace, broken, arrivals, virtual_ms }
}

fn live(world: &World, seed: u64) {
    let dir =
        memory().and_then(tempfile::tempdir_in).or_else(|_| tempfile::tempdir()).expect("a directory can be made");
    let data = dir.path().join("data");
    std::fs::create_dir(&data).expect("it is empty");
    let key = data.join("master.key");
    // The same keys for the same seed.
    std::fs::write(&key, [7; 32]).expect("a key can be written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).expect("it is ours");

    let ids = Arc::new(AtomicU64::new(1));
    let crashes = world.lock().plan.crashes;
    let mut asks = world.lock().books.intents.iter().map(|s| Some(s.intent.at_ms)).collect::<Vec<_>>();
    let mut crash = crashes;
    loop {
        let disk = Disk::new(world.clone());
        let chance = Chance::Seeded { seed: seed ^ crash, turn: Arc::clone(&ids) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime can be made");
        let life = process(world, &disk, chance, &data, &asks);
        if crash == 0 {
            runtime.block_on(async {
                life.await;
                world.end();
            });
            let drained = std::mem::take(&mut world.lock().plan.drains);
            if !drained && !disk.has_failed() {
                break;
            }
            // What it could not say any more is said at the next start.
            asks.clear();
            continue;
        }
        let span_ms = world.lock().plan.span_ms;
        let lives = Duration::from_millis(world.agents(|d| d.range(1, span_ms + 10_000)));
        let killed = runtime.block_on(async {
            let killed = timeout(lives, life).await.is_err();
            // Outside of it its clock is not seen.
            world.end();
            killed
        });
        if !killed && !disk.has_failed() {
            break;
        }
        crash -= 1;
        disk.kill();
        drop(runtime);
        asks = agent::connections_lost(world);
        world.killed();
    }
    read_back(world, &data);
    world.lock().check_end();
}

async fn process(world: &World, disk: &Arc<Disk>, chance: Chance, data: &Path, asks: &[Option<u64>]) {
    world.begin();
    world.note("start");
    let network = Network::default();
    tokio::spawn(provider::listen(network.listen("127.0.0.1", 9), world.clone()));
    tokio::spawn(Arc::clone(disk).pump());
    let mut loaded = load_text("(plan)", &world.lock().plan.config()).unwrap_or_else(|e| panic!("{}", e.render(false)));
    loaded.settings.data_dir = Some(data.to_owned());
    let outside = Outside {
        clock: Clock::of_runtime(world.wall()),
        chance,
        listener: Listener::Pipes(network.listen(SERVER.0, SERVER.1)),
        dialler: Dialler::Pipes(network.clone()),
        open_journal: disk.opening(),
    };
    let running = start_in(outside, loaded).await.unwrap_or_else(|e| panic!("{e}"));
    let mut agents = JoinSet::new();
    for (index, in_ms) in asks.iter().enumerate().filter_map(|(i, ms)| ms.map(|ms| (i, ms))) {
        agents.spawn(agent::live(world.clone(), network.clone(), index, in_ms));
    }
    people(world, disk, &running);
    let (drains, span_ms, deadline_s) = {
        let plan = &world.lock().plan;
        (plan.drains, plan.span_ms, plan.deadline_s_max)
    };
    if drains {
        let at_ms = world.agents(|d| d.range(span_ms / 2, span_ms));
        // sleep: a moment of the plan, under a paused clock
        sleep(Duration::from_millis(at_ms)).await;
        world.note("drain");
        let now_ms = world.now_ms();
        world.lock().stops_at_ms = Some(now_ms);
        running.stop().await;
        world.note("stopped");
        while agents.join_next().await.is_some() {}
        return;
    }
    // Calls that follow calls have later deadlines.
    let within = Duration::from_secs(deadline_s * 5) + LEFT_OVER;
    if timeout(within, async { while agents.join_next().await.is_some() {} }).await.is_err() {
        world.fail("never_stuck", "an agent still waits");
    }
    rests(world, &running, Duration::from_secs(deadline_s) + LEFT_OVER).await;
    running.stop().await;
}

/// What is done to the server from aside.
fn people(world: &World, disk: &Arc<Disk>, running: &Running) {
    let (cancels, fills, span_ms) = {
        let plan = &world.lock().plan;
        (plan.cancels, plan.fills, plan.span_ms)
    };
    for _ in 0..cancels {
        let (at_ms, task) = world.agents(|d| (d.range(0, span_ms), d.pick(&[0, 1, 2, 3])));
        let (world, shard) = (world.clone(), Arc::clone(running.shard()));
        tokio::spawn(async move {
            // sleep: a moment of the plan, under a paused clock
            sleep(Duration::from_millis(at_ms)).await;
            let cancelled = shard.cancel(Whose::Task(TaskId::new(&format!("t{task}"))), "person".into());
            {
                let mut state = world.lock();
                let now_ms = state.now_ms();
                state.books.cancelled_at_ms[task].get_or_insert(now_ms);
                state.note(&format!("t{task} is cancelled"));
            }
            if cancelled.kept().await.is_ok() && !world.lock().books.cancels_kept[task] {
                world.fail("cancels_are_kept", format!("t{task}: told before it is on the disk"));
            }
        });
    }
    if fills {
        let (from_ms, for_ms) = world.agents(|d| (d.range(0, span_ms), d.range(0, span_ms)));
        let (world, disk) = (world.clone(), Arc::clone(disk));
        tokio::spawn(async move {
            for (ms, full) in [(from_ms, true), (for_ms, false)] {
                // sleep: a moment of the plan, under a paused clock
                sleep(Duration::from_millis(ms)).await;
                world.note(format!("disk: full {full}"));
                disk.fill(full);
            }
        });
    }
}

/// Every place comes back.
async fn rests(world: &World, running: &Running, within: Duration) {
    let shard = running.shard();
    let places = || shard.scopes(usize::MAX).iter().map(|s| s.in_flight + s.delayed).sum::<u32>();
    let waiting = timeout(within, async {
        while shard.not_ready().is_some() || shard.live_actions() > 0 || places() > 0 || shard.calls() > 0 {
            // sleep: looking again, under a paused clock
            sleep(LOOK_EVERY).await;
        }
    });
    if waiting.await.is_err() {
        let (live, places, calls) = (shard.live_actions(), places(), shard.calls());
        world.fail("never_stuck", format!("{live} actions live, {places} places taken, {calls} calls at the end"));
    }
}

/// The journal verifies and says the same as everybody saw.
fn read_back(world: &World, data: &Path) {
    let reader = Reader::open(data).expect("the journal can be read");
    if let Err(e) = reader.verify(|_| ()) {
        return world.fail("the_chain_verifies", e.to_string());
    }
    let mut ended = std::collections::BTreeMap::new();
    for event in reader.events(Seq(1), EVENTS_MAX).expect("it can be read") {
        world.durable(&event);
        let (Some(action), forbear_core::event::Fact::ActionFinished(end)) = (event.action, &event.fact) else {
            continue;
        };
        let before = ended.insert(action, end.outcome);
        if before.is_some_and(|b| b.is_terminal() || !end.outcome.is_terminal()) {
            world.fail("one_outcome", format!("{action} ended as {before:?} and as {:?}", end.outcome));
        }
    }
}
