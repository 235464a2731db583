//! A success that may be a refusal: read for its meaning before it is handed on, where the provider's contract names codes
//! for its status, and only where it is JSON of a bounded length, or XML where the contract's errors are. Nothing else
//! waits here, and no stream.

use std::time::Duration;

use forbear_core::classify::{is_whole, may_disguise};
use forbear_core::contract::Contract;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;

use crate::http::answer::AnswerBody;
use crate::http::begun::{Begun, begin_until};

/// A longer body is content: providers say what went wrong in less.
const BYTES_MAX: usize = 64 * 1024;
/// How long its beginning may take. A body that comes more slowly is handed on as it comes, and taken for what its status
/// says.
const READ_MAX: Duration = Duration::from_secs(2);

pub(super) fn is_possible(contract: &Contract, head: &Parts) -> bool {
    may_disguise(contract, head.status.as_u16()) && is_document(contract, head) && !is_long(head)
}

pub(super) async fn begin(contract: &Contract, head: &Parts, body: AnswerBody) -> Begun {
    begin_until(body, BYTES_MAX, READ_MAX, |begun| is_whole(contract, &head.headers, &begun.bytes())).await
}

fn is_document(contract: &Contract, head: &Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_xml = || matches!(&*kind, "application/xml" | "text/xml") || kind.ends_with("+xml");
    kind == "application/json" || kind.ends_with("+json") || contract.xml_errors && is_xml()
}

fn is_long(head: &Parts) -> bool {
    let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|bytes| bytes > BYTES_MAX)
}
