//! The server's log, on stderr: lines for people, or one JSON object a line. `FORBEAR_LOG` narrows or widens it.

use std::io::IsTerminal as _;

use forbear_server::config::LogFormat;
use tracing_subscriber::EnvFilter;

const FILTER: &str = "FORBEAR_LOG";
const USUAL: &str = "info";

pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(USUAL));
    // Where the terminal has gone a line is lost; to say so there as well would be a panic.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
}
