//! The answer to a write, kept while it is relayed, so that calls which repeat the write get the same one. Kept for the
//! flight only: it is no cache.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, response};

use crate::http::relay::{self, AgentBody};

/// An answer up to this size can be given twice.
const COPY_BYTES_MAX: usize = 256 * 1024;

/// A whole answer.
#[derive(Debug)]
pub struct AnswerCopy {
    head: response::Parts,
    body: Bytes,
}

impl AnswerCopy {
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
