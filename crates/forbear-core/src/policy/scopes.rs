//! A contract's scopes below the account, ready to be asked which of them a call falls under.

use std::sync::Arc;

use http::HeaderName;

use crate::contract::{RateRule, ScopeRule};
use crate::pacer::Rate;
use crate::policy::PacingRule;
use crate::route::{Pattern, PatternFault, RouteTable};

/// What tells the scopes of one kind apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// All calls share one.
    One,
    Route,
    Method,
    /// A member of a JSON body, its path joined by dots.
    Body(Box<str>),
    Header(HeaderName),
    /// Which segment of the path, for each pattern of the rule.
    Path(Vec<usize>),
}

/// One kind of scopes.
#[derive(Debug, Clone)]
pub struct CompiledScope {
    pub name: Box<str>,
    /// Absent where it holds all calls.
    routes: Option<RouteTable>,
    except: Option<RouteTable>,
    pub by: By,
    pub max_concurrent_requests: Option<u32>,
    pub rates: Arc<[Rate]>,
}

/// Why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeFault {
    Routes(Vec<(usize, PatternFault)>),
    Except(Vec<(usize, PatternFault)>),
    /// `by` is none of the words that are known.
    By,
    /// The pattern at this place has no segment of that name.
    NoSegment(usize),
}

impl CompiledScope {
    pub fn compile(rule: &ScopeRule, pacing: PacingRule) -> Result<Self, ScopeFault> {
        let table = |patterns: &[String], fault: fn(_) -> ScopeFault| {
            let table = || RouteTable::of_patterns(patterns).map_err(fault);
            if patterns.is_empty() { Ok(None) } else { table().map(Some) }
        };
        let routes = table(&rule.routes, ScopeFault::Routes)?;
        let except = table(&rule.except, ScopeFault::Except)?;
        Ok(Self {
            name: rule.name.as_str().into(),
            routes,
            except,
            by: by(rule)?,
            max_concurrent_requests: rule.max_concurrent_requests,
            rates: rates(&rule.rates, pacing),
        })
    }

    /// Which of its patterns a call matches; 0 where it holds all calls, none where it does not hold this one.
    #[must_use]
    pub fn holds(&self, method: &str, path: &str) -> Option<usize> {
        let place = |table: &RouteTable| table.lookup(method, path).rule;
        let held = self.routes.as_ref().map_or(Some(0), place)?;
        self.except.as_ref().and_then(place).is_none().then_some(held)
    }

    /// Which member of the body it is cut by.
    #[must_use]
    pub fn body_member(&self) -> Option<&str> {
        match &self.by {
            By::Body(member) => Some(member),
            _ => None,
        }
    }
}

/// Rates as the pacer keeps them.
#[must_use]
pub(super) fn rates(rules: &[RateRule], pacing: PacingRule) -> Arc<[Rate]> {
    let rate = |r: &RateRule| {
        let per_ms = r.per_seconds.saturating_mul(1_000).saturating_add(pacing.arrival_spread_ms);
        Rate::of_limit(r.of, r.amount, per_ms, r.burst, pacing.target_share_bp)
    };
    rules.iter().map(rate).collect()
}

fn by(rule: &ScopeRule) -> Result<By, ScopeFault> {
    let Some(text) = rule.by.as_deref() else { return Ok(By::One) };
    match text.split_once(':') {
        None if text == "route" => Ok(By::Route),
        None if text == "method" => Ok(By::Method),
        Some(("body", member)) if !member.is_empty() => Ok(By::Body(member.into())),
        Some(("header", name)) => name.parse().map(By::Header).map_err(|_| ScopeFault::By),
        Some(("path", name)) if !rule.routes.is_empty() => {
            let place = |(i, pattern): (usize, &String)| {
                // Read once more: the table keeps no names.
                let pattern = Pattern::parse(pattern).map_err(|fault| ScopeFault::Routes(vec![(i, fault)]))?;
                pattern.segment_named(name).ok_or(ScopeFault::NoSegment(i))
            };
            rule.routes.iter().enumerate().map(place).collect::<Result<_, _>>().map(By::Path)
        }
        _ => Err(ScopeFault::By),
    }
}
