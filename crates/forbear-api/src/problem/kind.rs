//! The closed list of problem types: for each its slug, its status, what happened and what to do. The one home of these
//! texts; the pages are made from them. A problem that ends an action has its outcome's name as slug.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where the pages of the problem types are.
const BASE: &str = "/-/problems/";

macro_rules! kinds {
    ($($name:ident $slug:literal $status:literal [$($next:literal),*] $title:literal
        $happened:literal
        $todo:literal)*) => {
        /// What kind of problem it is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($name),* }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug),* }
            }

            #[must_use]
            pub const fn uri(self) -> &'static str {
                match self { $(Self::$name => concat!("/-/problems/", $slug)),* }
            }

            /// The status that it usually has; 0 where it is the provider's last one.
            const fn usual_status(self) -> u16 {
                match self { $(Self::$name => $status),* }
            }

            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }

            #[must_use]
            pub const fn what_happened(self) -> &'static str {
                match self { $(Self::$name => $happened),* }
            }

            #[must_use]
            pub const fn what_to_do(self) -> &'static str {
                match self { $(Self::$name => $todo),* }
            }

            /// What may be done now, where the occurrence says nothing narrower.
            #[must_use]
            pub const fn safe_next(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($next),*]),* }
            }
        }
    };
}

kinds! {
    BudgetExhausted "budget_exhausted" 0 ["call_again", "ask_a_person"] "The retry budget is used up"
        "Every attempt or all the waiting that this action, its task or its scope may spend is spent, and the last attempt did not succeed. The status is the provider's last one, or 504 for a read and 422 for a write that have none."
        "Do not repeat the call in a loop: wait until next_allowed_at, or let a person raise the budget or the provider's quota."
    DeadlineExhausted "deadline_exhausted" 504 ["call_again", "ask_a_person"] "The deadline leaves no time for another attempt"
        "The next attempt would be after the action's deadline, so Forbear ended at once instead of waiting first. 504 for a read, 422 for a write."
        "Ask again with a later Forbear-Deadline, or at next_allowed_at."
    OutcomeUnknown "outcome_unknown" 422 ["watch_action", "look_up_at_provider"] "It is not known whether the write was done"
        "The write left for the provider and nothing proves what became of it. Forbear does not send it again on hope: that could do it twice."
        "Look at the provider whether it was done, and follow the action at its address. If you looked and it was not done, send the same write with a new Forbear-Reference, and a new key if it had one. As long as the action is open, an equal write without them is not sent, but for one under a key that the provider still honours. If you cannot look, leave it."
    NotApplied "not_applied" 422 ["call_again"] "The write was not done"
        "It is proven that the provider did not do it: nothing was sent, or what was sent was refused unprocessed."
        "The same call may be made again."
    Shed "shed" 429 ["call_again"] "A bound is full"
        "As many calls wait or are kept as the named bound allows, so this one was refused before anything was sent."
        "Make the call again after Retry-After; if this happens often, raise the bound that the reason names or slow the agents."
    Deferred "deferred" 429 ["call_again"] "The wait is too long to hold the call open"
        "The provider wants no call before next_allowed_at, and that is longer than the call may be held. Nothing was sent."
        "Make the call again after Retry-After."
    Cancelled "cancelled" 410 ["ask_a_person"] "The task was cancelled"
        "A person cancelled this task, or the agent left. Its waiting calls were ended and will never wake."
        "Stop working on this task unless the one who cancelled it says otherwise."
    Denied "denied" 403 ["ask_a_person"] "The call is not allowed"
        "A rule of the policy forbids this call. Nothing was sent."
        "Ask the one who keeps the policy."
    StreamIncomplete "stream_incomplete" 0 [] "The stream ended before its end"
        "The provider's answer was cut, or had an error inside. What came was given to the agent as it came."
        "Treat what was read as incomplete; a read may be asked again."
    CircuitOpen "circuit_open" 0 ["change_the_request", "ask_a_person"] "This call failed the same way too often"
        "The same request, or every request on this route, credential or scope, failed in the same way too often. Nothing was sent: the answer has the status and code of the failure that is on record, and the detail says what it was."
        "Do what safe_next names: change the request where the provider refused it, let a person look at a credential that it does not take, and ask again at next_allowed_at where the provider is down."
    UnknownProvider "unknown_provider" 404 ["change_the_request"] "No such provider"
        "The first segment of the path names the provider, and no provider of this name is known."
        "Use one of the names that the detail lists, or declare the provider under `providers` in the configuration."
    LeadsBack "leads_back" 400 ["ask_a_person"] "The provider's address leads back to Forbear"
        "The call has come through this Forbear before: what stands as the provider's base_url ends at Forbear's own listener. It was not sent again."
        "Let the one who keeps the configuration put the provider's own address into base_url."
    BadTarget "bad_target" 400 ["change_the_request"] "The request target cannot be passed on"
        "The path or query has bytes, a form or dot segments that cannot be passed on exactly as they are."
        "Percent-encode the target and remove dot segments."
    BadRequest "bad_request" 400 ["change_the_request"] "The request is not well-formed HTTP"
        "The message's framing or one of its header fields is ambiguous or malformed, so it was refused and its connection closed."
        "Mend the client: the detail names what is wrong."
    BadForbearHeader "bad_forbear_header" 400 ["change_the_request"] "A Forbear header cannot be read"
        "One of the request headers that speak to Forbear has a value that it does not know."
        "Mend the header that the detail names."
    SignedElsewhere "signed_elsewhere" 400 ["change_the_request"] "The call is signed for another host"
        "Its signature covers the host, and names another one than the provider's, which would refuse it. Nothing was sent."
        "Sign the call for the host that the detail names, with that name in its Host field, and send it to Forbear's address."
    KeyMismatch "key_mismatch" 422 ["change_the_request"] "The idempotency key was used with other content"
        "An action with the same idempotency key or Forbear-Reference and other content is on record. Nothing was sent."
        "Use a new key for new content, or the old content with the old key."
    AlreadyDone "already_done" 422 ["watch_action", "look_up_at_provider"] "The write was done before"
        "The same write was done; action names it. It is known by its idempotency key, its Forbear-Reference, its content where no agent was told, or its content and its client's own mark of a repeat: for a day with an id of the call (amz-sdk-invocation-id, gccl-invocation-id), for 15 minutes without one (x-stainless-retry-count). It was not sent again, and its answer is not kept."
        "Take it as done; the action at its address says when. To do it a second time on purpose, send a new Forbear-Reference or a new key."
    BodyTooLarge "body_too_large" 413 ["change_the_request"] "The request body is too large"
        "The body is larger than body_bytes_max."
        "Send less, or raise body_bytes_max in the configuration."
    HeaderTooLarge "header_too_large" 431 ["change_the_request"] "The request head is too large"
        "The head is larger than 64 KiB, or has more than 100 fields."
        "Send fewer or smaller header fields."
    UpgradeUnsupported "upgrade_unsupported" 501 ["change_the_request"] "Upgrades are not passed on"
        "The request asks for another protocol (a WebSocket, CONNECT), whose calls Forbear could not govern."
        "Use the provider's HTTP endpoint, or connect to the provider directly for this one."
    InternalError "internal_error" 500 ["watch_action", "ask_a_person"] "Forbear failed"
        "Something went wrong inside Forbear. What is on record is true; the reason says how far the call got."
        "Look at the action before repeating a write, and report this with the server's log."
    Unauthorized "unauthorized" 401 ["change_the_request"] "The control API needs its token"
        "The request has no bearer token, or a wrong one."
        "Send `Authorization: Bearer <token>`; the token is in the file that the detail names, readable by its owner only."
    ForeignOrigin "foreign_origin" 403 ["change_the_request"] "The request comes from elsewhere"
        "The Host or Origin of the request is neither a loopback name nor the address that the server listens on. Web pages may not drive the control API."
        "Use the address that `forbear serve` printed."
    NotFound "not_found" 404 ["change_the_request"] "There is nothing here"
        "No page, action or list has this address."
        "Use an address that the detail lists, or an id that `forbear actions` shows."
    MethodNotAllowed "method_not_allowed" 405 ["change_the_request"] "The address does not know this method"
        "The address exists, but not for this method."
        "Use one of the methods of the Allow header."
    BadQuery "bad_query" 400 ["change_the_request"] "The query cannot be read"
        "A parameter is unknown or has a value of the wrong kind."
        "Mend the parameter that the detail names; /-/v1/openapi.json lists them."
    BadConfiguration "bad_configuration" 422 ["change_the_request"] "The configuration has faults"
        "The file was read again, and something in it is wrong. Nothing was changed: the server goes on by the configuration that it has."
        "Mend what the detail lists; `forbear config check FILE` shows it line by line. Then reload once more."
    NoConfiguration "no_configuration" 422 ["ask_a_person"] "There is no file to read again"
        "The server was started without a configuration file."
        "Start it with --config FILE; from then on it can be reloaded."
    StoreUnreadable "store_unreadable" 500 ["ask_a_person"] "The journal cannot be read"
        "The store's files could not be read. Nothing was changed."
        "Look at the server's log and at the page of the error code in the detail."
    NotDurable "not_durable" 500 ["call_again"] "It was decided, but the journal does not have it"
        "What was asked for holds in the running server. The journal could not be written, or not in time, so that it is not known to hold after the next start."
        "Ask again once /-/ready says that new calls are taken; asking twice does no harm."
}

impl Kind {
    /// The status of an answer of this kind where nothing narrower is known.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self.usual_status() {
            0 => 422,
            status => status,
        }
    }

    /// The problem type of an outcome; `None` for outcomes that are the provider's answer.
    #[must_use]
    pub fn of_outcome(outcome: &str) -> Option<Self> {
        Self::ALL.iter().copied().take_while(|k| *k != Self::UnknownProvider).find(|k| k.slug() == outcome)
    }

    pub(super) fn status_text(self) -> String {
        match self.usual_status() {
            0 => "of the provider's last answer".to_owned(),
            status => status.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri())
    }
}

/// No problem type has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no problem type has this name")]
pub struct NotAKind;

/// Reads a slug or the whole `type`.
impl FromStr for Kind {
    type Err = NotAKind;

    fn from_str(s: &str) -> Result<Self, NotAKind> {
        let slug = s.strip_prefix(BASE).unwrap_or(s);
        Self::ALL.iter().copied().find(|k| k.slug() == slug).ok_or(NotAKind)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.uri())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_told_apart_and_read_back() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.slug().parse(), Ok(*kind));
            assert_eq!(kind.uri().parse(), Ok(*kind));
            assert!(Kind::ALL[i + 1..].iter().all(|k| k.slug() != kind.slug()));
            assert!(!kind.what_happened().is_empty() && kind.what_to_do().ends_with('.'), "{kind}");
        }
        assert_eq!("nothing".parse::<Kind>(), Err(NotAKind));
    }

    #[test]
    fn statuses_that_clients_repeat_are_never_ours() {
        for kind in Kind::ALL {
            assert!(!matches!(kind.status(), 408 | 409 | 502 | 503), "{kind}");
        }
    }

    #[test]
    fn outcomes_have_their_own_kind_and_successes_none() {
        assert_eq!(Kind::of_outcome("budget_exhausted"), Some(Kind::BudgetExhausted));
        assert_eq!(Kind::of_outcome("succeeded"), None);
        assert_eq!(Kind::of_outcome("unknown_provider"), None);
    }
}
