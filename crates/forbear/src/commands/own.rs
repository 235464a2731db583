//! What the command line says of itself: completions and the man page.

use std::io;

use clap::CommandFactory as _;

use crate::cli::Arguments;
use crate::failure::Exit;

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "forbear", &mut script);
    print(&script)
}

pub(crate) fn man() -> anyhow::Result<Exit> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
    print(&page)
}

fn print(bytes: &[u8]) -> anyhow::Result<Exit> {
    match io::Write::write_all(&mut io::stdout().lock(), bytes) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(Exit::Done),
    }
}
