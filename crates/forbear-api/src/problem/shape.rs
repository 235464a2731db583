//! The error member that a provider's own clients read, beside the problem's members, so that their exceptions say
//! what Forbear says. One function, pure.

use serde_json::{Map, Value, json};

use super::Problem;

/// How a provider's clients read an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorShape {
    /// Problem details alone.
    #[default]
    Problem,
    /// `{"error": {"message", "type", "param", "code"}}`
    Openai,
    /// `{"error": {"type", "message"}}`
    Anthropic,
    /// `{"error": {"type", "code", "message"}}`
    Stripe,
    /// `{"message", "documentation_url"}`
    Github,
    /// `{"ok": false, "error"}`
    Slack,
    /// `{"error": {"code", "message", "status"}}`
    Google,
    /// `{"__type", "message"}`
    Aws,
}

/// The whole body of a problem: its members, and the error member of the shape. `type` stays the problem's, also where
/// a provider has a member of that name.
#[must_use]
pub fn problem_body(problem: &Problem, shape: ErrorShape) -> Value {
    let mut body = match serde_json::to_value(problem) {
        Ok(Value::Object(members)) => members,
        // A problem is a struct of plain members: this cannot be reached, and an empty body would still be true.
        _ => Map::new(),
    };
    let slug = problem.kind.slug();
    let message = message(problem);
    match shape {
        ErrorShape::Problem => {}
        ErrorShape::Openai => {
            let error = json!({"message": message, "type": slug, "param": null, "code": slug});
            body.insert("error".into(), error);
        }
        ErrorShape::Anthropic => {
            body.insert("error".into(), json!({"type": slug, "message": message}));
        }
        ErrorShape::Stripe => {
            body.insert("error".into(), json!({"type": "api_error", "code": slug, "message": message}));
        }
        ErrorShape::Github => {
            body.insert("message".into(), message.into());
            body.insert("documentation_url".into(), problem.kind.uri().into());
        }
        // A code, which its client shows with all the rest of the body.
        ErrorShape::Slack => {
            body.insert("ok".into(), false.into());
            body.insert("error".into(), slug.into());
        }
        ErrorShape::Google => {
            let error = json!({"code": problem.status, "message": message, "status": slug.to_ascii_uppercase()});
            body.insert("error".into(), error);
        }
        ErrorShape::Aws => {
            body.insert("__type".into(), slug.into());
            body.insert("message".into(), message.into());
        }
    }
    Value::Object(body)
}

/// All that an exception shows of an error is often this one text: it names the action, the effect and the next step.
fn message(p: &Problem) -> String {
    let mut facts = vec![format!("effect {}", p.effect), format!("attempts {}", p.attempts)];
    facts.extend(p.provider_status.map(|s| format!("provider status {s}")));
    facts.extend(p.next_allowed_at.map(|at| format!("next allowed at {at}")));
    if !p.safe_next.is_empty() {
        facts.push(format!("safe next: {}", p.safe_next.join(" or ")));
    }
    facts.extend(p.action.as_ref().map(|a| format!("action {a}")));
    format!("Forbear: {}: {} ({})", p.title, p.detail, facts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::at::At;
    use crate::problem::Kind;

    fn problem() -> Problem {
        Problem {
            action: Some("act_00".into()),
            outcome: Some("outcome_unknown".into()),
            sent: true,
            effect: "unknown".into(),
            attempts: 1,
            next_allowed_at: Some(At(0)),
            provider_status: Some(504),
            ..Problem::unsent(Kind::OutcomeUnknown, "the request left and no answer came")
        }
    }

    #[test]
    fn each_client_finds_the_whole_context_where_it_looks() {
        let message_at = [
            (ErrorShape::Openai, "/error/message"),
            (ErrorShape::Anthropic, "/error/message"),
            (ErrorShape::Stripe, "/error/message"),
            (ErrorShape::Github, "/message"),
            (ErrorShape::Google, "/error/message"),
            (ErrorShape::Aws, "/message"),
        ];
        for (shape, at) in message_at {
            let body = problem_body(&problem(), shape);
            assert_eq!(body["type"], "/-/problems/outcome_unknown", "{shape:?}");
            let message = body.pointer(at).and_then(Value::as_str).unwrap_or_default();
            for said in
                ["effect unknown", "attempts 1", "504", "1970-01-01T00:00:00.000Z", "look_up_at_provider", "act_00"]
            {
                assert!(message.contains(said), "{shape:?} does not say {said}: {message}");
            }
        }
    }

    #[test]
    fn slacks_client_finds_a_code() {
        let body = problem_body(&problem(), ErrorShape::Slack);
        assert_eq!((&body["ok"], &body["error"]), (&Value::Bool(false), &Value::from("outcome_unknown")));
    }

    #[test]
    fn without_a_shape_only_the_problem_is_there() {
        let body = problem_body(&problem(), ErrorShape::Problem);
        assert_eq!(body, serde_json::to_value(problem()).unwrap());
        assert!(body.get("error").is_none() && body.get("message").is_none());
    }
}
