//! `forbear task|run cancel|reopen` and `forbear action ID cancel`.

use forbear_api::{Cancelled, Named};

use super::server::client;
use crate::cli::{Server, Whole};
use crate::failure::Exit;
use crate::output::{Output, shown, wrapped};

pub(crate) async fn whole(what: Named, act: &Whole, output: Output) -> anyhow::Result<Exit> {
    match act {
        Whole::Cancel { id, server } => cancel(what, id, server, output).await,
        Whole::Reopen { id, server } => reopen(what, id, server, output).await,
    }
}

pub(crate) async fn cancel(what: Named, id: &str, server: &Server, output: Output) -> anyhow::Result<Exit> {
    let cancelled = client(server)?.cancel(what, id).await?;
    if output.json() {
        output.document(&cancelled)?;
    } else {
        output.line(&wrapped(&said(&cancelled), ""));
    }
    Ok(Exit::Done)
}

fn said(cancelled: &Cancelled) -> String {
    let id = shown(&cancelled.id);
    let name = cancelled.what.as_str();
    if cancelled.what == Named::Action {
        return match cancelled.actions {
            0 => format!("Action {id} is not under way any more; `forbear action {id}` says how it ended."),
            _ => format!("Action {id} is cancelled; `forbear action {id}` says how it ends."),
        };
    }
    let under_way = match cancelled.actions {
        0 if cancelled.known == Some(false) => {
            format!(
                "no call of it is on record, so look whether the name is right; `forbear {name} reopen` takes it back"
            )
        }
        0 => "nothing of it was under way".to_owned(),
        1 => "1 call of it was under way".to_owned(),
        n => format!("{n} calls of it were under way"),
    };
    let title = if cancelled.what == Named::Task { "Task" } else { "Run" };
    format!("{title} {id} is cancelled; {under_way}. New calls of it are refused.")
}

async fn reopen(what: Named, id: &str, server: &Server, output: Output) -> anyhow::Result<Exit> {
    let reopened = client(server)?.reopen(what, id).await?;
    if output.json() {
        output.document(&reopened)?;
    } else {
        let id = shown(&reopened.id);
        let name = what.as_str();
        output.line(&wrapped(
            &if reopened.was_cancelled {
                format!("New calls of {name} {id} are taken again; those that were cancelled stay so.")
            } else {
                format!("The {name} {id} was not cancelled; nothing changed.")
            },
            "",
        ));
    }
    Ok(Exit::Done)
}
