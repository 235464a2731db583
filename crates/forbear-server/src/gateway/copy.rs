//! An answer, kept while it is relayed, so that calls which repeat the first one get the same. That of a write is kept for who
//! joins it, another for as long as its client may repeat the call: it is no cache.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, response};

use forbear_core::action::resend::RESULT_KEPT_MS;
use forbear_core::ids::ActionId;
use forbear_core::time::Mono;

use crate::http::relay::{self, AgentBody};

/// An answer up to this size can be given twice.
const COPY_BYTES_MAX: usize = 256 * 1024;

/// A whole answer.
#[derive(Debug)]
pub struct AnswerCopy {
    head: response::Parts,
    body: Bytes,
}

/// Bytes of all answers that are kept for repeats.
const COPIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that an answer's head and its place in here count for.
const HEAD_BYTES: usize = 2 * 1024;

/// Answers that have been given and may be asked for again, the oldest first. At its bound the oldest goes.
#[derive(Debug, Default)]
pub struct Copies {
    kept: VecDeque<(Mono, ActionId, Arc<AnswerCopy>)>,
    bytes: usize,
}

impl Copies {
    pub fn keep(&mut self, now: Mono, action: ActionId, copy: Arc<AnswerCopy>) {
        self.bytes += copy.cost();
        self.kept.push_back((now, action, copy));
        while let Some((at, _, oldest)) = self.kept.front() {
            if self.bytes <= COPIES_BYTES_MAX && now.ms_since(*at) < RESULT_KEPT_MS {
                break;
            }
            self.bytes -= oldest.cost();
            self.kept.pop_front();
        }
    }

    #[must_use]
    pub fn get(&self, action: ActionId) -> Option<&Arc<AnswerCopy>> {
        self.kept.iter().rev().find(|(_, of, _)| *of == action).map(|(_, _, copy)| copy)
    }
}

impl AnswerCopy {
    fn cost(&self) -> usize {
        self.body.len() + HEAD_BYTES
    }

    pub(super) fn response(&self) -> Response<AgentBody> {
        relay::answer(self.head.clone(), AgentBody::whole(self.body.clone()), [])
    }
}

/// Takes down an answer as it passes.
#[derive(Debug)]
pub(super) struct Recorder {
    head: response::Parts,
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Recorder {
    pub(super) fn new(head: response::Parts) -> Self {
        Self { head, pieces: Vec::new(), bytes: 0 }
    }

    pub(super) fn pass(&mut self, data: &Bytes) {
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes <= COPY_BYTES_MAX {
            self.pieces.push(data.clone());
        } else {
            self.pieces.clear();
        }
    }

    /// The copy, if the answer was not too large.
    pub(super) fn copy(self) -> Option<Arc<AnswerCopy>> {
        if self.bytes > COPY_BYTES_MAX {
            return None;
        }
        let body = match &*self.pieces {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        };
        Some(Arc::new(AnswerCopy { head: self.head, body }))
    }
}
