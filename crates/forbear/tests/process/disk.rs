//! A disk that takes nothing more: no write is sent that cannot be recorded, the agent is told so, reads go on, and when
//! there is room again the server goes on by itself with everything that it had acknowledged.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forbear_core::event::Fact;
use forbear_core::ids::Seq;
use forbear_lab::provider::Provider;
use forbear_store::ActionFilter;

use crate::agent::{Answer, Call};
use crate::rig::{Home, Server, provider, until};

const SCENARIO: &str = "
routes:
  - match: 'POST /w'
    respond: {status: 201, effect: {name: w}, body: {ok: true}}
  - match: 'GET /r'
    respond: {body: {ok: true}}
";
const CONFIG: &str = "providers: {p: {base_url: $BASE}}\n";
/// A few seconds, on a machine that does other things too.
const THAWS_WITHIN: Duration = Duration::from_secs(15);
/// Writes until a full disk is met: what is preallocated takes some.
const WRITES_MAX: usize = 2_000;
/// A write that makes the database larger, and is below the bodies that are kept whole.
const LONG_BYTES: usize = 200_000;
/// Room for the database, and not for much more.
const DISK_BYTES: &str = "size=6m";

/// What a server is starved with.
enum Disk {
    /// A small file system of its own, filled by another file.
    Small(Mounted),
    /// No file may grow, as under a quota.
    Quota,
}

struct Mounted(PathBuf);

impl Mounted {
    /// None where this user may not mount.
    fn new(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).expect("a directory can be made");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK_BYTES, "tmpfs"]).arg(&at).output();
        mounted.is_ok_and(|o| o.status.success()).then_some(Self(at))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

impl Disk {
    fn starve(&self, server: &Server) {
        match self {
            Self::Small(_) => self.fill(),
            Self::Quota => file_bytes_max(server, "1024:unlimited"),
        }
    }

    fn fill(&self) {
        let Self::Small(disk) = self else { return };
        let mut filler = std::fs::File::create(disk.filler()).expect("it can be made");
        while filler.write_all(&[0; 4096]).is_ok() {}
        // What is smaller than a page.
        while filler.write_all(&[0]).is_ok() {}
    }

    fn relieve(&self, server: &Server) {
        match self {
            Self::Small(disk) => std::fs::remove_file(disk.filler()).expect("it can be removed"),
            Self::Quota => file_bytes_max(server, "unlimited:unlimited"),
        }
    }
}

fn file_bytes_max(server: &Server, limits: &str) {
    let set = Command::new("prlimit").arg(format!("--pid={}", server.id())).arg(format!("--fsize={limits}")).status();
    assert!(set.expect("prlimit can be run").success());
}

fn write(name: &str) -> Call {
    Call::post("/p/w", format!("{{\"ref\":\"{name}\"}}")).with("forbear-task", name)
}

fn arrivals_of(provider: &Provider, name: &str) -> usize {
    let wanted = format!("{{\"ref\":\"{name}\"}}");
    provider.arrivals().iter().filter(|a| a.body.as_deref() == Some(wanted.as_bytes())).count()
}

/// It was not sent, it says so, and it may be asked again.
fn refused_unsent(provider: &Provider, name: &str, answer: &Answer) {
    let said = answer.json();
    assert_eq!((answer.status, answer.field("forbear-outcome")), (429, "shed"), "{name}: {answer:?}");
    assert_eq!((&said["sent"], &said["effect"]), (&false.into(), &"not_applied".into()), "{said}");
    assert!(said["safe_next"].to_string().contains("call_again"), "{said}");
    assert_eq!(arrivals_of(provider, name), 0, "{name} says that it was not sent");
}

async fn starved(home: &Home, server: Server, disk: &Disk, provider: &Provider) {
    let mut acknowledged = vec!["before".to_owned()];
    assert_eq!(server.ask(&write("before")).await.status, 201);
    disk.starve(&server);
    let mut first_refused = None;
    for n in 0..WRITES_MAX {
        let name = format!("full-{n}");
        let answer = server.ask(&write(&name)).await;
        if answer.status == 201 {
            acknowledged.push(name);
            continue;
        }
        refused_unsent(provider, &name, &answer);
        first_refused = Some(name);
        break;
    }
    let first_refused = first_refused.expect("the disk is full in the end");
    let why = server.not_ready().await.expect("it is not ready");
    assert!(why.contains("full") || why.contains("I/O"), "{why}");
    for n in 0..3 {
        let name = format!("frozen-{n}");
        refused_unsent(provider, &name, &server.ask(&write(&name)).await);
        assert_eq!(server.ask(&Call::get("/p/r")).await.status, 200, "reads go on");
    }
    assert!(server.not_ready().await.is_some());
    disk.relieve(&server);
    until("it is ready again", THAWS_WITHIN, async || server.not_ready().await.is_none()).await;
    for name in [first_refused.as_str(), "after"] {
        let answer = server.ask(&write(name)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(arrivals_of(provider, name), 1);
        acknowledged.push(name.to_owned());
    }
    server.stop().await;
    recorded(home, &acknowledged, 1);
}

/// Killed when nothing more could be written, a server is there for reads at its next start, says why it takes no write, and
/// goes on by itself.
#[tokio::test]
async fn a_start_after_a_kill_on_a_full_disk_is_frozen_until_there_is_room() {
    let provider = provider(SCENARIO).await;
    let mut home = Home::new(CONFIG, &provider.base_url());
    let Some(mounted) = Mounted::new(home.path().join("disk")) else {
        // Whoever may not mount has the store's own test of it.
        return;
    };
    home.data = mounted.0.join("data");
    let server = home.start().await;
    let mut acknowledged = vec!["before".to_owned()];
    // The log holds what the database has no room for: only with some can the one be brought into the other.
    let long = Call::post("/p/w", "x".repeat(LONG_BYTES)).with("forbear-task", "before");
    assert_eq!(server.ask(&long).await.status, 201);
    let disk = Disk::Small(mounted);
    disk.starve(&server);
    for n in 0..WRITES_MAX {
        let name = format!("full-{n}");
        if server.ask(&write(&name)).await.status != 201 {
            break;
        }
        acknowledged.push(name);
    }
    assert!(server.not_ready().await.is_some());
    server.kill().await;

    let server = home.start().await;
    let why = server.not_ready().await.expect("it is not ready");
    assert!(why.contains("no space is left for the journal"), "{why}");
    for n in 0..3 {
        let name = format!("frozen-{n}");
        refused_unsent(&provider, &name, &server.ask(&write(&name)).await);
        assert_eq!(server.ask(&Call::get("/p/r")).await.status, 200, "reads go on");
    }
    // Killed once more, it is none the worse for it.
    server.kill().await;
    let server = home.start().await;
    refused_unsent(&provider, "frozen", &server.ask(&write("frozen")).await);
    disk.relieve(&server);
    until("it is ready", THAWS_WITHIN, async || server.not_ready().await.is_none()).await;
    for name in ["frozen-0", "after"] {
        assert_eq!(server.ask(&write(name)).await.status, 201);
        assert_eq!(arrivals_of(&provider, name), 1);
        acknowledged.push(name.to_owned());
    }
    server.stop().await;
    // Stopped in order, it leaves nothing behind that the next start could read the log by.
    disk.fill();
    let server = home.start().await;
    refused_unsent(&provider, "frozen-again", &server.ask(&write("frozen-again")).await);
    assert_eq!(server.ask(&Call::get("/p/r")).await.status, 200, "reads go on");
    disk.relieve(&server);
    until("it is ready", THAWS_WITHIN, async || server.not_ready().await.is_none()).await;
    server.stop().await;
    recorded(&home, &acknowledged, 2);
}

fn recorded(home: &Home, acknowledged: &[String], gaps_expected: usize) {
    let reader = home.reader();
    let verified = reader.verify(|_| ()).expect("the chain verifies");
    for name in acknowledged {
        let filter = ActionFilter { task: Some(name.clone()), ..ActionFilter::default() };
        let actions = reader.actions(&filter, 10, None).expect("they can be read").actions;
        let succeeded = actions.iter().filter(|a| a.outcome.as_deref() == Some("succeeded")).count();
        assert_eq!(succeeded, 1, "{name} was acknowledged: {actions:?}");
    }
    let (mut gaps, mut from) = (0, Seq(1));
    while from <= Seq(verified.head.seq) {
        let events = reader.events(from, 5_000).expect("they can be read");
        gaps += events.iter().filter(|e| matches!(&e.fact, Fact::LogGap { .. })).count();
        from = Seq(events.last().expect("the journal has no hole").seq.0 + 1);
    }
    assert_eq!(gaps, gaps_expected, "the reads that could not be recorded are said to be missing");
}

#[tokio::test]
async fn a_full_disk_sends_no_write_and_loses_nothing() {
    let provider = provider(SCENARIO).await;
    let mut home = Home::new(CONFIG, &provider.base_url());
    let Some(mounted) = Mounted::new(home.path().join("disk")) else {
        // Whoever may not mount has the other starved disk to show for it: the test below needs no rights.
        return quota().await;
    };
    home.data = mounted.0.join("data");
    let server = home.start().await;
    starved(&home, server, &Disk::Small(mounted), &provider).await;
}

#[tokio::test]
async fn a_quota_sends_no_write_and_loses_nothing() {
    quota().await;
}

async fn quota() {
    let provider = provider(SCENARIO).await;
    let home = Home::new(CONFIG, &provider.base_url());
    let server = home.start_after("trap '' XFSZ").await;
    starved(&home, server, &Disk::Quota, &provider).await;
}

#[tokio::test]
async fn a_start_on_a_full_disk_says_so_and_leaves_nothing_half_made() {
    let mut home = Home::new("", "");
    let Some(mounted) = Mounted::new(home.path().join("disk")) else {
        return half_made_under_quota(&home).await;
    };
    home.data = mounted.0.join("data");
    let filler = mounted.filler();
    for free in [0, 4_096, 16_384, 65_536] {
        let _ = std::fs::remove_dir_all(&home.data);
        let _ = std::fs::remove_file(&filler);
        std::fs::create_dir(&home.data).unwrap();
        fill_but(&filler, free);
        let ended = home.refused(&[]).await;
        assert_eq!(ended.code, Some(2), "{free} bytes free: {ended:?}");
        assert!(ended.stderr.contains("error FB"), "{ended:?}");
        std::fs::remove_file(&filler).unwrap();
        home.start().await.stop().await;
    }
}

fn fill_but(filler: &Path, free: usize) {
    let mut file = std::fs::File::create(filler).expect("it can be made");
    let mut bytes = 0;
    while file.write_all(&[0; 4096]).is_ok() {
        bytes += 4096;
    }
    file.set_len(u64::try_from(bytes - free).expect("it is small")).expect("it can be cut");
}

async fn half_made_under_quota(home: &Home) {
    for bytes in [0, 16, 100, 4_096] {
        let _ = std::fs::remove_dir_all(&home.data);
        let ended = home.refused_after(&format!("trap '' XFSZ; prlimit --pid=$$ --fsize={bytes}:unlimited")).await;
        assert_eq!(ended.code, Some(2), "{bytes} bytes: {ended:?}");
        assert!(ended.stderr.contains("error FB"), "{ended:?}");
        home.start().await.stop().await;
    }
}

/// Where SQLite keeps the number of the file's pages, big-endian, and how large a page is.
const PAGES_AT: usize = 28;
const PAGE_BYTES: u64 = 4_096;
const STORE_BYTES_MAX: u64 = 64 << 20;

/// The store's own bound, which leaves room on the disk for what must still be recorded.
#[tokio::test]
async fn at_store_bytes_max_writes_are_refused_and_reads_go_on() {
    let provider = provider(SCENARIO).await;
    let config = format!("store_bytes_max: {STORE_BYTES_MAX}\n{CONFIG}");
    let home = Home::new(&config, &provider.base_url());
    home.start().await.stop().await;
    let database = home.data.join("journal.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let pages = u32::try_from(STORE_BYTES_MAX / PAGE_BYTES).unwrap();
    bytes[PAGES_AT..PAGES_AT + 4].copy_from_slice(&pages.to_be_bytes());
    std::fs::write(&database, bytes).unwrap();
    // Holes, which stand for years of records.
    std::fs::OpenOptions::new().write(true).open(&database).unwrap().set_len(STORE_BYTES_MAX).unwrap();

    let server = home.start().await;
    let before = provider.arrivals().len();
    let answer = server.ask(&write("over")).await;
    refused_unsent(&provider, "over", &answer);
    assert!(answer.json()["detail"].as_str().unwrap_or_default().contains("store_bytes_max"), "{answer:?}");
    assert_eq!(server.ask(&Call::get("/p/r")).await.status, 200, "reads go on");
    assert_eq!(provider.arrivals().len(), before + 1);
    server.stop().await;

    home.configure(&CONFIG.replace("$BASE", &provider.base_url()));
    let server = home.start().await;
    assert_eq!(server.ask(&write("over")).await.status, 201, "a higher bound lets them go again");
    server.stop().await;
    home.reader().verify(|_| ()).expect("the chain verifies");
}
