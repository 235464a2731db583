//! What the types cannot say: answers that contradict themselves, limits that could never admit, bounds.

use base64::Engine as _;

use super::step::{At, Fault, Step};
use super::{Document, LimitSpec, Route};

const ROUTES_MAX: usize = 1_000;
const STEPS_MAX: usize = 10_000;
const BYTES_MAX: u64 = 256 * 1024 * 1024;
const EVENTS_REPEAT_MAX: u32 = 100_000;

type Checked = Result<(), (String, String)>;

pub(super) fn check(document: &Document) -> Checked {
    bound("routes", document.routes.len(), ROUTES_MAX)?;
    for (i, route) in document.routes.iter().enumerate() {
        check_route(&format!("routes[{i}] ({})", route.pattern.source()), route)?;
    }
    for (i, limit) in document.limits.iter().enumerate() {
        check_limit(&format!("limits[{i}] ({})", limit.name), limit)?;
    }
    if let Some(step) = &document.unmatched {
        check_step("unmatched", step)?;
    }
    if let Some(bytes) = document.http2.max_frame_bytes
        && !(16_384..=16_777_215).contains(&bytes)
    {
        return wrong("http2.max_frame_bytes", "must be between 16384 and 16777215");
    }
    Ok(())
}

fn check_route(at: &str, route: &Route) -> Checked {
    if route.respond.is_some() && !route.then.is_empty() {
        return wrong(at, "give `respond` (one answer) or `then` (a sequence), not both");
    }
    bound(at, route.then.len(), STEPS_MAX)?;
    for (i, step) in route.respond.iter().chain(&route.then).enumerate() {
        check_step(&format!("{at} answer {i}"), step)?;
    }
    if let Some(keys) = &route.idempotency {
        if keys.header.is_some() == keys.body.is_some() {
            return wrong(at, "`idempotency` needs one of `header` and `body`, to know where the key is");
        }
        let answers = [&keys.in_progress, &keys.mismatch, &keys.repeated, &keys.missing];
        for step in answers.into_iter().flatten() {
            check_step(&format!("{at} idempotency"), step)?;
        }
    }
    Ok(())
}

fn check_limit(at: &str, limit: &LimitSpec) -> Checked {
    let kinds = [limit.window.is_some(), limit.bucket.is_some(), limit.concurrency.is_some()];
    if kinds.into_iter().filter(|given| *given).count() != 1 {
        return wrong(at, "needs exactly one of `window`, `bucket` and `concurrency`");
    }
    if limit.window.as_ref().is_some_and(|window| window.per_ms == 0) {
        return wrong(at, "`per_ms` must be above 0");
    }
    if let Some(bucket) = &limit.bucket
        && (bucket.per_ms == 0 || bucket.refill == 0 || bucket.capacity == 0)
    {
        return wrong(at, "`capacity`, `refill` and `per_ms` must be above 0");
    }
    if matches!(limit.per, super::Per::Body(_)) {
        return wrong(at, "a limit is decided at the head; it cannot be `per: {body: ...}`");
    }
    limit.answer.as_ref().map_or(Ok(()), |step| check_step(at, step))
}

fn check_step(at: &str, step: &Step) -> Checked {
    let contents =
        [step.body.is_some(), step.base64.is_some(), step.bytes.is_some(), !step.events.is_empty(), step.raw.is_some()];
    if contents.into_iter().filter(|given| *given).count() > 1 {
        return wrong(at, "give at most one of `body`, `base64`, `bytes`, `events` and `raw`");
    }
    if !(200..=999).contains(&step.status) {
        return wrong(at, "`status` must be 200 to 999; 1xx belong in `informational`");
    }
    if step.informational.iter().any(|head| !(100..=199).contains(&head.status) || head.status == 101) {
        return wrong(at, "an `informational` status is 100 or 102 to 199");
    }
    if step.bytes.is_some_and(|bytes| bytes > BYTES_MAX) {
        return wrong(at, &format!("`bytes` may be at most {BYTES_MAX}"));
    }
    if step.chunk_bytes == Some(0) {
        return wrong(at, "`chunk_bytes` must be above 0");
    }
    if step.events.iter().any(|event| event.repeat.is_some_and(|times| times > EVENTS_REPEAT_MAX)) {
        return wrong(at, &format!("`repeat` may be at most {EVENTS_REPEAT_MAX}"));
    }
    if let Some(text) = &step.base64
        && base64::engine::general_purpose::STANDARD.decode(text).is_err()
    {
        return wrong(at, "`base64` does not decode");
    }
    if step.early && (step.effect.is_some() || step.lookup.is_some()) {
        return wrong(at, "an `early` answer comes before the body is read, so it can have no `effect` or `lookup`");
    }
    if let Some(lookup) = &step.lookup {
        if lookup.by.is_empty() && lookup.within.is_empty() {
            return wrong(at, "`lookup` needs a field in `by` or `within`");
        }
        if let Some(missing) = &lookup.missing {
            check_step(&format!("{at} lookup.missing"), missing)?;
        }
    }
    step.fault.as_ref().map_or(Ok(()), |fault| check_fault(at, step, fault))
}

fn check_fault(at: &str, step: &Step, fault: &Fault) -> Checked {
    let bytes_allowed = matches!(fault.at, At::MidHead | At::MidBody);
    if fault.after_bytes.is_some() != bytes_allowed {
        return wrong(at, "`after_bytes` goes with `mid_head` and `mid_body`, which need it");
    }
    if fault.after_events.is_some() != (fault.at == At::MidStream) {
        return wrong(at, "`after_events` goes with `mid_stream`, which needs it");
    }
    if fault.at == At::MidStream && step.events.is_empty() {
        return wrong(at, "`mid_stream` needs `events`");
    }
    Ok(())
}

fn bound(at: &str, len: usize, max: usize) -> Checked {
    if len > max { wrong(at, &format!("at most {max}, not {len}")) } else { Ok(()) }
}

fn wrong(at: &str, what: &str) -> Checked {
    Err((at.to_owned(), what.to_owned()))
}
