//! Whether a policy makes sense. Pure: the server lays each [`Fault`] over the line of the file that it came from.
//!
//! It finds everything at once, and it says of each fault what happened apart from what to do.

mod contract;
mod header;
mod lookup;
mod quota;

use super::{ClassRule, Policy, Rank};

/// Sends of one action: above this it is no retry policy but a loop.
pub(super) const ATTEMPTS_MAX: u32 = 100;
/// Any wait or deadline: a month.
pub(super) const SECONDS_MAX: u64 = 31 * 24 * 3600;
/// Slots, places and retries of one scope.
pub(super) const SCOPE_MAX: u32 = 1_000_000;
/// Turns of one class beside one of another.
const WEIGHT_MAX: u64 = 1_000;
pub(super) const CLASSES_MAX: usize = 64;
pub(super) const PROVIDERS_MAX: usize = 256;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Keys and list places from the policy's root: `providers`, `shop`, `routes`, `0`, `class`.
    pub at: Vec<String>,
    pub kind: FaultKind,
    pub happened: String,
    pub hint: String,
    /// Names that would have been right here.
    pub candidates: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A number outside its bounds.
    OutOfBounds,
    /// Two values that cannot both be meant.
    Contradiction,
    /// A class without a rank, or a built-in one with another's.
    Rank,
    /// A resend on hope of something that may have a lasting effect.
    UnsafeResend,
    UnknownClass,
    BadRoute,
    /// A write is called idempotent, and nothing makes it so.
    NoKey,
    BadUrl,
    /// A URL with user and password: nothing may show it.
    CredentialInUrl,
    /// Credentials and contents in the clear. A warning.
    PlainHttp,
    BadHeader,
    BadCode,
    BadName,
    TooMany,
}

impl Fault {
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        matches!(self.kind, FaultKind::PlainHttp)
    }

    fn new(at: &[&str], kind: FaultKind, happened: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            at: at.iter().map(|s| (*s).into()).collect(),
            kind,
            happened: happened.into(),
            hint: hint.into(),
            candidates: Vec::new(),
        }
    }
}

/// Everything that is wrong with a policy, in the order of its members.
#[must_use]
pub fn check(policy: &Policy) -> Vec<Fault> {
    let mut faults = Vec::new();
    if policy.request_classes.len() > CLASSES_MAX {
        faults.push(too_many("request_classes", policy.request_classes.len(), CLASSES_MAX));
    }
    for (name, rule) in &policy.request_classes {
        class(name, rule, &mut faults);
    }
    for rank in Rank::ALL {
        if !policy.request_classes.contains_key(rank.class()) {
            let happened = format!("the built-in class `{}` is missing", rank.class());
            faults.push(Fault::new(
                &["request_classes"],
                FaultKind::Rank,
                happened,
                "a built-in class can be changed, not left out",
            ));
        }
    }
    contract::scope(&["shared_scope"], policy.shared_scope, &mut faults);
    seconds(&["task", "max_wait_seconds"], policy.task.max_wait_seconds, &mut faults);
    backoff(policy, &mut faults);
    if policy.providers.len() > PROVIDERS_MAX {
        faults.push(too_many("providers", policy.providers.len(), PROVIDERS_MAX));
    }
    for (name, provider) in &policy.providers {
        contract::contract(policy, name, provider, &mut faults);
    }
    faults
}

fn too_many(what: &str, is: usize, most: usize) -> Fault {
    Fault::new(&[what], FaultKind::TooMany, format!("{is} of them; {most} is the most"), "remove some")
}

fn bounds(at: &[&str], is: u64, least: u64, most: u64, faults: &mut Vec<Fault>) {
    if !(least..=most).contains(&is) {
        faults.push(Fault::new(
            at,
            FaultKind::OutOfBounds,
            format!("{is} is not between {least} and {most}"),
            format!("a number from {least} to {most}"),
        ));
    }
}

fn seconds(at: &[&str], is: u64, faults: &mut Vec<Fault>) {
    bounds(at, is, 0, SECONDS_MAX, faults);
}

fn class(name: &str, rule: &ClassRule, faults: &mut Vec<Fault>) {
    let at = |key| ["request_classes", name, key];
    let whole: &[&str] = &["request_classes", name];
    if !is_name(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
        faults.push(Fault::new(
            whole,
            FaultKind::BadName,
            format!("`{name}` cannot be the name of a class"),
            "lower-case letters, digits and `_`, 64 at most, a letter first",
        ));
    }
    let rank = match (Rank::built_in(name), rule.rank) {
        (Some(own), Some(other)) if own != other => {
            let happened = format!("the built-in class `{name}` has its own rank");
            faults.push(Fault::new(&at("rank"), FaultKind::Rank, happened, "add a class of your own for another rank"));
            own
        }
        (Some(own), _) | (None, Some(own)) => own,
        (None, None) => {
            let mut fault = Fault::new(
                whole,
                FaultKind::Rank,
                format!("`{name}` is no built-in class and says no rank"),
                "add `rank:` with the built-in class whose rules of evidence it follows: read, inference, \
                 idempotent_write or uncertain_write",
            );
            fault.candidates = Rank::ALL.iter().map(|r| r.class().into()).collect();
            faults.push(fault);
            Rank::UncertainWrite
        }
    };
    bounds(&at("max_attempts"), rule.max_attempts.into(), 1, ATTEMPTS_MAX.into(), faults);
    for key in [
        ("max_wait_seconds", rule.max_wait_seconds),
        ("max_queue_seconds", rule.max_queue_seconds),
        ("deadline_seconds", rule.deadline_seconds.saturating_sub(1)),
    ] {
        seconds(&at(key.0), key.1, faults);
    }
    if rule.deadline_seconds == 0 {
        bounds(&at("deadline_seconds"), 0, 1, SECONDS_MAX, faults);
    }
    bounds(&at("unsent_resends"), rule.unsent_resends.into(), 0, ATTEMPTS_MAX.into(), faults);
    for (i, status) in rule.retry_statuses.iter().enumerate() {
        let place = i.to_string();
        bounds(&["request_classes", name, "retry_statuses", &place], (*status).into(), 400, 599, faults);
    }
    if rule.unknown_resends > 0 && rank.writes() {
        faults.push(Fault::new(
            &at("unknown_resends"),
            FaultKind::UnsafeResend,
            format!("a write of class `{name}` would be sent again while nobody knows whether it took effect"),
            "leave it at 0: such a write is looked up or put before a person; a route whose repetition is harmless says \
             `repeatable: true`",
        ));
    } else if rule.unknown_resends > 0 && rule.unknown_resends >= rule.max_attempts {
        faults.push(Fault::new(
            &at("unknown_resends"),
            FaultKind::Contradiction,
            format!("{} resends do not fit into {} attempts", rule.unknown_resends, rule.max_attempts),
            "the first send counts as an attempt: fewer resends, or a higher max_attempts",
        ));
    }
}

fn backoff(policy: &Policy, faults: &mut Vec<Fault>) {
    let rule = policy.backoff;
    bounds(&["backoff", "cap_ms"], rule.cap_ms, 1, SECONDS_MAX * 1_000, faults);
    bounds(&["backoff", "floor_ms"], rule.floor_ms, 1, SECONDS_MAX * 1_000, faults);
    bounds(&["backoff", "base_ms"], rule.base_ms, 1, SECONDS_MAX * 1_000, faults);
    bounds(&["pacing", "release_gap_ms"], policy.pacing.release_gap_ms, 0, 3_600_000, faults);
    bounds(&["pacing", "jitter_ms"], policy.pacing.jitter_ms, 0, 3_600_000, faults);
    bounds(&["pacing", "target_share_bp"], policy.pacing.target_share_bp, 1, 10_000, faults);
    bounds(&["pacing", "arrival_spread_ms"], policy.pacing.arrival_spread_ms, 0, 60_000, faults);
    let fairness = policy.fairness;
    for (key, is) in [
        ("interactive_weight", fairness.interactive_weight),
        ("normal_weight", fairness.normal_weight),
        ("background_weight", fairness.background_weight),
    ] {
        bounds(&["fairness", key], is.into(), 1, WEIGHT_MAX, faults);
    }
    let breakers = policy.breakers;
    bounds(&["breakers", "open_seconds"], breakers.open_seconds, 1, 86_400, faults);
    bounds(&["breakers", "scope_open_seconds"], breakers.scope_open_seconds, 1, 3_600, faults);
    for (key, is) in [("floor_ms", rule.floor_ms), ("base_ms", rule.base_ms)] {
        if is > rule.cap_ms {
            faults.push(Fault::new(
                &["backoff", key],
                FaultKind::Contradiction,
                format!("{key} {is} is above cap_ms {}", rule.cap_ms),
                "lower it, or raise cap_ms",
            ));
        }
    }
}

fn is_name(name: &str, allowed: impl Fn(u8) -> bool) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(allowed)
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests;
