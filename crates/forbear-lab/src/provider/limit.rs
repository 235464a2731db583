//! Limits that are really enforced, by the time of arrival: sliding window, token bucket, concurrency.
//!
//! All limits that a request is under are asked first and taken only if all of them admit, so that a refusal uses
//! nothing up unless the scenario says `count_refused`. Integer nanoseconds throughout; no refill task.

use std::collections::{BTreeMap, VecDeque};

use super::scenario::LimitSpec;

/// So many scopes a limit keeps apart; the ones beyond share one.
pub(crate) const SCOPES_MAX: usize = 10_000;
const OVERFLOW_SCOPE: &str = "(beyond the bound)";
const NS_PER_MS: u64 = 1_000_000;
/// What a full concurrency limit says of its reset, which nobody can know.
const CONCURRENCY_RETRY_MS: u64 = 1_000;

/// What an answer may say of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitView {
    pub(crate) max: u64,
    pub(crate) remaining: u64,
    pub(crate) retry_after_ms: u64,
    pub(crate) reset_wall_ms: u64,
}

/// A place that must be given back when the request is done.
pub(crate) type Slot = (usize, String);

#[derive(Debug)]
enum State {
    Window(VecDeque<u64>),
    /// Missing tokens in billionths, at an instant.
    Bucket {
        missing_nano: u128,
        at_ns: u64,
    },
    Concurrency(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Limits(BTreeMap<(usize, String), State>);

pub(crate) enum Verdict {
    /// The places taken, and each limit's index and view for its announcements.
    Admitted(Vec<Slot>, Vec<(usize, LimitView)>),
    Refused(usize, LimitView),
}

impl Limits {
    /// `under` are the limits the request is under, each with its scope.
    pub(crate) fn admit(&mut self, specs: &[LimitSpec], under: &[Slot], at_ns: u64, wall_ms: u64) -> Verdict {
        let mut refused = None;
        for (index, scope) in under {
            let state = self.state(*index, &specs[*index], scope);
            if let Err(wait_ns) = ask(&specs[*index], state, at_ns) {
                refused = refused.or(Some((*index, wait_ns)));
            }
        }
        if let Some((index, wait_ns)) = refused {
            for (counted, scope) in under.iter().filter(|(counted, _)| specs[*counted].count_refused) {
                let state = self.state(*counted, &specs[*counted], scope);
                if !matches!(state, State::Concurrency(_)) {
                    take(&specs[*counted], state, at_ns);
                }
            }
            return Verdict::Refused(index, view(&specs[index], 0, wait_ns, wall_ms));
        }
        let mut slots = Vec::new();
        let mut views = Vec::new();
        for (index, scope) in under {
            let spec = &specs[*index];
            let state = self.state(*index, spec, scope);
            take(spec, state, at_ns);
            if let State::Concurrency(_) = state {
                slots.push((*index, scope.clone()));
            }
            let remaining = remaining(spec, state);
            let wait_ns =
                if remaining > 0 { until_full(spec, state, at_ns) } else { ask(spec, state, at_ns).err().unwrap_or(0) };
            views.push((*index, view(spec, remaining, wait_ns, wall_ms)));
        }
        Verdict::Admitted(slots, views)
    }

    pub(crate) fn give_back(&mut self, slots: Vec<Slot>) {
        for slot in slots {
            if let Some(State::Concurrency(used)) = self.0.get_mut(&slot) {
                *used = used.saturating_sub(1);
            }
        }
    }

    fn state(&mut self, index: usize, spec: &LimitSpec, scope: &str) -> &mut State {
        let known = self.0.contains_key(&(index, scope.to_owned()));
        let scope = if known || self.0.len() < SCOPES_MAX { scope } else { OVERFLOW_SCOPE };
        self.0.entry((index, scope.to_owned())).or_insert_with(|| {
            if spec.window.is_some() {
                State::Window(VecDeque::new())
            } else if spec.bucket.is_some() {
                State::Bucket { missing_nano: 0, at_ns: 0 }
            } else {
                State::Concurrency(0)
            }
        })
    }
}

const NANO: u128 = 1_000_000_000;

/// `Err` is how long until one more would be admitted.
fn ask(spec: &LimitSpec, state: &mut State, at_ns: u64) -> Result<(), u64> {
    match (state, &spec.window, &spec.bucket, &spec.concurrency) {
        (State::Window(taken), Some(window), ..) => {
            let per_ns = window.per_ms * NS_PER_MS;
            while taken.front().is_some_and(|first| first.saturating_add(per_ns) <= at_ns) {
                taken.pop_front();
            }
            let max = usize::try_from(window.max).unwrap_or(usize::MAX);
            if taken.len() < max {
                return Ok(());
            }
            // The one whose leaving makes room; later arrivals may already stand behind it.
            let frees = taken.len().checked_sub(max).and_then(|index| taken.get(index));
            Err(frees.map_or(u64::MAX, |taken_ns| taken_ns.saturating_add(per_ns).saturating_sub(at_ns)))
        }
        (State::Bucket { missing_nano, at_ns: last_ns }, _, Some(bucket), _) => {
            let passed_ns = u128::from(at_ns.saturating_sub(*last_ns));
            let per_ns = u128::from(bucket.per_ms) * u128::from(NS_PER_MS);
            let refilled_nano = passed_ns * u128::from(bucket.refill) * NANO / per_ns;
            *missing_nano = missing_nano.saturating_sub(refilled_nano);
            *last_ns = at_ns.max(*last_ns);
            let room_nano = u128::from(bucket.capacity - 1) * NANO;
            let Some(over_nano) = missing_nano.checked_sub(room_nano).filter(|over| *over > 0) else { return Ok(()) };
            let wait_ns = (over_nano * per_ns).div_ceil(u128::from(bucket.refill) * NANO);
            Err(u64::try_from(wait_ns).unwrap_or(u64::MAX))
        }
        (State::Concurrency(used), _, _, Some(limit)) => {
            if *used < limit.max {
                Ok(())
            } else {
                Err(CONCURRENCY_RETRY_MS * NS_PER_MS)
            }
        }
        _ => Ok(()),
    }
}

fn take(spec: &LimitSpec, state: &mut State, at_ns: u64) {
    match state {
        State::Window(taken) => {
            // Arrivals are decided in nearly, not exactly, the order of their first bytes.
            let place = taken.partition_point(|earlier| *earlier <= at_ns);
            taken.insert(place, at_ns);
        }
        State::Bucket { missing_nano, .. } => {
            let capacity_nano = spec.bucket.as_ref().map_or(0, |bucket| u128::from(bucket.capacity) * NANO);
            *missing_nano = (*missing_nano + NANO).min(capacity_nano + NANO);
        }
        State::Concurrency(used) => *used += 1,
    }
}

fn max(spec: &LimitSpec) -> u64 {
    match (&spec.window, &spec.bucket, &spec.concurrency) {
        (Some(window), ..) => window.max,
        (_, Some(bucket), _) => bucket.capacity,
        (_, _, Some(limit)) => limit.max,
        _ => 0,
    }
}

fn remaining(spec: &LimitSpec, state: &State) -> u64 {
    let used = match state {
        State::Window(taken) => taken.len() as u64,
        State::Bucket { missing_nano, .. } => u64::try_from(missing_nano.div_ceil(NANO)).unwrap_or(u64::MAX),
        State::Concurrency(used) => *used,
    };
    max(spec).saturating_sub(used)
}

fn until_full(spec: &LimitSpec, state: &State, at_ns: u64) -> u64 {
    match (state, &spec.window, &spec.bucket) {
        (State::Window(taken), Some(window), _) => {
            taken.back().map_or(0, |last| (last + window.per_ms * NS_PER_MS).saturating_sub(at_ns))
        }
        (State::Bucket { missing_nano, .. }, _, Some(bucket)) => {
            let wait_ns = missing_nano * u128::from(bucket.per_ms * NS_PER_MS) / (u128::from(bucket.refill) * NANO);
            u64::try_from(wait_ns).unwrap_or(u64::MAX)
        }
        _ => 0,
    }
}

fn view(spec: &LimitSpec, remaining: u64, wait_ns: u64, wall_ms: u64) -> LimitView {
    let retry_after_ms = wait_ns.div_ceil(NS_PER_MS).saturating_add_signed(spec.shift_ms);
    LimitView { max: max(spec), remaining, retry_after_ms, reset_wall_ms: wall_ms.saturating_add(retry_after_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NS_PER_MS;

    fn specs(yaml: &str) -> Vec<LimitSpec> {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn admit(limits: &mut Limits, specs: &[LimitSpec], at_ms: u64) -> Result<u64, u64> {
        let under: Vec<Slot> = (0..specs.len()).map(|index| (index, String::new())).collect();
        match limits.admit(specs, &under, at_ms * MS, 0) {
            Verdict::Admitted(_, views) => Ok(views[0].1.remaining),
            Verdict::Refused(_, view) => Err(view.retry_after_ms),
        }
    }

    #[test]
    fn a_sliding_window_counts_arrivals_of_the_last_moments_only() {
        let specs = specs("[{name: w, window: {max: 2, per_ms: 1000}}]");
        let mut limits = Limits::default();
        let got: Vec<_> = [0, 400, 500, 999, 1000, 1001, 1400].map(|at| admit(&mut limits, &specs, at)).into();
        assert_eq!(got, [Ok(1), Ok(0), Err(500), Err(1), Ok(0), Err(399), Ok(0)]);
    }

    #[test]
    fn refused_arrivals_count_where_the_provider_says_so() {
        let specs = specs("[{name: w, window: {max: 1, per_ms: 1000}, count_refused: true}]");
        let mut limits = Limits::default();
        let got: Vec<_> = [0, 900, 1800, 2800].map(|at| admit(&mut limits, &specs, at)).into();
        assert_eq!(got, [Ok(0), Err(100), Err(100), Ok(0)]);
    }

    #[test]
    fn a_bucket_refills_continuously() {
        let specs = specs("[{name: b, bucket: {capacity: 3, refill: 1, per_ms: 100}}]");
        let mut limits = Limits::default();
        let got: Vec<_> = [0, 0, 0, 0, 99, 100, 150, 1000].map(|at| admit(&mut limits, &specs, at)).into();
        assert_eq!(got, [Ok(2), Ok(1), Ok(0), Err(100), Err(1), Ok(0), Err(50), Ok(2)]);
    }

    #[test]
    fn all_limits_are_asked_before_any_is_taken() {
        let specs =
            specs("[{name: c, concurrency: {max: 9}}, {name: w, window: {max: 1, per_ms: 1000}, shift_ms: -300}]");
        let mut limits = Limits::default();
        assert_eq!(admit(&mut limits, &specs, 0), Ok(8));
        assert_eq!(admit(&mut limits, &specs, 1), Err(699), "shifted by the lie");
        assert_eq!(admit(&mut limits, &specs, 1000), Ok(7), "the refused one held no slot");
        limits.give_back(vec![(0, String::new()), (0, String::new())]);
        assert_eq!(admit(&mut limits, &specs, 2000), Ok(8));
    }
}
