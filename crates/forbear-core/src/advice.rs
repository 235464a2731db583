//! Advice: when a run does in many calls what the provider offers in few, the answer carries the contract's better way.
//!
//! It promises to tell each way once a run, to decide nothing by it, and to be bounded: [`RUNS_MAX`] runs, of each
//! [`ROUTES_MAX`] routes that a contract has advice for, of each [`TARGETS_MAX`] targets. It is forgotten with the process;
//! at a bound the run that was silent for longest is forgotten, and what is beyond is not looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::classify::Kind;
use crate::contract::AdviceKind;
use crate::coordinator::Coordinator;
use crate::ids::{ActionId, Route, RunId, ScopeId};
use crate::register::WaitReason;
use crate::time::{Mono, Now};

pub const RUNS_MAX: usize = 1_000;
pub const ROUTES_MAX: usize = 32;
pub const TARGETS_MAX: usize = MANY_DETAILS;
/// So many targets of one route are many.
const MANY_DETAILS: usize = 20;
/// The same answer of one target, so many times.
const POLLS: u32 = 6;
/// Pages of one route, if the limit stood in their way.
const PAGES: u32 = 3;
/// What lies further apart belongs to no loop.
const LOOP_GAP_MS: u64 = 60_000;

/// A better way, as the answer says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub when: AdviceKind,
    pub text: Arc<str>,
}

/// A call whose route a contract has advice for.
#[derive(Debug, Clone)]
pub struct Advisable {
    pub ways: Arc<[Way]>,
    /// Which of the route's targets it is, its query aside.
    pub path: u64,
    /// The same with the query.
    pub target: u64,
    /// It asks for one page of many.
    pub is_page: bool,
}

/// What its answer was.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// What stays the same while the answer does; absent where the answer does not say.
    unchanged: Option<u64>,
    is_plain_success: bool,
    /// The provider's limit stood in its way.
    was_limited: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Advisor {
    runs: BTreeMap<(ScopeId, RunId), Run>,
}

#[derive(Debug, Default)]
struct Run {
    last: Mono,
    routes: BTreeMap<Route, OfRoute>,
    told: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
struct OfRoute {
    last: Mono,
    paths: Vec<u64>,
    targets: Vec<Target>,
    pages: u32,
    /// A page met the limit.
    limited: bool,
}

#[derive(Debug)]
struct Target {
    target: u64,
    unchanged: u64,
    times: u32,
}

impl Coordinator {
    /// What the run of a call is told with the answer that is about to be relayed to it, if anything. `unchanged` is what the
    /// answer says of its version. A run that has no name is one call, and told nothing.
    pub fn advise(
        &mut self,
        now: Now,
        action: ActionId,
        asked: &Advisable,
        unchanged: Option<u64>,
    ) -> Option<Arc<str>> {
        let live = self.live.get(&action)?;
        let (request, last) = (&live.request, live.last.as_ref()?);
        if request.run.as_str() == action.text().as_str() {
            return None;
        }
        let kind = last.classification.kind;
        let held = matches!(live.waited_for, Some((WaitReason::Boundary, _)));
        let seen = Seen {
            unchanged,
            is_plain_success: kind == Kind::Success && last.status < 300,
            was_limited: held || live.first_refusal.is_some() || kind == Kind::Throttled,
        };
        let run = (request.scope.clone(), request.run.clone());
        self.advisor.note(now.mono, run, &request.route, asked, seen)
    }
}

impl Advisor {
    fn note(
        &mut self,
        now: Mono,
        run: (ScopeId, RunId),
        route: &Route,
        asked: &Advisable,
        seen: Seen,
    ) -> Option<Arc<str>> {
        if self.runs.len() >= RUNS_MAX && !self.runs.contains_key(&run) {
            let silent = self.runs.iter().min_by_key(|(_, run)| run.last).map(|(run, _)| run.clone())?;
            self.runs.remove(&silent);
        }
        let run = self.runs.entry(run).or_default();
        run.last = now;
        if run.routes.len() >= ROUTES_MAX && !run.routes.contains_key(route) {
            return None;
        }
        let of_route = run.routes.entry(route.clone()).or_default();
        of_route.note(now, asked, seen);
        let way = asked.ways.iter().find(|way| of_route.calls_for(way.when) && !run.told.contains(&way.text))?;
        run.told.push(Arc::clone(&way.text));
        Some(Arc::clone(&way.text))
    }
}

impl OfRoute {
    fn note(&mut self, now: Mono, asked: &Advisable, seen: Seen) {
        if now.ms_since(self.last) > LOOP_GAP_MS {
            *self = Self::default();
        }
        self.last = now;
        if asked.is_page {
            self.pages = self.pages.saturating_add(1);
            self.limited |= seen.was_limited;
        }
        if !seen.is_plain_success {
            return;
        }
        if !self.paths.contains(&asked.path) && self.paths.len() < TARGETS_MAX {
            self.paths.push(asked.path);
        }
        let Some(unchanged) = seen.unchanged else { return };
        let has_room = self.targets.len() < TARGETS_MAX;
        match self.targets.iter_mut().find(|t| t.target == asked.target) {
            Some(target) if target.unchanged == unchanged => target.times = target.times.saturating_add(1),
            Some(target) => (target.unchanged, target.times) = (unchanged, 1),
            None if has_room => {
                self.targets.push(Target { target: asked.target, unchanged, times: 1 });
            }
            None => {}
        }
    }

    fn calls_for(&self, when: AdviceKind) -> bool {
        match when {
            AdviceKind::ManyDetails => self.paths.len() >= MANY_DETAILS,
            AdviceKind::Polling => self.targets.iter().any(|t| t.times >= POLLS),
            AdviceKind::Paging => self.limited && self.pages >= PAGES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Seen = Seen { unchanged: Some(1), is_plain_success: true, was_limited: false };

    fn asked(target: u64) -> Advisable {
        let way = |when, text: &str| Way { when, text: text.into() };
        let ways = [
            way(AdviceKind::ManyDetails, "details"),
            way(AdviceKind::Polling, "polling"),
            way(AdviceKind::Paging, "paging"),
        ];
        Advisable { ways: ways.into(), path: target, target, is_page: false }
    }

    fn run(name: &str) -> (ScopeId, RunId) {
        (ScopeId::new("p/k"), RunId::new(name))
    }

    /// What is told over a sequence of calls, one a second.
    fn told(calls: impl IntoIterator<Item = (Advisable, Seen)>) -> Vec<(usize, String)> {
        let mut advisor = Advisor::default();
        let route = Route::new("GET /things/{id}");
        let calls = calls.into_iter().enumerate();
        let told = calls.filter_map(|(i, (asked, seen))| {
            let now = Mono(0).plus_ms(1_000 * i as u64);
            advisor.note(now, run("r"), &route, &asked, seen).map(|text| (i, text.to_string()))
        });
        told.collect()
    }

    #[test]
    fn many_targets_of_one_route_are_told_once() {
        assert_eq!(told((0..60).map(|i| (asked(i), PLAIN))), [(19, "details".to_owned())]);
        assert_eq!(told((0..60).map(|i| (asked(i % 19), Seen { unchanged: None, ..PLAIN }))), []);
        let failed = Seen { is_plain_success: false, ..PLAIN };
        assert_eq!(told((0..60).map(|i| (asked(i), failed))), []);
    }

    #[test]
    fn the_same_answer_again_and_again_is_polling_and_a_changed_one_begins_anew() {
        assert_eq!(told((0..20).map(|_| (asked(1), PLAIN))), [(5, "polling".to_owned())]);
        let changing = (0..20).map(|i| (asked(1), Seen { unchanged: Some(i / 5), ..PLAIN }));
        assert_eq!(told(changing), []);
    }

    #[test]
    fn pages_are_told_of_only_where_the_limit_stood_in_their_way() {
        let page = |i, was_limited| {
            let seen = Seen { unchanged: None, was_limited, ..PLAIN };
            (Advisable { is_page: true, path: 1, ..asked(i) }, seen)
        };
        assert_eq!(told((0..9).map(|i| page(i, false))), []);
        assert_eq!(told((0..9).map(|i| page(i, i == 4))), [(4, "paging".to_owned())]);
        assert_eq!(told((0..9).map(|i| page(i, i == 0))), [(2, "paging".to_owned())]);
    }

    #[test]
    fn what_lies_far_apart_is_no_loop_and_what_was_told_stays_told() {
        let mut advisor = Advisor::default();
        let route = Route::new("GET /things/{id}");
        let mut tell = |at_ms, target| advisor.note(Mono(0).plus_ms(at_ms), run("r"), &route, &asked(target), PLAIN);
        assert!((0..60).all(|i| tell(i * (LOOP_GAP_MS + 1), i).is_none()));
        let begin = 100 * LOOP_GAP_MS;
        assert_eq!((0..60).filter(|i| tell(begin + i, *i).is_some()).count(), 1);
        assert!((0..60).all(|i| tell(begin + 2 * LOOP_GAP_MS + i, i).is_none()));
    }

    #[test]
    fn runs_are_told_apart_and_bounded() {
        let mut advisor = Advisor::default();
        let route = Route::new("GET /things/{id}");
        for (i, at) in (0..2 * RUNS_MAX as u64).enumerate() {
            let said = advisor.note(Mono(at), run(&format!("r{i}")), &route, &asked(at), PLAIN);
            assert_eq!(said, None, "many targets, of many runs");
        }
        assert_eq!(advisor.runs.len(), RUNS_MAX);
        assert!(advisor.runs.contains_key(&run(&format!("r{}", 2 * RUNS_MAX - 1))));
        for i in 0..2 * ROUTES_MAX {
            advisor.note(Mono(9_999), run("r"), &Route::new(&format!("GET /r{i}")), &asked(1), PLAIN);
        }
        assert_eq!(advisor.runs[&run("r")].routes.len(), ROUTES_MAX);
    }
}
