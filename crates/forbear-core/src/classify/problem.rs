//! Problem details (RFC 9457) as far as they decide: the problem types of the RateLimit draft and the policies that a
//! refusal names. Members of a wrong type are ignored, `status` always: the real status wins.

use serde_json::Value;

use super::body;

const TYPES: [&str; 2] =
    ["https://iana.org/assignments/http-problem-types#", "https://www.iana.org/assignments/http-problem-types#"];
/// Policies of one refusal that are kept.
const POLICIES_MAX: usize = 16;

/// What a problem type of the RateLimit draft says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemType {
    QuotaExceeded,
    TemporaryReducedCapacity,
    AbnormalUsageDetected,
}

/// The members that decide.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Problem<'a> {
    /// `None` is `about:blank` and every type that is not of the draft.
    pub(super) known_type: Option<ProblemType>,
    pub(super) title: Option<&'a str>,
    /// `violated-policies`, names of members of `RateLimit-Policy`.
    pub(super) violated: Vec<&'a str>,
}

pub(super) fn read(json: &Value) -> Problem<'_> {
    let fragment = body::text_at(json, &["type"]).and_then(|uri| TYPES.iter().find_map(|base| uri.strip_prefix(base)));
    let violated = body::member_at(json, &["violated-policies"]).and_then(Value::as_array);
    Problem {
        known_type: match fragment {
            Some("quota-exceeded") => Some(ProblemType::QuotaExceeded),
            Some("temporary-reduced-capacity") => Some(ProblemType::TemporaryReducedCapacity),
            Some("abnormal-usage-detected") => Some(ProblemType::AbnormalUsageDetected),
            _ => None,
        },
        title: body::text_at(json, &["title"]),
        violated: violated.into_iter().flatten().filter_map(Value::as_str).take(POLICIES_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_types_of_the_draft_are_known() {
        for (fragment, expect) in [
            ("quota-exceeded", Some(ProblemType::QuotaExceeded)),
            ("temporary-reduced-capacity", Some(ProblemType::TemporaryReducedCapacity)),
            ("abnormal-usage-detected", Some(ProblemType::AbnormalUsageDetected)),
            ("date", None),
        ] {
            let uri = format!("https://iana.org/assignments/http-problem-types#{fragment}");
            let problem = json!({"type": uri, "title": "t", "violated-policies": ["daily", 7, "burst"]});
            let read = read(&problem);
            assert_eq!(read.known_type, expect, "{fragment}");
            assert_eq!((read.title, read.violated), (Some("t"), vec!["daily", "burst"]));
        }
    }

    #[test]
    fn wrong_types_are_ignored() {
        for problem in [
            json!({}),
            json!([]),
            json!({"status": "429"}),
            json!({"type": 7, "title": ["x"], "violated-policies": "daily"}),
            json!({"type": "quota-exceeded"}),
        ] {
            assert_eq!(read(&problem), Problem::default(), "{problem}");
        }
    }
}
