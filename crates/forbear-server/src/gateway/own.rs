//! Forbear's own answers: problem details (RFC 9457), with the error member that the provider's clients read, and the
//! fields that keep those clients from repeating the call.

use forbear_api::at::At;
use forbear_api::problem::{ErrorShape, Kind, MEDIA_TYPE, Problem, problem_body};
use forbear_core::command::{self as core, Answer, Stamp};
use forbear_core::contract;
use forbear_core::effect::Effect;
use forbear_core::event::{Joined, Outcome};
use forbear_core::ids::ActionId;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};

use super::table::Provider;
use crate::http::relay::AgentBody;

const FORBEAR_ACTION: HeaderName = HeaderName::from_static("forbear-action");
const FORBEAR_ATTEMPTS: HeaderName = HeaderName::from_static("forbear-attempts");
const FORBEAR_WAITED_MS: HeaderName = HeaderName::from_static("forbear-waited-ms");
const FORBEAR_OUTCOME: HeaderName = HeaderName::from_static("forbear-outcome");
pub(super) const FORBEAR_JOINED: HeaderName = HeaderName::from_static("forbear-joined");
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A request that did not become an action.
#[derive(Debug)]
pub(super) struct Refusal {
    pub kind: Kind,
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

/// The answer to a request that did not become an action. Nothing was sent.
pub(super) fn refusal(refusal: &Refusal) -> Response<AgentBody> {
    let problem = Problem::unsent(refusal.kind, refusal.reason.as_str());
    let mut response = problem_response(&problem, ErrorShape::Problem);
    let fields = response.headers_mut();
    fields.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
    fields.insert(FORBEAR_OUTCOME, HeaderValue::from_static("denied"));
    if refusal.kind == Kind::Shed {
        fields.insert(FORBEAR_OUTCOME, HeaderValue::from_static(Outcome::Shed.as_str()));
        fields.insert(RETRY_AFTER, HeaderValue::from(1));
    }
    if matches!(refusal.kind, Kind::BodyTooLarge | Kind::BadRequest | Kind::Shed) {
        // The rest of the body is not read; what comes after it on this connection is no request.
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The answer that the core decided on.
pub(super) fn answer(provider: &Provider, action: ActionId, answer: &Answer) -> Response<AgentBody> {
    let kind = match answer.problem {
        core::Problem::OfOutcome => kind(answer.stamp.outcome),
        core::Problem::KeyMismatch => Kind::KeyMismatch,
        core::Problem::AlreadyDone => Kind::AlreadyDone,
    };
    let mut response = of_kind(kind, provider, action, answer);
    if let Some(how) = answer.joined {
        joined(response.headers_mut(), answer.about, how);
    }
    response
}

/// The same where the agent's body passed its bound while it was streamed: some of it has left.
pub(super) fn too_large(provider: &Provider, action: ActionId, answer: Answer, why: &str) -> Response<AgentBody> {
    let status = StatusCode::PAYLOAD_TOO_LARGE.as_u16();
    let answer = Answer { status, reason: format!("{why}; {}", answer.reason), ..answer };
    let mut response = of_kind(Kind::BodyTooLarge, provider, action, &answer);
    // The rest of the body is not read.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A copy of the answer to the action that the call repeats.
pub(super) fn shared(
    mut response: Response<AgentBody>,
    provider: &Provider,
    of: ActionId,
    stamp: &Stamp,
    how: Option<Joined>,
) -> Response<AgentBody> {
    let fields = response.headers_mut();
    self::stamp(fields, of, stamp);
    no_retry(fields, provider);
    if let Some(how) = how {
        joined(fields, of, how);
    }
    response
}

/// The call has no action of its own: it was answered with another's.
fn joined(fields: &mut HeaderMap, of: ActionId, how: Joined) {
    if let Ok(id) = HeaderValue::from_str(&of.to_string()) {
        fields.insert(FORBEAR_ACTION, id);
    }
    fields.insert(FORBEAR_JOINED, HeaderValue::from_static(how.as_str()));
}

fn of_kind(kind: Kind, provider: &Provider, action: ActionId, answer: &Answer) -> Response<AgentBody> {
    let outcome = answer.stamp.outcome;
    let problem = Problem {
        status: answer.status,
        action: Some(answer.about.to_string()),
        outcome: Some(outcome.as_str().into()),
        sent: answer.sent,
        answered: answer.answered,
        effect: effect(answer.effect).into(),
        attempts: answer.stamp.attempts,
        waited_ms: answer.stamp.waited_ms,
        next_allowed_at: answer.next_allowed_at.map(|at| At(at.0)),
        safe_next: answer.safe_next.iter().map(|s| s.as_str().to_owned()).collect(),
        provider_status: answer.provider_status,
        provider_code: answer.provider_code.clone(),
        ..Problem::unsent(kind, answer.reason.as_str())
    };
    let mut response = problem_response(&problem, shape(provider.compiled.contract.error_shape));
    let fields = response.headers_mut();
    // An open write that the call repeats is the one to follow; a call that was denied is on record as that.
    stamp(fields, if outcome == Outcome::OutcomeUnknown { answer.about } else { action }, &answer.stamp);
    no_retry(fields, provider);
    if let Some(seconds) = answer.retry_after_seconds {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if (outcome == Outcome::OutcomeUnknown || answer.problem == core::Problem::AlreadyDone)
        && let Ok(at) = HeaderValue::from_str(&format!("/-/actions/{}", answer.about))
    {
        fields.insert(LOCATION, at);
    }
    response
}

fn problem_response(problem: &Problem, shape: ErrorShape) -> Response<AgentBody> {
    let body = problem_body(problem, shape).to_string();
    let mut response = Response::new(AgentBody::whole(body));
    *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    // GitHub's own client reads nothing but this as JSON, and would show an empty error.
    let kind = if shape == ErrorShape::Github { "application/json" } else { MEDIA_TYPE };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What every answer says of its action.
pub(super) fn stamp(fields: &mut HeaderMap, action: ActionId, stamp: &Stamp) {
    fields.reserve(4);
    if let Ok(id) = HeaderValue::from_str(action.text().as_str()) {
        fields.insert(FORBEAR_ACTION, id);
    }
    fields.insert(FORBEAR_ATTEMPTS, number(stamp.attempts.into()));
    fields.insert(FORBEAR_WAITED_MS, number(stamp.waited_ms));
    fields.insert(FORBEAR_OUTCOME, HeaderValue::from_static(stamp.outcome.as_str()));
}

/// The usual ones take no place in memory.
fn number(value: u64) -> HeaderValue {
    match value {
        0 => HeaderValue::from_static("0"),
        1 => HeaderValue::from_static("1"),
        value => HeaderValue::from(value),
    }
}

/// One owner of retries: the provider's clients are told not to.
pub(super) fn no_retry(fields: &mut HeaderMap, provider: &Provider) {
    for (name, value) in &provider.no_retry {
        fields.insert(name.clone(), value.clone());
    }
}

const fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Applied => "applied",
        Effect::NotApplied => "not_applied",
        Effect::Unknown => "unknown",
    }
}

const fn kind(outcome: Outcome) -> Kind {
    match outcome {
        Outcome::BudgetExhausted => Kind::BudgetExhausted,
        Outcome::DeadlineExhausted => Kind::DeadlineExhausted,
        Outcome::OutcomeUnknown => Kind::OutcomeUnknown,
        Outcome::NotApplied => Kind::NotApplied,
        Outcome::Shed => Kind::Shed,
        Outcome::Deferred => Kind::Deferred,
        Outcome::Cancelled => Kind::Cancelled,
        Outcome::Denied => Kind::Denied,
        Outcome::CircuitOpen => Kind::CircuitOpen,
        Outcome::StreamIncomplete => Kind::StreamIncomplete,
        // Those are the provider's own answers and never made here.
        Outcome::Succeeded | Outcome::Rejected => Kind::InternalError,
    }
}

const fn shape(shape: contract::ErrorShape) -> ErrorShape {
    match shape {
        contract::ErrorShape::Problem => ErrorShape::Problem,
        contract::ErrorShape::Openai => ErrorShape::Openai,
        contract::ErrorShape::Anthropic => ErrorShape::Anthropic,
        contract::ErrorShape::Stripe => ErrorShape::Stripe,
        contract::ErrorShape::Github => ErrorShape::Github,
        contract::ErrorShape::Slack => ErrorShape::Slack,
        contract::ErrorShape::Google => ErrorShape::Google,
        contract::ErrorShape::Aws => ErrorShape::Aws,
    }
}
