//! What the provider knows: the scenario in force, where each sequence stands, limits, keys, effects and the log.
//!
//! One lock holds all of it, so that the order of decisions is one order. Nothing here waits or touches a socket.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arrival::Log;
use super::effect::{EffectRecord, Effects, Wanted};
use super::keys::{KeyId, KeyState, Keys};
use super::limit::{LimitView, Limits, SCOPES_MAX, Slot, Verdict};
use super::render::{Rendered, fields, render};
use super::request::{Pairs, Request};
use super::routing::{key_of, route_matches, scope};
use super::scenario::step::{EffectSpec, Step};
use super::scenario::values::Held;
use super::scenario::{Document, Idempotency, Route, plain_problem};
use super::template::{Context, Template};

const NS_PER_MS: u64 = 1_000_000;

pub(crate) struct World {
    pub(crate) document: Arc<Document>,
    /// Rises with every reset, so that what is under way from before changes nothing after.
    pub(crate) generation: u64,
    pub(crate) log: Log,
    pub(crate) effects: Effects,
    pub(crate) base_url: String,
    limits: Limits,
    keys: Keys,
    counters: BTreeMap<String, u64>,
    positions: BTreeMap<(usize, String), Position>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Position {
    uses: u64,
    index: usize,
    uses_of_step: u32,
    step_first_ns: Option<u64>,
}

/// What will be done about a request.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) step: Held<Step>,
    pub(crate) kind: Kind,
    /// Uses of the sequence, this one included.
    count: u64,
    key: Option<KeyClaim>,
}

#[derive(Clone)]
struct KeyClaim {
    id: KeyId,
    route: usize,
}

#[derive(Clone)]
pub(crate) enum Kind {
    Scripted,
    NoRoute,
    Refused(LimitView),
    Replay(Arc<Rendered>),
    KeyInProgress,
    KeyMismatch,
    KeyMissing,
}

/// What the limits said at the head.
#[derive(Default)]
pub(crate) struct Admission {
    pub(crate) slots: Vec<Slot>,
    pub(crate) views: Vec<(usize, LimitView)>,
    pub(crate) refused: Option<(usize, LimitView)>,
}

/// A request as far as it was read.
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a Request,
    pub(crate) arrival: u64,
    /// `None` while the body has not been read.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) body_sha256: Option<&'a str>,
}

/// Time, as one reading.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) mono_ns: u64,
    pub(crate) wall_ms: u64,
}

impl World {
    pub(crate) fn new(document: Arc<Document>, base_url: String, log: Log) -> Self {
        Self {
            document,
            generation: 0,
            log,
            effects: Effects::default(),
            base_url,
            limits: Limits::default(),
            keys: Keys::default(),
            counters: BTreeMap::new(),
            positions: BTreeMap::new(),
        }
    }

    pub(crate) fn reset(&mut self, document: Option<Arc<Document>>) {
        if let Some(document) = document {
            self.document = document;
        }
        self.generation += 1;
        self.log.clear();
        self.effects = Effects::default();
        self.limits = Limits::default();
        self.keys = Keys::default();
        self.counters.clear();
        self.positions.clear();
    }

    pub(crate) fn admit(&mut self, request: &Request, now: Now) -> Admission {
        let document = Arc::clone(&self.document);
        let mut under = Vec::new();
        for (index, limit) in document.limits.iter().enumerate() {
            let values = limit.on.iter().find_map(|on| on.matches(&request.method, request.path()));
            if limit.on.is_empty() || values.is_some() {
                under.push((index, scope(&limit.per, request, values.as_ref(), &[])));
            }
        }
        match self.limits.admit(&document.limits, &under, request.at_ns, now.wall_ms) {
            Verdict::Admitted(slots, views) => Admission { slots, views, refused: None },
            Verdict::Refused(index, view) => Admission { refused: Some((index, view)), ..Admission::default() },
        }
    }

    pub(crate) fn give_back(&mut self, slots: Vec<Slot>) {
        self.limits.give_back(slots);
    }

    /// Whether the plan can be made before the body is read; if it must be, a fault or an early answer may need it.
    pub(crate) fn plans_at_head(&self, request: &Request) -> bool {
        let mut routes = self.document.routes.iter().filter(|route| route_matches(route, request, None).is_some());
        routes.next().is_some_and(|route| !route.needs_body() && route.acts_at_head())
    }

    pub(crate) fn plan_refusal(&self, admission: &Admission) -> Option<Plan> {
        let (index, view) = admission.refused.as_ref()?;
        let default = || {
            let mut step = plain_problem(429, "rate_limited", "Too many requests");
            let wait = "{{limit.retry_after_s}}".to_owned();
            if let Ok(value) = wait.try_into() {
                step.headers.0.push(("Retry-After".to_owned(), value));
            }
            step.into()
        };
        let step = self.document.limits[*index].answer.clone().unwrap_or_else(default);
        Some(Plan { step, kind: Kind::Refused(view.clone()), count: 0, key: None })
    }

    /// Chooses the route, asks the idempotency key, takes the next step of the sequence.
    pub(crate) fn plan(&mut self, seen: &Seen<'_>, now: Now) -> (Plan, Option<Planned>) {
        let document = Arc::clone(&self.document);
        let body = seen.body.unwrap_or_default();
        let found = document
            .routes
            .iter()
            .enumerate()
            .find_map(|(index, route)| Some((index, route, route_matches(route, seen.request, Some(body))?)));
        let Some((index, route, path_values)) = found else {
            let step = document.unmatched.clone().unwrap_or_else(|| {
                plain_problem(404, "no_route", "The scenario has no route for this method and path").into()
            });
            return (Plan { step, kind: Kind::NoRoute, count: 0, key: None }, None);
        };
        let mut planned = Planned { route: route.pattern.source().to_owned(), path_values, key: None };
        let mut claim = None;
        if let Some(rules) = &route.idempotency {
            match key_of(rules, seen.request, body) {
                Some(key) => {
                    planned.key = Some(key.clone());
                    let space = rules.space.clone().unwrap_or_else(|| planned.route.clone());
                    let who = scope(&rules.per, seen.request, Some(&planned.path_values), body);
                    let id = (space, who, key);
                    let sha256 = seen.body_sha256.filter(|_| rules.compare_body);
                    let state = self.keys.claim(&id, sha256, now.mono_ns, rules.retention_ms * NS_PER_MS);
                    if let Some(plan) = settled_plan(rules, state) {
                        return (plan, Some(planned));
                    }
                    claim = Some(KeyClaim { id, route: index });
                }
                None => {
                    if let Some(step) = rules.missing.clone() {
                        return (Plan { step, kind: Kind::KeyMissing, count: 0, key: None }, Some(planned));
                    }
                }
            }
        }
        let who = scope(&route.per, seen.request, Some(&planned.path_values), body);
        let (step, count) = self.next_step(index, route, who, seen.request.at_ns);
        (Plan { step, kind: Kind::Scripted, count, key: claim }, Some(planned))
    }

    fn next_step(&mut self, index: usize, route: &Route, who: String, at_ns: u64) -> (Held<Step>, u64) {
        let steps = route.steps();
        let who = if self.positions.len() < SCOPES_MAX { who } else { String::new() };
        let at = self.positions.entry((index, who)).or_default();
        at.uses += 1;
        for _ in 0..steps.len() {
            let Some(step) = steps.get(at.index) else { break };
            let last = at.index + 1 == steps.len();
            if last && !route.again || !is_spent(step, steps.get(at.index + 1), at, at_ns) {
                break;
            }
            at.index = (at.index + 1) % steps.len();
            at.uses_of_step = 0;
            at.step_first_ns = None;
        }
        at.uses_of_step += 1;
        at.step_first_ns = at.step_first_ns.or(Some(at_ns));
        (steps.get(at.index).cloned().unwrap_or_default(), at.uses)
    }

    /// Does what the plan does to the world, and makes its answer. The effect's id is given where there is one.
    pub(crate) fn commit(
        &mut self,
        plan: &Plan,
        seen: &Seen<'_>,
        views: &[(usize, LimitView)],
        now: Now,
    ) -> (Arc<Rendered>, Option<String>) {
        let document = Arc::clone(&self.document);
        let (step, matches, items) = self.look_up(plan, seen, now);
        let done = match (&step.effect, &plan.kind) {
            (Some(spec), Kind::Scripted) => Some(self.make_effect(spec, plan, seen, now)),
            _ => None,
        };
        let effect = done.as_ref().map(|record| record.id.clone());
        let mut context = self.context(seen, plan.count, now);
        context.effect = done.as_ref();
        context.matches = &matches;
        context.items = &items;
        let announced = match &plan.kind {
            Kind::Refused(view) => {
                context.limit = Some(view);
                &[]
            }
            _ => views,
        };
        let mut answer = match &plan.kind {
            Kind::Replay(answer) => {
                let mut answer = Rendered::clone(answer);
                answer.delay = std::time::Duration::ZERO;
                answer
            }
            _ => render(&step, &mut context),
        };
        if answer.raw.is_none() {
            if let Kind::Scripted = plan.kind {
                answer.headers.extend(fields(&document.headers.0, &mut context));
            }
            for (index, view) in announced {
                context.limit = Some(view);
                let announce = &document.limits[*index].announce.0;
                answer.headers.extend(fields(announce, &mut context));
            }
        }
        if let Some(record) = done {
            self.effects.commit(record);
        }
        let answer = Arc::new(answer);
        self.settle_key(plan, seen, &answer, now);
        (answer, effect)
    }

    /// The step to answer with, what was found, and the found in the scenario's own shape.
    fn look_up(&mut self, plan: &Plan, seen: &Seen<'_>, now: Now) -> (Held<Step>, Vec<EffectRecord>, String) {
        let (Some(lookup), Kind::Scripted) = (&plan.step.lookup, &plan.kind) else {
            return (plan.step.clone(), Vec::new(), "[]".to_owned());
        };
        let mut context = self.context(seen, plan.count, now);
        let mut render = |wanted: &BTreeMap<String, Template>| -> Pairs {
            wanted.iter().map(|(field, value)| (field.clone(), value.render(&mut context))).collect()
        };
        let wanted = Wanted { name: lookup.effect.clone(), by: render(&lookup.by), within: render(&lookup.within) };
        let found = self.effects.look_up(&wanted, now.mono_ns);
        let mut items = Vec::new();
        if let Some(item) = &lookup.item {
            let mut context = self.context(seen, plan.count, now);
            for record in &found {
                context.matches = std::slice::from_ref(record);
                items.push(item.render(&mut context));
            }
        }
        let missing = || plain_problem(404, "not_found", "Nothing like this is known").into();
        let step = match found.is_empty() {
            true => lookup.missing.clone().unwrap_or_else(missing),
            false => plan.step.clone(),
        };
        (step, found, format!("[{}]", items.join(",")))
    }

    fn make_effect(&mut self, spec: &EffectSpec, plan: &Plan, seen: &Seen<'_>, now: Now) -> EffectRecord {
        let n = self.effects.count + 1;
        let mut context = self.context(seen, plan.count, now);
        let id = spec.id.as_ref().map_or_else(|| format!("effect-{n}"), |id| id.render(&mut context));
        let rendered = spec.fields.iter().map(|(name, value)| (name.clone(), value.render(&mut context))).collect();
        EffectRecord {
            n,
            name: spec.name.clone(),
            id,
            key: plan.key.as_ref().map(|claim| claim.id.2.clone()),
            at_ns: now.mono_ns,
            arrival: seen.arrival,
            credential: seen.request.credential.clone(),
            method: seen.request.method.clone(),
            target: seen.request.target.clone(),
            body: serde_json::from_slice(seen.body.unwrap_or_default()).unwrap_or_default(),
            fields: rendered,
            visible_at_ns: now.mono_ns.saturating_add(spec.visible_after_ms * NS_PER_MS),
            lookups_to_miss: spec.visible_after_lookups,
        }
    }

    fn settle_key(&mut self, plan: &Plan, seen: &Seen<'_>, answer: &Arc<Rendered>, now: Now) {
        let Some(claim) = &plan.key else { return };
        let document = Arc::clone(&self.document);
        let Some(rules) = document.routes.get(claim.route).and_then(|route| route.idempotency.as_ref()) else { return };
        let remembered = rules.remember_statuses.as_ref().is_none_or(|list| list.contains(&answer.status));
        if !remembered {
            return self.keys.give_up(&claim.id);
        }
        let mut kept = Rendered::clone(answer);
        let mut context = self.context(seen, plan.count, now);
        let replay_headers = fields(&rules.replay_headers.0, &mut context);
        kept.headers.extend(replay_headers);
        let settled_ns = now.mono_ns.saturating_add(rules.hold_ms * NS_PER_MS);
        self.keys.settle(&claim.id, seen.body_sha256.unwrap_or_default(), &Arc::new(kept), settled_ns);
    }

    /// The request came to nothing; its key may be used again.
    pub(crate) fn give_up(&mut self, plan: &Plan) {
        if let Some(claim) = &plan.key {
            self.keys.give_up(&claim.id);
        }
    }

    fn context<'a>(&'a mut self, seen: &Seen<'a>, count: u64, now: Now) -> Context<'a> {
        Context {
            wall_ms: now.wall_ms,
            arrival: seen.arrival,
            count,
            base_url: &self.base_url,
            request: seen.request,
            body: seen.body.unwrap_or_default(),
            counters: &mut self.counters,
            effect: None,
            matches: &[],
            items: "[]",
            limit: None,
        }
    }
}

/// What planning found out about the request.
pub(crate) struct Planned {
    pub(crate) route: String,
    pub(crate) path_values: BTreeMap<String, String>,
    pub(crate) key: Option<String>,
}

fn settled_plan(rules: &Idempotency, state: KeyState) -> Option<Plan> {
    let plan = |step: Option<Held<Step>>, kind: Kind, default: fn() -> Step| Plan {
        step: step.unwrap_or_else(|| default().into()),
        kind,
        count: 0,
        key: None,
    };
    Some(match state {
        KeyState::New => return None,
        KeyState::Settled(answer) if rules.repeated.is_none() => plan(None, Kind::Replay(answer), Step::default),
        KeyState::Settled(_) => plan(rules.repeated.clone(), Kind::KeyMismatch, Step::default),
        KeyState::InProgress => plan(rules.in_progress.clone(), Kind::KeyInProgress, || {
            plain_problem(409, "idempotency_key_in_use", "A request with this key is still in progress")
        }),
        KeyState::Mismatch => plan(rules.mismatch.clone(), Kind::KeyMismatch, || {
            plain_problem(422, "idempotency_key_reused", "This key was used with another request")
        }),
    })
}

fn is_spent(step: &Step, next: Option<&Held<Step>>, at: &Position, at_ns: u64) -> bool {
    if let Some(after) = next.and_then(|next| next.after) {
        return at.uses > after;
    }
    let Some(for_ms) = step.for_ms else { return at.uses_of_step >= step.times.unwrap_or(1) };
    let timed_out = at.step_first_ns.is_some_and(|first| at_ns >= first.saturating_add(for_ms * NS_PER_MS));
    timed_out || step.times.is_some_and(|times| at.uses_of_step >= times)
}
