//! The beginning of an event stream, read before it is handed on where the contract marks errors: one before any content is
//! the answer.
//!
//! Held back is only what may yet be such an error, so much and for so long: the first byte that cannot be lets all of it
//! go on. What is not known by then is content.

use std::time::Duration;

use forbear_core::classify::{Opening, opening};
use forbear_core::contract::StreamRule;

use crate::http::answer::AnswerBody;
use crate::http::begun::{Begun, begin_until};

/// Providers say what went wrong in less.
const BYTES_MAX: usize = 64 * 1024;
/// How long an error may take to come. Tokens come when they come.
const READ_MAX: Duration = Duration::from_secs(2);

/// Awaits the first event, as far as it may be an error by the rule: the body, and the data of the event if it is one.
pub(super) async fn begin(rule: &StreamRule, body: AnswerBody) -> (Begun, Option<Vec<u8>>) {
    let is_known = |begun: &Begun| !matches!(opening(rule, &begun.bytes(), false), Opening::Open);
    let begun = begin_until(body, BYTES_MAX, READ_MAX, is_known).await;
    let error = match opening(rule, &begun.bytes(), begun.is_complete()) {
        Opening::Error(data) => Some(data),
        Opening::Open | Opening::Content => None,
    };
    (begun, error)
}
