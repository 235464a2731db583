//! Forbear's own answers: problem details (RFC 9457), with the error member that the provider's clients read, and the
//! fields that keep those clients from repeating the call.

use forbear_api::problem::{Problem, Slug, body};
use forbear_core::command::{Answer, Stamp};
use forbear_core::event::Outcome;
use forbear_core::ids::ActionId;
use forbear_core::time::Wall;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};

use super::relay::RelayBody;
use super::table::Provider;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
pub const FORBEAR_ACTION: HeaderName = HeaderName::from_static("forbear-action");
pub const FORBEAR_ATTEMPTS: HeaderName = HeaderName::from_static("forbear-attempts");
pub const FORBEAR_WAITED_MS: HeaderName = HeaderName::from_static("forbear-waited-ms");
pub const FORBEAR_OUTCOME: HeaderName = HeaderName::from_static("forbear-outcome");
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const NO: HeaderValue = HeaderValue::from_static("false");

/// A request that did not become an action.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub slug: Slug,
    pub reason: String,
    pub advice: String,
}

impl Refusal {
    pub fn new(status: StatusCode, slug: Slug, reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status, slug, reason: reason.into(), advice: advice.into() }
    }

    pub fn bad(reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Slug::BadRequest, reason, advice)
    }
}

/// The answer to a request that did not become an action. Nothing was sent.
pub fn refusal(refusal: &Refusal) -> Response<RelayBody> {
    let mut problem = Problem::new(refusal.slug, refusal.status.as_u16(), refusal.reason.clone());
    problem.advice = Some(refusal.advice.clone());
    let bytes = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(RelayBody::full(bytes));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(X_SHOULD_RETRY, NO);
    headers.insert(FORBEAR_OUTCOME, HeaderValue::from_static("refused"));
    response
}

/// The answer that the core decided on.
pub fn answer(provider: &Provider, action: ActionId, answer: &Answer) -> Response<RelayBody> {
    let outcome = answer.stamp.outcome;
    let mut problem = Problem::new(slug(outcome), answer.status, answer.reason.clone());
    problem.action = Some(answer.about.to_string());
    problem.outcome = Some(outcome.as_str().into());
    problem.sent = Some(answer.sent);
    problem.answered = Some(answer.answered);
    problem.effect = Some(effect(answer).into());
    problem.attempts = Some(answer.stamp.attempts);
    problem.waited_ms = Some(answer.stamp.waited_ms);
    problem.next_allowed_at = answer.next_allowed_at.and_then(rfc3339);
    problem.provider_status = answer.provider_status;
    problem.provider_code.clone_from(&answer.provider_code);
    problem.safe_next = answer.safe_next.iter().map(|s| s.as_str().to_owned()).collect();
    let value = body(&problem, shape(provider));
    let mut response = Response::new(RelayBody::full(serde_json::to_vec(&value).unwrap_or_default()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    stamp(headers, action, &answer.stamp);
    no_retry(headers, provider);
    if let Some(seconds) = answer.retry_after_seconds {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if outcome == Outcome::OutcomeUnknown
        && let Ok(at) = HeaderValue::from_str(&format!("/-/actions/{}", answer.about))
    {
        headers.insert(LOCATION, at);
    }
    response
}

/// What every answer says of its action.
pub fn stamp(headers: &mut HeaderMap, action: ActionId, stamp: &Stamp) {
    if let Ok(id) = HeaderValue::from_str(&action.to_string()) {
        headers.insert(FORBEAR_ACTION, id);
    }
    headers.insert(FORBEAR_ATTEMPTS, HeaderValue::from(stamp.attempts));
    headers.insert(FORBEAR_WAITED_MS, HeaderValue::from(stamp.waited_ms));
    headers.insert(FORBEAR_OUTCOME, HeaderValue::from_static(stamp.outcome.as_str()));
}

/// One owner of retries: the provider's clients are told not to.
pub fn no_retry(headers: &mut HeaderMap, provider: &Provider) {
    for (name, value) in &provider.no_retry {
        headers.insert(name.clone(), value.clone());
    }
}

fn effect(answer: &Answer) -> &'static str {
    match answer.effect {
        forbear_core::effect::Effect::Applied => "applied",
        forbear_core::effect::Effect::NotApplied => "not_applied",
        forbear_core::effect::Effect::Unknown => "unknown",
    }
}

fn slug(outcome: Outcome) -> Slug {
    match outcome {
        Outcome::BudgetExhausted => Slug::BudgetExhausted,
        Outcome::DeadlineExhausted => Slug::DeadlineExhausted,
        Outcome::OutcomeUnknown => Slug::OutcomeUnknown,
        Outcome::NotApplied => Slug::NotApplied,
        Outcome::Shed => Slug::Shed,
        Outcome::Deferred => Slug::Deferred,
        Outcome::Cancelled => Slug::Cancelled,
        Outcome::Denied => Slug::Denied,
        // The provider's own answers: never made here.
        Outcome::Succeeded | Outcome::Rejected | Outcome::StreamIncomplete => Slug::BadRequest,
    }
}

fn shape(provider: &Provider) -> forbear_api::problem::Shape {
    use forbear_api::problem::Shape;
    use forbear_core::contract::ErrorShape;
    match provider.compiled.contract.error_shape {
        ErrorShape::Problem => Shape::Problem,
        ErrorShape::Openai => Shape::Openai,
        ErrorShape::Anthropic => Shape::Anthropic,
        ErrorShape::Stripe => Shape::Stripe,
        ErrorShape::Github => Shape::Github,
    }
}

fn rfc3339(at: Wall) -> Option<String> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|t| t.to_string())
}
