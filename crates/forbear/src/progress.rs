//! Progress of what takes longer than a second: on stderr, on a terminal only, and never in JSON mode.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(120);

/// Something of unknown length.
pub(crate) fn spinner(output: Output, what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(output));
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// Something with a known length.
pub(crate) fn bar(output: Output, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target(output));
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} ({eta} left)") {
        bar.set_style(style);
    }
    bar
}

/// indicatif itself draws nothing where stderr is no terminal.
fn target(output: Output) -> ProgressDrawTarget {
    if output.json() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}
