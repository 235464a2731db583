//! What a drill found: a list of steps, each with what was measured and why it holds or does not.

use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrillReport {
    pub holds: bool,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub name: String,
    pub holds: bool,
    /// What was measured, units last in the names.
    pub measured: Map<String, Value>,
    /// What that means.
    pub why: String,
}

impl Step {
    pub(super) fn unmeasured(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), holds: false, measured: Map::new(), why: why.into() }
    }
}

/// Gathers what a step measures and what it expects; the first expectation that fails is the reason.
pub(super) struct Findings {
    name: &'static str,
    measured: Map<String, Value>,
    failed: Option<String>,
}

impl Findings {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, measured: Map::new(), failed: None }
    }

    pub(super) fn measured(&mut self, what: &str, value: impl Into<Value>) {
        self.measured.insert(what.to_owned(), value.into());
    }

    pub(super) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds && self.failed.is_none() {
            self.failed = Some(otherwise());
        }
    }

    /// Takes over what another part of the same step found.
    pub(super) fn absorb(&mut self, part: Self) {
        self.measured.extend(part.measured);
        self.failed = self.failed.take().or(part.failed);
    }

    pub(super) fn conclude(self, why: impl Into<String>) -> Step {
        let holds = self.failed.is_none();
        let why = self.failed.unwrap_or_else(|| why.into());
        Step { name: self.name.to_owned(), holds, measured: self.measured, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_expectation_that_fails_is_the_reason() {
        let mut findings = Findings::new("a step");
        findings.measured("arrivals", 3);
        findings.expect(true, || "not this".into());
        findings.expect(false, || "this".into());
        findings.expect(false, || "nor this".into());
        let step = findings.conclude("all is well");
        assert_eq!((step.holds, step.why.as_str(), &step.measured["arrivals"]), (false, "this", &Value::from(3)));
        assert!(Findings::new("a step").conclude("all is well").holds);
    }
}
