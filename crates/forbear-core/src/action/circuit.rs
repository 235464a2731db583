//! Circuits: an attempt that ended is weighed, and what a circuit keeps back is answered with the failure that is on record.

use crate::action::finish::http_status;
use crate::action::live::{Live, Stage};
use crate::action::verdict::Verdict;
use crate::breaker::{CallEnd, Circuit, Opened, is_lasting};
use crate::command::{Commands, SafeNext};
use crate::coordinator::{Coordinator, Write};
use crate::event::{Fact, Outcome};
use crate::ids::ActionId;
use crate::input::{Report, Request};
use crate::time::Now;

impl Coordinator {
    /// What an attempt says of its request, its path, its credential and its scope.
    pub(crate) fn weigh(&mut self, now: Now, live: &Live, report: &Report, next: &Verdict, out: &mut Commands) {
        // What was not waited for says nothing of who would have answered.
        if report.answer.is_none() && (now.mono >= live.deadline || live.follow_only.is_some()) {
            return;
        }
        let last = live.last.as_ref().map(|last| last.classification.kind);
        let end = match next {
            Verdict::Relay(Outcome::Succeeded) => CallEnd::Succeeded,
            Verdict::Relay(Outcome::Rejected) if last.is_some_and(is_lasting) => CallEnd::Refused,
            _ => CallEnd::Open,
        };
        let rule = self.settings.breakers;
        let change = self.breakers.weigh(now.mono, &rule, &live.request, report, end);
        for (circuit, failures) in change.open {
            let until = now.mono.plus_ms(rule.open_ms(&circuit));
            let head = report.answer.as_ref();
            let opened = Opened {
                circuit,
                status: head.map(|head| head.status),
                code: head.and_then(|head| head.classification.code.clone()),
                failures,
                until: now.wall_at(until),
            };
            // Whoever is about to leave is not asked about it again: it counts like what is on the wire.
            self.breakers.opened(opened.clone(), until);
            self.emit(now, None, Fact::CircuitOpened(Box::new(opened)), Write::Kept, out);
        }
        for (circuit, reason) in change.close {
            self.breakers.closed(&circuit);
            self.emit(now, None, Fact::CircuitClosed { circuit, reason: reason.to_owned() }, Write::Kept, out);
        }
    }

    /// The circuit that keeps a call from being sent, with the time until which it does so now.
    pub(crate) fn blocked(&self, now: Now, request: &Request) -> Option<Opened> {
        let (opened, until) = self.breakers.blocking(now.mono, request, |probe| self.live.contains_key(&probe))?;
        Some(Opened { until: now.wall_at(until), ..opened.clone() })
    }

    pub(crate) fn refuse_open_circuit(&mut self, now: Now, mut live: Box<Live>, by: &Opened, out: &mut Commands) {
        let why = by.reason();
        let mut answer = self.answer_of(now, &live, Outcome::CircuitOpen, &why);
        answer.status = http_status(Outcome::CircuitOpen, live.request.rank.writes(), by.status);
        answer.provider_status = by.status;
        answer.provider_code.clone_from(&by.code);
        answer.next_allowed_at = answer.next_allowed_at.max(Some(by.until)).filter(|at| *at > now.wall);
        answer.safe_next = match by.circuit {
            Circuit::Request { .. } | Circuit::Path { .. } => vec![SafeNext::ChangeRequest, SafeNext::AskPerson],
            Circuit::Credential { .. } => vec![SafeNext::AskPerson],
            Circuit::Endpoint { .. } | Circuit::Scope { .. } => vec![SafeNext::CallAgain, SafeNext::AskPerson],
        };
        if by.circuit.is_health() {
            answer.retry_after_seconds = Some(now.wall.ms_until(by.until).div_ceil(1_000).max(1));
        }
        let told_after = self.boundary_seq(&live.request);
        self.finish(now, &mut live, Outcome::CircuitOpen, Some(why), out);
        self.tell(&mut live, answer, told_after, out);
    }

    /// Its turn came after a circuit had opened. What was sent before goes on as its class allows.
    pub(crate) fn stopped_by_circuit(&mut self, now: Now, action: ActionId, out: &mut Commands) -> bool {
        let Some(live) = self.live.get(&action) else { return false };
        if live.tried > 0 || live.request.observe {
            return false;
        }
        let Some(blocked) = self.blocked(now, &live.request) else { return false };
        let Some(mut live) = self.live.remove(&action) else { return false };
        // It has the slot that it waited for.
        self.release_only(&live);
        live.stage = Stage::InFlight(crate::ids::AttemptNo(0));
        self.give_back(now, &mut live, out);
        self.refuse_open_circuit(now, live, &blocked, out);
        true
    }
}
