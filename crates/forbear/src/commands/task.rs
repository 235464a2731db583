//! `forbear task cancel`: ends a task's waiting calls for good.

use super::server::client;
use crate::cli::Server;
use crate::failure::Exit;
use crate::output::{Output, shown, wrapped};

pub(crate) async fn cancel(id: &str, server: &Server, output: Output) -> anyhow::Result<Exit> {
    let cancelled = client(server)?.cancel_task(id).await?;
    if output.json() {
        output.document(&cancelled)?;
    } else {
        let what = match cancelled.actions {
            0 if cancelled.known == Some(false) => {
                "no call of it is on record, so look whether the name is right".to_owned()
            }
            0 => "nothing of it was under way".to_owned(),
            1 => "1 call of it was under way".to_owned(),
            n => format!("{n} calls of it were under way"),
        };
        let task = shown(&cancelled.task);
        output.line(&wrapped(&format!("Task {task} is cancelled; {what}. New calls of it are refused."), ""));
    }
    Ok(Exit::Done)
}
