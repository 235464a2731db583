//! Events as lines that a person can read: each says when, what, why and what it cost. The data stands beside the text,
//! so that nothing is only said in words.

use forbear_api::control::{ActionStory, StoryEvent};
use forbear_core::classify::Below;
use forbear_core::effect::{Effect, Evidence};
use forbear_core::event::{
    ActionFinished, ActionRequested, ActionResult, Event, Fact, KeyOrigin, Refused, ScopeUpdated, WaitedFor, Would,
};
use forbear_core::time::Wall;
use forbear_core::view::LiveView;
use serde_json::Value;

use super::rows::{action_row, at, standing};

pub(super) fn story(found: forbear_store::ActionStory, live: Option<&LiveView>) -> ActionStory {
    let sends_below = found.events.iter().map(sends_below).fold(0, u32::saturating_add);
    let events = found.events.iter().map(story_event).collect();
    ActionStory { action: action_row(found.action), events, cut: found.cut, sends_below, now: live.map(standing) }
}

fn sends_below(event: &Event) -> u32 {
    let Fact::ActionResult(result) = &event.fact else { return 0 };
    result.classification.as_ref().and_then(|c| c.below.as_ref()).map_or(0, |below| below.retries)
}

fn story_event(event: &Event) -> StoryEvent {
    let mut data = serde_json::to_value(&event.fact).unwrap_or_default();
    let kind = data.as_object_mut().and_then(|members| members.remove("type"));
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    StoryEvent { at: at(event.at), seq: event.seq.0, kind, text: text_of(event), data }
}

/// One event in one line.
#[must_use]
pub fn text_of(event: &Event) -> String {
    match &event.fact {
        Fact::PolicyLoaded { digest, by } => format!("policy {} loaded by {by}", &digest.to_string()[..16]),
        Fact::ActionRequested(r) => requested(r),
        Fact::ActionSent { attempt } => format!("attempt {} is sent", attempt.0),
        Fact::ActionResult(r) => result(r),
        Fact::RetryScheduled { attempt, scheduled_retry_at, retry_not_before, reason, wait_ms, .. } => {
            let boundary = retry_not_before.map_or_else(
                || "the provider named no boundary".to_owned(),
                |b| format!("the provider wants none before {}", time(b)),
            );
            format!(
                "attempt {} waits {} until {}: {reason}; {boundary}",
                attempt.0,
                duration(*wait_ms),
                time(*scheduled_retry_at)
            )
        }
        Fact::RetryStarted { attempt, retry_started_at } => {
            format!("attempt {} starts at {}", attempt.0, time(*retry_started_at))
        }
        Fact::RetryReturned { attempt, .. } => format!("attempt {} never left; its charge is given back", attempt.0),
        Fact::ScopeUpdated(s) => scope_updated(s),
        Fact::ReconciliationRequired { attempt, reason } => {
            format!("nobody knows what attempt {} did: {reason}; it is not sent again on hope", attempt.0)
        }
        Fact::TaskCancelled { task, by } => format!("task {task} cancelled by {by}"),
        Fact::RunCancelled { run, by } => format!("run {run} cancelled by {by}"),
        Fact::ActionCancelled { by } => format!("cancelled by {by}"),
        Fact::TaskReopened { task, by } => format!("task {task} taken again, by {by}"),
        Fact::RunReopened { run, by } => format!("run {run} taken again, by {by}"),
        Fact::CircuitOpened(opened) => {
            format!("circuit of the {} open until {}: {}", opened.circuit.as_str(), time(opened.until), opened.reason())
        }
        Fact::CircuitClosed { circuit, reason } => format!("circuit of the {} closed: {reason}", circuit.as_str()),
        Fact::ActionFinished(f) => finished(f),
        Fact::CallJoined { how, .. } => {
            format!("an equal call ({}) waits for this result and is not sent", how.as_str())
        }
        Fact::DecisionObserved { would } => format!("only watched: {}", would_have(would)),
        Fact::LogGap { events_at_most, reason } => format!("at most {events_at_most} events are missing: {reason}"),
    }
}

fn requested(r: &ActionRequested) -> String {
    let mut parts = vec![format!("{} asked for as {}, task {}", r.route, r.class, r.task)];
    if r.run.as_str() != r.task.as_str() {
        parts.push(format!("run {}", r.run));
    }
    if r.content_bytes > 0 {
        parts.push(format!("{} bytes", r.content_bytes));
    }
    if let Some(key) = &r.key {
        let whose = match key.origin {
            KeyOrigin::Agent => "the agent's own",
            KeyOrigin::Derived => "derived from task and reference",
            KeyOrigin::Made => "made here",
        };
        let kept =
            key.retention_seconds.map(|s| format!(", kept {} by the provider", duration(s.saturating_mul(1_000))));
        parts.push(format!("key in {} ({whose}{})", key.header, kept.unwrap_or_default()));
    }
    parts.push(format!("deadline {}", time(r.deadline)));
    parts.extend(r.goal.as_ref().map(|goal| format!("goal: {goal}")));
    parts.join("; ")
}

fn result(r: &ActionResult) -> String {
    let mut parts = Vec::new();
    match (r.status, &r.classification) {
        (Some(status), Some(c)) => {
            parts.push(format!("attempt {}: status {status}, {} ({})", r.attempt.0, word(&c.kind), c.rule));
            if let Some(b) = &c.boundary {
                parts.push(format!(
                    "wait {} until {} ({}: `{}`)",
                    duration(b.wait_ms),
                    time(b.until),
                    b.source.as_str(),
                    b.raw
                ));
            }
            parts.extend(c.below.as_ref().map(below));
            parts.extend(c.code.as_ref().map(|code| format!("code {code}")));
            parts.extend(c.malformed.iter().map(|m| format!("cannot be read: {m}")));
            parts.extend(c.contradictions.iter().map(|m| format!("contradiction: {m}")));
        }
        (Some(status), None) => parts.push(format!("attempt {}: status {status}", r.attempt.0)),
        (None, _) => {
            let what = match r.evidence {
                Evidence::NotSent => "nothing was sent",
                Evidence::Refused => "the provider refused it unprocessed",
                Evidence::Unknown | Evidence::Answered | Evidence::AnsweredPartially => "it left and no answer came",
            };
            parts.push(format!("attempt {}: {what}", r.attempt.0));
        }
    }
    parts.extend(r.transport.clone());
    parts.push(effect(r.effect).to_owned());
    parts.join("; ")
}

fn below(b: &Below) -> String {
    let times = if b.retries == 1 { "once more".to_owned() } else { format!("{} more times", b.retries) };
    let claimed = if b.is_cut() { format!(", and {} claimed", b.claimed) } else { String::new() };
    format!("a layer below sent it {times} ({}{claimed}), charged as retries", b.said)
}

fn scope_updated(s: &ScopeUpdated) -> String {
    let until = s.retry_not_before.map_or_else(|| "open".to_owned(), |until| format!("closed until {}", time(until)));
    format!("scope {} {until}: {}", s.scope, s.reason)
}

fn finished(f: &ActionFinished) -> String {
    let attempts = if f.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", f.attempts) };
    let mut parts = vec![format!("{} after {attempts}", f.outcome.as_str())];
    if f.waited_ms > 0 {
        parts.push(format!(
            "waited {}{}",
            duration(f.waited_ms),
            f.waited_for.as_ref().map_or(String::new(), waited_for)
        ));
    }
    parts.extend(f.status.map(|s| format!("status {s}")));
    parts.extend(f.reason.clone());
    parts.push(effect(f.effect).to_owned());
    if let Some(s) = &f.straight {
        parts.insert(0, format!("{} as {}, task {}", s.route, s.class, s.task));
    }
    parts.join("; ")
}

/// What the wait before the first send was for.
fn waited_for(w: &WaitedFor) -> String {
    let until = w.until.map_or(String::new(), |at| format!(" until {}", time(at)));
    match w.reason.as_str() {
        "boundary" => format!(" for its scope to open{until}: the provider wanted no call of this quota before"),
        "slot" => " for a free slot of its scope".to_owned(),
        "pacing" => format!("{until} behind others of its scope, which had just opened"),
        other => format!(" for {other}{until}"),
    }
}

/// What was not done because the provider's calls are only watched.
fn would_have(would: &Would) -> String {
    match would {
        Would::Hold { reason, hold_ms: Some(ms) } => format!("it would have waited {} for {reason}", duration(*ms)),
        Would::Hold { reason, hold_ms: None } => format!("it would have waited for {reason}"),
        Would::Join { to, how } => {
            format!("it would have got the result of {to} ({}) and not been sent", how.as_str())
        }
        Would::Refuse { why, of } => {
            let why = match why {
                Refused::AlreadyDone => "which was done",
                Refused::Open => "whose effect is unknown",
                Refused::KeyMismatch => "whose key or reference it has with other content",
            };
            format!("it would not have been sent because of {of}, {why}")
        }
        Would::Retry { wait_ms, reason } => {
            format!("it would have been sent again after {} ({reason})", duration(*wait_ms))
        }
        Would::End { outcome, reason } => format!("it would have ended as {}: {reason}", outcome.as_str()),
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Applied => "it was done",
        Effect::NotApplied => "nothing was done",
        Effect::Unknown => "whether it was done is unknown",
    }
}

/// An enum's name as the journal has it.
fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn time(wall: Wall) -> String {
    at(wall).time_of_day()
}

fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests;
