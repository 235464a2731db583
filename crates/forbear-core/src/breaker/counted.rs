//! What is counted until a circuit opens, and who is let through one that is. Known to the process only.

use std::collections::BTreeMap;

use super::{BreakerRule, CIRCUITS_MAX, Circuit, Circuits, Opened};
use crate::classify::Kind;
use crate::effect::Evidence;
use crate::ids::{ActionId, Digest, Route, RunId, ScopeId, TenantId};
use crate::input::{HeadSeen, Report, Request};
use crate::time::{Mono, Now};

/// Things that are counted, of each sort; at the bound those that failed longest ago are forgotten, or all.
const COUNTED_MAX: usize = 4_096;
/// Requests of one path that are told apart, and routes of one scope. A circuit opens long before.
const APART_MAX: usize = 64;
/// A probe that has not ended by then does not keep others from being one.
const PROBE_LEASE_MS: u64 = 60_000;

/// In which run, and on which route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Path {
    owner: TenantId,
    run: Option<RunId>,
    route: Route,
}

impl Path {
    fn of(request: &Request) -> Self {
        let run = request.run_named.then(|| request.run.clone());
        Self { owner: request.owner(), run, route: request.route.clone() }
    }
}

/// What makes two failures the same one.
type Code = (u16, Option<String>);

/// Failures of one path with one code since its last success.
#[derive(Debug, Default)]
struct Failing {
    all: u32,
    /// By request. What has no digest is another one each time.
    equal: BTreeMap<Digest, u32>,
    last: Mono,
}

/// Attempts of a scope that came to nothing since the last that did not.
#[derive(Debug, Default)]
struct Sick {
    all: u32,
    by_route: BTreeMap<Route, u32>,
}

/// A circuit's part that the process knows alone.
#[derive(Debug)]
struct Open {
    opened: Opened,
    until: Mono,
    probe: Option<(ActionId, Mono)>,
}

#[derive(Debug, Default)]
pub(crate) struct Breakers {
    failing: BTreeMap<(Path, Code), Failing>,
    unauthorized: BTreeMap<TenantId, u32>,
    unhealthy: BTreeMap<ScopeId, Sick>,
    open: BTreeMap<Circuit, Open>,
}

/// What an attempt means for the circuits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub open: Vec<(Circuit, u32)>,
    pub close: Vec<(Circuit, &'static str)>,
}

/// How an attempt ended the call it was made for, as far as breakers care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Succeeded,
    Refused,
    /// It goes on, or nobody can say.
    Open,
}

impl Breakers {
    /// What was open when the process began.
    pub(crate) fn resume(&mut self, now: Now, rule: &BreakerRule, circuits: &Circuits) {
        // Not longer than if it had opened now: the clock that wrote it may be ahead of this one.
        let until = |opened: &Opened| now.mono_at(opened.until).min(now.mono.plus_ms(rule.open_ms(&opened.circuit)));
        let open = |opened: &Opened| Open { opened: opened.clone(), until: until(opened), probe: None };
        self.open = circuits.iter().map(|opened| (opened.circuit.clone(), open(opened))).collect();
    }

    pub(crate) fn opened(&mut self, opened: Opened, until: Mono) {
        self.open.insert(opened.circuit.clone(), Open { opened, until, probe: None });
        // The record forgets at the same bound; which one it was does not matter to who is let through.
        if self.open.len() > CIRCUITS_MAX {
            let first = self.open.iter().min_by_key(|(_, open)| open.until).map(|(circuit, _)| circuit.clone());
            first.map(|circuit| self.open.remove(&circuit));
        }
    }

    pub(crate) fn closed(&mut self, circuit: &Circuit) {
        self.open.remove(circuit);
    }

    /// Why this call is not sent, and until when; `is_live` says whether a probe is still there.
    pub(crate) fn blocking(
        &self,
        now: Mono,
        request: &Request,
        is_live: impl Fn(ActionId) -> bool,
    ) -> Option<(&Opened, Mono)> {
        if self.open.is_empty() {
            return None;
        }
        let blocks = |open: &&Open| {
            let probed = open.probe.is_some_and(|(by, until)| by != request.action && now < until && is_live(by));
            now < open.until || probed
        };
        let found = covering(request).into_iter().flatten().find_map(|c| self.open.get(&c).filter(blocks));
        found.map(|open| (&open.opened, open.until))
    }

    /// This call is let through: it is the probe of whatever stood in its way.
    pub(crate) fn lease(&mut self, now: Mono, request: &Request) {
        if self.open.is_empty() {
            return;
        }
        for circuit in covering(request).into_iter().flatten() {
            if let Some(open) = self.open.get_mut(&circuit) {
                open.probe = Some((request.action, now.plus_ms(PROBE_LEASE_MS)));
            }
        }
    }

    /// Counts what an attempt showed.
    pub(crate) fn weigh(
        &mut self,
        now: Mono,
        rule: &BreakerRule,
        request: &Request,
        report: &Report,
        end: CallEnd,
    ) -> Change {
        let mut change = Change::default();
        self.health(now, rule, request, report, &mut change);
        let Some(head) = &report.answer else { return change };
        self.credential(now, rule, request, head, &mut change);
        match end {
            CallEnd::Succeeded => self.path_succeeded(request, &mut change),
            CallEnd::Refused => self.path_failed(now, rule, request, head, &mut change),
            CallEnd::Open => {}
        }
        change
    }

    fn health(&mut self, now: Mono, rule: &BreakerRule, request: &Request, report: &Report, change: &mut Change) {
        let is_sick = match &report.answer {
            Some(head) => match head.classification.kind {
                Kind::Unavailable => true,
                // Whoever stands before the provider got no answer from it. A 500 may be the request's own fault.
                Kind::Transient => matches!(head.status, 502 | 504),
                _ => false,
            },
            None => matches!(report.evidence, Evidence::NotSent | Evidence::Unknown),
        };
        if is_sick {
            self.came_to_nothing(now, rule, request, change);
        } else {
            self.is_well(request, change);
        }
    }

    fn is_well(&mut self, request: &Request, change: &mut Change) {
        if let Some(sick) = self.unhealthy.get_mut(&request.scope) {
            sick.all = 0;
            sick.by_route.remove(&request.route);
            if sick.by_route.is_empty() {
                self.unhealthy.remove(&request.scope);
            }
        }
        if self.open.is_empty() {
            return;
        }
        for circuit in health_circuits(request) {
            if self.open.contains_key(&circuit) {
                change.close.push((circuit, "the provider answers again"));
            }
        }
    }

    fn came_to_nothing(&mut self, now: Mono, rule: &BreakerRule, request: &Request, change: &mut Change) {
        if rule.scope_failures == 0 {
            return;
        }
        if self.unhealthy.len() >= COUNTED_MAX && !self.unhealthy.contains_key(&request.scope) {
            self.unhealthy.clear();
        }
        let sick = self.unhealthy.entry(request.scope.clone()).or_default();
        sick.all = sick.all.saturating_add(1);
        if sick.by_route.len() >= APART_MAX && !sick.by_route.contains_key(&request.route) {
            sick.by_route.clear();
        }
        let on_route = sick.by_route.entry(request.route.clone()).or_default();
        *on_route = on_route.saturating_add(1);
        let on_route = *on_route;
        // One route that is down says nothing of the others.
        let all = if sick.by_route.len() > 1 { sick.all } else { 0 };
        let [of_route, of_scope] = health_circuits(request);
        for (circuit, failures) in [(of_route, on_route), (of_scope, all)] {
            if failures >= rule.scope_failures && self.may_open(now, &circuit) {
                change.open.push((circuit, failures));
            }
        }
    }

    fn credential(&mut self, now: Mono, rule: &BreakerRule, request: &Request, head: &HeadSeen, change: &mut Change) {
        if head.status != 401 && self.unauthorized.is_empty() && self.open.is_empty() {
            return;
        }
        let owner = request.owner();
        let circuit = Circuit::Credential { owner: owner.clone() };
        if head.status != 401 {
            self.unauthorized.remove(&owner);
            if self.open.contains_key(&circuit) {
                change.close.push((circuit, "the credential is taken again"));
            }
            return;
        }
        if rule.unauthorized == 0 {
            return;
        }
        if self.unauthorized.len() >= COUNTED_MAX && !self.unauthorized.contains_key(&owner) {
            self.unauthorized.clear();
        }
        let failures = self.unauthorized.entry(owner).or_default();
        *failures = failures.saturating_add(1);
        let failures = *failures;
        if failures >= rule.unauthorized && self.may_open(now, &circuit) {
            change.open.push((circuit, failures));
        }
    }

    fn path_succeeded(&mut self, request: &Request, change: &mut Change) {
        if !self.failing.is_empty() {
            let path = Path::of(request);
            let codes: Vec<_> = self.of_path(&path).cloned().collect();
            for key in codes {
                self.failing.remove(&key);
            }
        }
        for circuit in path_circuits(request).into_iter().flatten() {
            if self.open.contains_key(&circuit) {
                change.close.push((circuit, "it succeeded"));
            }
        }
    }

    fn of_path<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a (Path, Code)> {
        let from = (path.clone(), (0, None));
        self.failing.range(from..).map(|(key, _)| key).take_while(move |(of, _)| of == path)
    }

    fn path_failed(&mut self, now: Mono, rule: &BreakerRule, request: &Request, head: &HeadSeen, change: &mut Change) {
        let is_missing = matches!(head.status, 404 | 410) && !request.rank.writes();
        if is_missing && !request.run_named {
            // Somebody waits for a thing to be there, perhaps.
            return;
        }
        let code = (head.status, head.classification.code.clone());
        let key = (Path::of(request), code);
        self.make_room(&key);
        let failing = self.failing.entry(key).or_default();
        if now.ms_since(failing.last) > rule.open_seconds.saturating_mul(1_000) {
            *failing = Failing::default();
        }
        failing.last = now;
        failing.all = failing.all.saturating_add(1);
        let all = failing.all;
        let equal = request.request_digest.map_or(0, |digest| {
            // More of them than open a path are not told apart.
            if failing.equal.len() >= APART_MAX && !failing.equal.contains_key(&digest) {
                failing.equal.clear();
            }
            let n = failing.equal.entry(digest).or_default();
            *n = n.saturating_add(1);
            *n
        });
        let [of_request, of_path] = path_circuits(request);
        let bounds = [(of_request, equal, rule.equal_failures), (of_path, all, rule.changed_failures)];
        for (circuit, failures, max) in bounds {
            let Some(circuit) = circuit else { continue };
            let is_path = matches!(circuit, Circuit::Path { .. });
            match self.open.get(&circuit) {
                // A probe, or one that left before it had opened.
                Some(open)
                    if open.opened.status == Some(head.status) && open.opened.code == head.classification.code =>
                {
                    if open.until <= now {
                        let failures = open.opened.failures.saturating_add(1);
                        change.open.push((circuit, failures));
                    }
                }
                Some(open) if open.until <= now => change.close.push((circuit, "it fails in another way")),
                Some(_) => {}
                None if max == 0 || failures < max || (is_path && is_missing) => {}
                None => change.open.push((circuit, failures)),
            }
        }
    }

    fn make_room(&mut self, key: &(Path, Code)) {
        if self.failing.len() < COUNTED_MAX || self.failing.contains_key(key) {
            return;
        }
        let mut ages: Vec<Mono> = self.failing.values().map(|failing| failing.last).collect();
        ages.sort_unstable();
        let newer = ages.get(COUNTED_MAX / 2).copied().unwrap_or(Mono(u64::MAX));
        self.failing.retain(|_, failing| failing.last > newer);
    }

    /// It is not open, or its time is up: then this failure was its probe's, or as good.
    fn may_open(&self, now: Mono, circuit: &Circuit) -> bool {
        self.open.get(circuit).is_none_or(|open| open.until <= now)
    }
}

/// All circuits that would keep a call from being sent.
fn covering(request: &Request) -> [Option<Circuit>; 5] {
    let [of_request, of_path] = path_circuits(request);
    let [of_route, of_scope] = health_circuits(request);
    [of_request, of_path, Some(Circuit::Credential { owner: request.owner() }), Some(of_route), Some(of_scope)]
}

fn health_circuits(request: &Request) -> [Circuit; 2] {
    let scope = request.scope.clone();
    [Circuit::Endpoint { scope: scope.clone(), route: request.route.clone() }, Circuit::Scope { scope }]
}

fn path_circuits(request: &Request) -> [Option<Circuit>; 2] {
    let Path { owner, run, route } = Path::of(request);
    let of_path = run.clone().map(|run| Circuit::Path { owner: owner.clone(), run, route: route.clone() });
    [request.request_digest.map(|digest| Circuit::Request { owner, run, route, digest }), of_path]
}

/// Whether a refusal is one that no repeat of the same can mend.
pub(crate) const fn is_lasting(kind: Kind) -> bool {
    matches!(kind, Kind::Rejected | Kind::Disguised)
}
