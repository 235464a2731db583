//! What Forbear says itself: problem details (RFC 9457) with everything that an agent needs to decide what comes next.
//!
//! It promises that no problem is without its effect and its safe next steps, and that the official clients' exceptions
//! say both too: [`problem_body`] adds the error member that a provider's clients read. It refuses to carry a body, a
//! credential or a path.

mod kind;
mod page;
mod shape;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::at::At;

pub use kind::Kind;
pub use page::problems_page;
pub use shape::{ErrorShape, problem_body};

/// The media type of every problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// One answer of Forbear's own. The members of RFC 9457 first, then ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `/-/problems/<slug>`: a page that says what happened and what to do.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Kind,
    pub title: String,
    pub status: u16,
    /// This occurrence, in a sentence.
    pub detail: String,
    /// The address of the action, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instance: Option<String>,
    /// The action to look at: this one, or the open one that this call repeats.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub action: Option<String>,
    /// How the action ends or stands.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
    /// A byte of the request may have left for the provider.
    pub sent: bool,
    /// The provider answered at least once.
    pub answered: bool,
    /// `applied`, `not_applied` or `unknown`.
    pub effect: String,
    pub attempts: u32,
    pub waited_ms: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_allowed_at: Option<At>,
    /// What may be done now, in the order of preference.
    pub safe_next: Vec<String>,
    /// Why it ended here.
    pub reason: String,
    /// The provider's last status.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider_status: Option<u16>,
    /// The provider's own error code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider_code: Option<String>,
}

impl Problem {
    /// A problem of a call that never became an action: nothing was sent, nothing was applied.
    #[must_use]
    pub fn unsent(kind: Kind, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            kind,
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: sentence(&reason, kind),
            instance: None,
            action: None,
            outcome: None,
            sent: false,
            answered: false,
            effect: "not_applied".to_owned(),
            attempts: 0,
            waited_ms: 0,
            next_allowed_at: None,
            safe_next: kind.safe_next().iter().map(|s| (*s).to_owned()).collect(),
            reason,
            provider_status: None,
            provider_code: None,
        }
    }
}

/// What happened and what to do, in one text.
#[must_use]
pub fn sentence(reason: &str, kind: Kind) -> String {
    let mut text = reason.trim().trim_end_matches('.').to_owned();
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    format!("{text}. {}", kind.what_to_do())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsent_problem_says_everything() {
        let problem = Problem::unsent(Kind::UnknownProvider, "no provider is named `opnai`; known: openai, stripe");
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json["type"], "/-/problems/unknown_provider");
        assert_eq!(json["status"], 404);
        for member in ["sent", "answered", "effect", "attempts", "waited_ms", "safe_next", "reason", "detail", "title"]
        {
            assert!(json.get(member).is_some(), "{member}");
        }
        assert!(
            problem.detail.starts_with("No provider is named `opnai`; known: openai, stripe. "),
            "{}",
            problem.detail
        );
        assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
    }

    #[test]
    fn a_reason_that_begins_with_any_letter_is_kept() {
        assert!(sentence("über", Kind::Shed).starts_with("über. "));
        assert!(sentence("", Kind::Shed).starts_with(". "));
    }
}
