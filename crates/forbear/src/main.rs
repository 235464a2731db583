//! The command line. Each command is a module of [`commands`]; what they print goes through [`output`], how they end
//! through [`failure`], so that every command has its JSON, its width and its exit code from one place.

mod cli;
mod commands;
mod failure;
mod files;
mod logs;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Arguments, Command};
use failure::Failure;
use forbear_api::Named;
use output::Output;

/// Less time in malloc under many small bodies.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    let output = Output::new(arguments.json);
    let done = run(&arguments, output);
    match done {
        Ok(code) => code.into(),
        Err(error) => Failure::from(error).report(output).into(),
    }
}

fn run(arguments: &Arguments, output: Output) -> anyhow::Result<failure::Exit> {
    match &arguments.command {
        Command::Config(command) if !matches!(command, cli::Config::Reload(_)) => {
            commands::config::run(command, output)
        }
        Command::Providers(of) => commands::providers::list(of, output),
        Command::Provider { name, of } => commands::providers::show(name, of, output),
        Command::ExplainResponse(options) => commands::explain::run(options, output),
        Command::Completions { shell } => commands::own::completions(*shell),
        Command::Man => commands::own::man(),
        Command::Lab(cli::Lab::Sim(options)) => commands::lab::sim(options, output),
        command => runtime()?.block_on(served(command, output)),
    }
}

/// The commands that talk over sockets.
async fn served(command: &Command, output: Output) -> anyhow::Result<failure::Exit> {
    match command {
        Command::Serve(options) => commands::serve::run(options, output).await,
        Command::Demo(options) => commands::demo::run(options, output).await,
        Command::Drill(options) => commands::drill::run(options, output).await,
        Command::Lab(cli::Lab::Provider(options)) => commands::lab::provider(options).await,
        Command::Scopes(server) => commands::scopes::run(server, output).await,
        Command::Live(options) => commands::live::run(options, output).await,
        Command::Circuits(server) => commands::live::circuits(server, output).await,
        Command::Actions(options) => commands::actions::run(options, output).await,
        Command::Action { id, what: None, server } => commands::action::run(id, server, output).await,
        Command::Action { id, what: Some(cli::Act::Cancel), server } => {
            commands::cancel::cancel(Named::Action, id, server, output).await
        }
        Command::Report(options) => commands::report::run(options, output).await,
        Command::Routes(cli::Routes::Suggest(options)) => commands::routes::suggest(options, output).await,
        Command::Task(act) => commands::cancel::whole(Named::Task, act, output).await,
        Command::Run(act) => commands::cancel::whole(Named::Run, act, output).await,
        Command::Config(cli::Config::Reload(server)) => commands::config::reload(server, output).await,
        Command::Config(_)
        | Command::Providers(_)
        | Command::Provider { .. }
        | Command::ExplainResponse(_)
        | Command::Completions { .. }
        | Command::Man
        | Command::Lab(cli::Lab::Sim(_)) => {
            unreachable!("these need no runtime and were run without one")
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
