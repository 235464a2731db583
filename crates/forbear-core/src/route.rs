//! Which rule of a contract a call falls under, and the name it goes by in the journal.
//!
//! A [`RouteTable`] is a trie over path segments, compiled once a contract; a lookup is a walk down it. The first rule of
//! the contract that matches wins. Without one, GET, HEAD and OPTIONS are `read` and everything else is
//! `uncertain_write`.
//!
//! It promises that a template names no identifier: where no rule says what a segment is, whatever looks like an
//! identifier becomes `{id}` ([`template`]). It refuses to guess what a provider makes of a path that can be read in two
//! ways (dot segments, empty segments): such a call is an `uncertain_write`, whatever its method.

mod pattern;
pub mod suggest;
mod template;

use std::collections::BTreeMap;

use crate::contract::{Contract, Idempotency, RouteRule};
use crate::ids::Route;
use crate::policy::Rank;

pub(crate) use pattern::Pattern;
pub use pattern::PatternFault;
use pattern::{MethodPattern, Segment};
pub use template::{TEMPLATE_BYTES_MAX, template, unescaped};

/// Rules of one contract.
pub const ROUTES_MAX: usize = 1_024;

/// What a call is, by the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched<'t> {
    /// Method and path without identifiers.
    pub template: Route,
    /// The request class that the rule, or the lack of one, gives.
    pub class: &'t str,
    /// The request header that carries an idempotency key here, from the rule or from the contract for this method.
    pub idempotency_header: Option<&'t str>,
    /// Repeating the call needs no key.
    pub repeatable: bool,
    /// A success may hold an error.
    pub disguised: bool,
    /// Members of a JSON body that do not tell two calls apart.
    pub content_ignores: &'t [Box<str>],
    /// Which rule of the contract matched, from 0.
    pub rule: Option<usize>,
}

/// A contract's routes, ready to be asked.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    nodes: Vec<Node>,
    rules: Vec<Rule>,
    idempotency: Option<Idempotency>,
    /// A code of the contract reads the body of a success.
    may_disguise: bool,
    /// Some routes say where a success may hold an error, so that others do not.
    names_disguised: bool,
}

#[derive(Debug, Clone, Default)]
struct Node {
    literals: BTreeMap<Box<str>, usize>,
    one: Option<usize>,
    /// By the colon and the word behind it.
    verbs: BTreeMap<Box<str>, usize>,
    /// Rules that end here.
    ends: Vec<usize>,
    /// Rules that take whatever is left, one segment or more.
    rests: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Rule {
    method: MethodPattern,
    /// The path of the pattern; absent where the rule takes the rest, whose segments it does not name.
    path: Option<Box<str>>,
    /// The whole template, where the method is a fixed one.
    template: Option<Route>,
    class: Box<str>,
    idempotency_header: Option<Box<str>>,
    repeatable: bool,
    disguised: bool,
    content_ignores: Vec<Box<str>>,
}

impl RouteTable {
    /// The table of a contract, or every pattern that cannot be read, by its place.
    pub fn compile(contract: &Contract) -> Result<Self, Vec<(usize, PatternFault)>> {
        let mut table =
            Self { nodes: vec![Node::default()], idempotency: contract.idempotency.clone(), ..Self::default() };
        table.may_disguise = contract.codes.iter().any(|rule| rule.statuses.iter().any(|status| *status < 400));
        table.names_disguised = contract.routes.iter().any(|rule| rule.disguised);
        let mut faults = Vec::new();
        for (place, rule) in contract.routes.iter().enumerate() {
            if place >= ROUTES_MAX {
                faults.push((place, PatternFault::TooManyRoutes));
                break;
            }
            match Pattern::parse(&rule.pattern) {
                Err(fault) => faults.push((place, fault)),
                Ok(pattern) => {
                    table.insert(place, &pattern);
                    let path = (!pattern.takes_rest()).then(|| pattern.path.into());
                    let template = match (&pattern.method, &path) {
                        (MethodPattern::One(method), Some(path)) => Some(Route::new(&format!("{method} {path}"))),
                        _ => None,
                    };
                    table.rules.push(Rule {
                        method: pattern.method,
                        path,
                        template,
                        class: rule.class.as_str().into(),
                        idempotency_header: rule.idempotency_header.as_deref().map(Into::into),
                        repeatable: rule.repeatable,
                        disguised: rule.disguised,
                        content_ignores: rule.content_ignores.iter().map(|m| m.as_str().into()).collect(),
                    });
                }
            }
        }
        if faults.is_empty() { Ok(table) } else { Err(faults) }
    }

    /// A table that only says which of these patterns a call matches.
    pub(crate) fn of_patterns(patterns: &[String]) -> Result<Self, Vec<(usize, PatternFault)>> {
        let rule = |pattern: &String| RouteRule {
            pattern: pattern.clone(),
            class: String::new(),
            idempotency_header: None,
            repeatable: false,
            disguised: false,
            coalescable: false,
            content_ignores: Vec::new(),
        };
        Self::compile(&Contract { routes: patterns.iter().map(rule).collect(), ..Contract::default() })
    }

    fn insert(&mut self, place: usize, pattern: &Pattern<'_>) {
        let mut at = 0;
        for segment in &pattern.segments {
            let next = self.nodes.len();
            let child = match segment {
                Segment::Literal(text) => *self.nodes[at].literals.entry((*text).into()).or_insert(next),
                Segment::One => *self.nodes[at].one.get_or_insert(next),
                Segment::Verb(verb) => *self.nodes[at].verbs.entry((*verb).into()).or_insert(next),
                Segment::Rest => {
                    self.nodes[at].rests.push(place);
                    return;
                }
            };
            if child == next {
                self.nodes.push(Node::default());
            }
            at = child;
        }
        self.nodes[at].ends.push(place);
    }

    /// What a call is. `path` is what the agent asks of this provider, without the query and without the path of
    /// `base_url`.
    #[must_use]
    pub fn lookup(&self, method: &str, path: &str) -> Matched<'_> {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let (class, rule) = match template::plain(path) {
            None => (Rank::UncertainWrite.class(), None),
            Some(plain) => {
                let mut best = None;
                if plain.is_empty() {
                    self.walk(0, &[], method, &mut best);
                } else if let Some(inner) = plain.strip_prefix('/') {
                    let segments: Vec<&str> = inner.split('/').collect();
                    self.walk(0, &segments, method, &mut best);
                }
                match best {
                    Some(place) => (&*self.rules[place].class, Some(place)),
                    None => (without_rule(method).class(), None),
                }
            }
        };
        let known = rule.map(|place| &self.rules[place]);
        let by_contract = || self.idempotency.as_ref().filter(|i| i.methods.iter().any(|m| m == method));
        Matched {
            template: known.and_then(|r| r.name(method)).unwrap_or_else(|| template(method, path)),
            class,
            idempotency_header: known
                .and_then(|r| r.idempotency_header.as_deref())
                .or_else(|| by_contract().map(|i| i.header.as_str()).filter(|header| !header.is_empty())),
            repeatable: known.is_some_and(|r| r.repeatable),
            disguised: self.may_disguise && (!self.names_disguised || known.is_some_and(|r| r.disguised)),
            content_ignores: known.map_or(&[], |r| &r.content_ignores),
            rule,
        }
    }

    /// The lowest place of a rule that matches. Each node is visited once at most, so that the walk is bounded by the
    /// contract, not by the path.
    fn walk(&self, at: usize, left: &[&str], method: &str, best: &mut Option<usize>) {
        let node = &self.nodes[at];
        let Some((first, more)) = left.split_first() else {
            return self.offer(&node.ends, method, best);
        };
        self.offer(&node.rests, method, best);
        if let Some(child) = node.literals.get(*first) {
            self.walk(*child, more, method, best);
        }
        if !node.verbs.is_empty()
            && let Some(colon) = first.rfind(':').filter(|colon| *colon > 0)
            && let Some(child) = node.verbs.get(&first[colon..])
        {
            self.walk(*child, more, method, best);
        }
        if let (Some(child), false) = (node.one, first.is_empty()) {
            self.walk(child, more, method, best);
        }
    }

    fn offer(&self, places: &[usize], method: &str, best: &mut Option<usize>) {
        let found = places.iter().copied().find(|p| self.rules[*p].method.takes(method));
        *best = match (*best, found) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

impl Rule {
    fn name(&self, method: &str) -> Option<Route> {
        match (&self.template, &self.method) {
            (Some(template), MethodPattern::One(own)) if &**own == method => Some(template.clone()),
            _ => self.path.as_ref().map(|path| Route::new(&format!("{} {path}", template::method_name(method)))),
        }
    }
}

/// The class of a call that no rule speaks of. The provider's contract makes a write idempotent, not its method.
#[must_use]
pub fn without_rule(method: &str) -> Rank {
    match method {
        "GET" | "HEAD" | "OPTIONS" => Rank::Read,
        _ => Rank::UncertainWrite,
    }
}

#[cfg(test)]
mod tests;
