//! Rules for routes that were seen and have none: a proposal, for a person to read and to paste.
//!
//! It promises never to propose a class that is looser than what holds without a rule: what was seen shows that a call
//! went well, not that a second one does no harm. It proposes a stricter one where an answer says that a read creates.

use std::collections::{BTreeMap, BTreeSet};

use super::pattern::{PATTERN_BYTES_MAX, PATTERN_SEGMENTS_MAX};
use super::{RouteTable, without_rule};
use crate::ids::Route;
use crate::policy::Rank;

/// So many words in one place of otherwise equal routes are names of things, not parts of the interface.
const WORDS_FROM: usize = 12;
/// What stands for a word that is the name of a thing.
const NAME: &str = "{name}";

/// One route, by its name in the record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenRoute {
    pub calls: u64,
    /// The last status of each call that had one.
    pub statuses: BTreeMap<u16, u64>,
    /// Calls that came with their agent's own idempotency key, and in which header.
    pub keyed: u64,
    pub key_header: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub pattern: String,
    pub class: &'static str,
    pub seen: SeenRoute,
    pub reason: String,
    /// What may be said instead where the provider's documentation says so.
    pub instead: Option<String>,
}

/// Proposals for routes that no rule of the table speaks of, in the order of their patterns.
#[must_use]
pub fn suggest<'r>(table: &RouteTable, seen: impl IntoIterator<Item = (&'r Route, &'r SeenRoute)>) -> Vec<Suggestion> {
    let mut shapes: BTreeMap<Shape, SeenRoute> = BTreeMap::new();
    for (route, seen) in seen {
        if let Some(shape) = Shape::of(table, route) {
            shapes.entry(shape).or_default().add(seen);
        }
    }
    for place in 0..PATTERN_SEGMENTS_MAX {
        shapes = without_names(shapes, place);
    }
    shapes.into_iter().filter_map(|(shape, seen)| shape.suggestion(seen)).collect()
}

/// A method and the segments of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    method: String,
    segments: Vec<String>,
}

impl Shape {
    /// The shape of a route that has no rule and may have one.
    fn of(table: &RouteTable, route: &Route) -> Option<Self> {
        let (method, path) = route.as_str().split_once(' ')?;
        let inner = path.strip_prefix('/').filter(|inner| !inner.is_empty() && !inner.contains("..."))?;
        let segments: Vec<String> = inner.split('/').map(str::to_owned).collect();
        let is_plain = segments.len() <= PATTERN_SEGMENTS_MAX && !segments.iter().any(String::is_empty);
        let concrete = path.replace("{id}", "1");
        // A name with other braces is that of a rule.
        let has_rule = concrete.contains('{') || table.lookup(method, &concrete).rule.is_some();
        (is_plain && !has_rule && method != "OTHER").then(|| Self { method: method.to_owned(), segments })
    }

    fn suggestion(self, seen: SeenRoute) -> Option<Suggestion> {
        let pattern = format!("{} /{}", self.method, self.segments.join("/"));
        if pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let reads = without_rule(&self.method) == Rank::Read;
        let creates = seen.statuses.keys().any(|status| matches!(status, 201 | 202));
        let (rank, mut reason) = match (reads, creates) {
            (true, false) => (Rank::Read, format!("a {} reads, as without a rule", self.method)),
            (true, true) => {
                (Rank::UncertainWrite, "stricter than without a rule: its answers say that it creates".into())
            }
            (false, _) => {
                (Rank::UncertainWrite, "as without a rule: nothing shows that a second one does no harm".into())
            }
        };
        if self.segments.iter().any(|s| s == NAME) {
            reason.push_str("; {name} stood for many words, which look like names of things");
        }
        let key = seen.key_header.as_ref().filter(|_| !reads && seen.keyed == seen.calls);
        let instead = key.map(|header| format!("class: idempotent_write, idempotency_header: {header}"));
        Some(Suggestion { pattern, class: rank.class(), seen, reason, instead })
    }
}

/// Many words in one place of otherwise equal shapes become one name.
fn without_names(shapes: BTreeMap<Shape, SeenRoute>, place: usize) -> BTreeMap<Shape, SeenRoute> {
    let named = |shape: &Shape| {
        let mut shape = shape.clone();
        shape.segments.get_mut(place).map(|segment| NAME.clone_into(segment))?;
        Some(shape)
    };
    let mut words: BTreeMap<Shape, BTreeSet<&str>> = BTreeMap::new();
    for shape in shapes.keys() {
        if let Some(named) = named(shape) {
            words.entry(named).or_default().insert(&shape.segments[place]);
        }
    }
    let many: BTreeSet<Shape> = words.into_iter().filter(|(_, w)| w.len() >= WORDS_FROM).map(|(s, _)| s).collect();
    let mut out: BTreeMap<Shape, SeenRoute> = BTreeMap::new();
    for (shape, seen) in &shapes {
        let shape = named(shape).filter(|named| many.contains(named)).unwrap_or_else(|| shape.clone());
        out.entry(shape).or_default().add(seen);
    }
    out
}

impl SeenRoute {
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        for (status, n) in &other.statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
        self.keyed += other.keyed;
        if self.key_header.is_none() {
            self.key_header.clone_from(&other.key_header);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Contract, RouteRule};

    fn seen(calls: u64, statuses: &[(u16, u64)], keyed: u64) -> SeenRoute {
        let key_header = (keyed > 0).then(|| "x-key".to_owned());
        SeenRoute { calls, statuses: statuses.iter().copied().collect(), keyed, key_header }
    }

    fn suggested(routes: &[(&str, SeenRoute)]) -> Vec<(String, &'static str, u64, Option<String>)> {
        let rule = RouteRule { pattern: "POST /v1/known/{thing}".into(), class: "read".into(), ..RouteRule::default() };
        let table = RouteTable::compile(&Contract { routes: vec![rule], ..Contract::default() }).unwrap();
        let routes: Vec<(Route, SeenRoute)> = routes.iter().map(|(r, s)| (Route::new(r), s.clone())).collect();
        let made = suggest(&table, routes.iter().map(|(r, s)| (r, s)));
        made.into_iter().map(|s| (s.pattern, s.class, s.seen.calls, s.instead)).collect()
    }

    #[test]
    fn only_what_has_no_rule_is_proposed_and_nothing_looser_than_without_one() {
        let routes = [
            ("GET /v1/things/{id}", seen(7, &[(200, 7)], 0)),
            ("POST /v1/things/search", seen(5, &[(200, 5)], 0)),
            ("DELETE /v1/things/{id}", seen(1, &[(204, 1)], 0)),
            ("POST /v1/known/{thing}", seen(9, &[(200, 9)], 0)),
            ("POST /v1/known/{id}", seen(9, &[(200, 9)], 0)),
            ("GET /v1/deep/{more...}", seen(9, &[(200, 9)], 0)),
            ("OTHER /v1/things", seen(9, &[(200, 9)], 0)),
            ("GET //odd", seen(9, &[(200, 9)], 0)),
            ("OPTIONS *", seen(9, &[(200, 9)], 0)),
        ];
        let wanted = [
            ("DELETE /v1/things/{id}", "uncertain_write", 1),
            ("GET /v1/things/{id}", "read", 7),
            ("POST /v1/things/search", "uncertain_write", 5),
        ];
        assert_eq!(suggested(&routes), wanted.map(|(p, c, n)| (p.to_owned(), c, n, None)));
    }

    #[test]
    fn a_read_that_creates_is_a_write_and_a_key_on_every_call_is_said() {
        let routes = [
            ("GET /v1/start", seen(3, &[(200, 2), (202, 1)], 0)),
            ("POST /v1/all", seen(3, &[(201, 3)], 3)),
            ("POST /v1/some", seen(3, &[(201, 3)], 2)),
        ];
        let instead = "class: idempotent_write, idempotency_header: x-key".to_owned();
        assert_eq!(
            suggested(&routes),
            [
                ("GET /v1/start".to_owned(), "uncertain_write", 3, None),
                ("POST /v1/all".to_owned(), "uncertain_write", 3, Some(instead)),
                ("POST /v1/some".to_owned(), "uncertain_write", 3, None),
            ]
        );
    }

    #[test]
    fn many_words_in_one_place_are_names() {
        let words = ["ann", "ben", "cleo", "dan", "eva", "fay", "gus", "hal", "ida", "jon", "kim", "lea"];
        let routes: Vec<String> = words.iter().map(|w| format!("GET /users/{w}/posts")).collect();
        let of = |n: usize| routes.iter().take(n).map(|r| (r.as_str(), seen(2, &[], 0))).collect::<Vec<_>>();
        assert_eq!(suggested(&of(11)).len(), 11);
        let mut all = of(12);
        all.push(("GET /users/{id}/posts", seen(1, &[], 0)));
        all.push(("GET /users/me", seen(1, &[], 0)));
        let wanted = [("GET /users/me", 1), ("GET /users/{name}/posts", 25)];
        assert_eq!(suggested(&all), wanted.map(|(p, n)| (p.to_owned(), "read", n, None)));
    }
}
