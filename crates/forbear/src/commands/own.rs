//! What the command line says of itself: completions and the man page.

use std::io::{self, Write as _};

use clap::CommandFactory as _;

use crate::cli::Arguments;
use crate::failure::Exit;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "forbear", &mut script);
    print(&script)
}

pub(crate) fn man() -> anyhow::Result<Exit> {
    let mut whole = Arguments::command();
    whole.build();
    let mut page = Vec::new();
    clap_mangen::Man::new(whole.clone()).render(&mut page)?;
    for command in whole.get_subcommands().filter(|c| c.get_name() != "help") {
        section(command, &mut page)?;
    }
    print(&page)
}

/// A command's own section of the page, and those of the commands below it.
fn section(command: &clap::Command, page: &mut Vec<u8>) -> anyhow::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    let below: Vec<&clap::Command> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
    for command in &below {
        section(command, page)?;
    }
    if !below.is_empty() {
        return Ok(());
    }
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(page, "{about}")?;
    let mut options = Vec::new();
    clap_mangen::Man::new(command.clone()).render_options_section(&mut options)?;
    // A section of the command's, not of the page's.
    page.extend_from_slice(String::from_utf8_lossy(&options).replace(".SH OPTIONS", ".PP").as_bytes());
    Ok(())
}

fn print(bytes: &[u8]) -> anyhow::Result<Exit> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(Exit::Done),
    }
}
