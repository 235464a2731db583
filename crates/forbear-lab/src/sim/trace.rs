//! A run as text, one line a step. Short names: `a31#2` is the second attempt of the first call for the third intent,
//! `p2` the second process.

use std::fmt::Write as _;

use forbear_core::command::Command;
use forbear_core::event::Fact;

use super::world::{ORIGIN, World};

/// Lines that are kept: the last ones.
const LINES_MAX: usize = 20_000;

#[derive(Default)]
pub(super) struct Trace(Vec<String>);

impl Trace {
    pub(super) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

impl World<'_> {
    /// Costs nothing unless this run is told.
    pub(super) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_none() {
            return;
        }
        let mut text = String::new();
        let ms = self.now.mono.ms_since(ORIGIN);
        let _ = write!(text, "{:>7}.{:03} {}", ms / 1_000, ms % 1_000, line(self));
        if let Some(Trace(lines)) = &mut self.trace {
            if lines.len() >= LINES_MAX {
                lines.drain(..LINES_MAX / 2);
            }
            lines.push(text);
        }
    }

    /// Which process, where there was more than one.
    pub(super) fn tag(&self, by: u32) -> String {
        if self.processes > 1 { format!("p{by} ") } else { String::new() }
    }
}

pub(super) fn brief(command: &Command) -> String {
    match command {
        Command::Append { event, .. } => format!("append {}", event.seq.0),
        Command::Dispatch(d) => format!("dispatch a{}#{}", d.action.0, d.attempt.0),
        Command::ReadBody { action } => format!("read the body of a{}", action.0),
        Command::Relay { action, attempt, stamp } => {
            format!("relay a{}#{} {}", action.0, attempt.0, stamp.outcome.as_str())
        }
        Command::Answer { action, answer } => {
            format!("answer a{} {} {}: {}", action.0, answer.status, answer.stamp.outcome.as_str(), answer.reason)
        }
        Command::Share { action, of, .. } => format!("answer a{} with a copy of a{}'s", action.0, of.0),
        Command::CancelUpstream { action, attempt } => format!("cancel upstream a{}#{}", action.0, attempt.0),
        Command::ForgetContent { action } => format!("forget the content of a{}", action.0),
    }
}

pub(super) fn fact(fact: &Fact) -> String {
    match fact {
        Fact::ActionRequested(_) => "action_requested".into(),
        Fact::ActionSent { attempt } => format!("action_sent #{}", attempt.0),
        Fact::ActionResult(r) => format!("action_result #{} {:?} {:?}", r.attempt.0, r.evidence, r.effect),
        Fact::RetryScheduled { attempt, wait_ms, reason, .. } => {
            format!("retry_scheduled #{} in {wait_ms} ms: {reason}", attempt.0)
        }
        Fact::RetryStarted { attempt, .. } => format!("retry_started #{}", attempt.0),
        Fact::RetryReturned { .. } => "retry_returned".into(),
        Fact::ScopeUpdated(u) => format!("scope_updated {} until {:?}", u.scope, u.retry_not_before.map(|w| w.0)),
        Fact::ActionFinished(f) => {
            format!("action_finished {} {:?} {}", f.outcome.as_str(), f.effect, f.reason.as_deref().unwrap_or(""))
        }
        other => format!("{other:?}"),
    }
}
