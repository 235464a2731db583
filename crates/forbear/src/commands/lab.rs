//! `forbear lab`: the fake provider alone, and the simulator.

use forbear_lab::provider::{Http2, RunOptions};

use crate::cli::{LabProvider, Sim};
use crate::failure::Exit;
use crate::output::Output;

pub(crate) async fn provider(options: &LabProvider) -> anyhow::Result<Exit> {
    let run = RunOptions {
        scenario: options.scenario.clone(),
        listen: options.listen,
        tls: options.tls,
        http2: Http2::Auto,
        ca_pem_file: options.ca_pem.clone(),
    };
    forbear_lab::provider::run(run, Box::new(std::io::stdout())).await?;
    Ok(Exit::Done)
}

pub(crate) fn sim(_options: &Sim, _output: Output) -> anyhow::Result<Exit> {
    anyhow::bail!("the simulator is not part of this build")
}
