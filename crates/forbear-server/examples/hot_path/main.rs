//! The hot path under an instruction counter: `hot_path read|write|journal COUNT`.
//!
//! For calls the server has the main thread for itself; who calls and who answers are plain threads beside it, over real
//! sockets, one call after the other. So what is counted for the first thread is the server's own work for that many
//! calls, and two runs of different counts tell what one more call costs. The journal is counted apart, in whole groups:
//! how many events share one flush is a matter of time otherwise. `cargo xtask test --only instructions` runs it.

mod ends;
mod journal;

use std::path::Path;

use forbear_server::config::{Overrides, load};
use forbear_server::serve::start;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, count) = match arguments.as_slice() {
        [kind, count] => (kind.as_str(), count.parse()?),
        _ => return Err("usage: hot_path read|write|journal COUNT".into()),
    };
    let directory = tempfile::tempdir()?;
    match kind {
        "read" => calls(directory.path(), ends::READ, count),
        "write" => calls(directory.path(), ends::WRITE, count),
        "journal" => journal::groups(directory.path(), count),
        _ => Err(format!("nothing is called `{kind}`").into()),
    }
}

fn calls(directory: &Path, call: ends::Call, count: u64) -> Result<(), Failure> {
    let origin = ends::answer_on_threads()?;
    let config = directory.join("forbear.yaml");
    std::fs::write(&config, format!("providers:\n  bench:\n    base_url: \"http://{origin}\"\n"))?;
    let overrides =
        Overrides { listen: Some("127.0.0.1:0".parse()?), data_dir: Some(directory.join("data")), log: None };
    let loaded = load(Some(&config), &overrides)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let running = start(loaded).await?;
        let address = running.addr();
        let (told, done) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || told.send(ends::call_in_turn(address, call, count)));
        done.await??;
        running.stop().await;
        Ok(())
    })
}
