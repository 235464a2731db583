//! An answer, kept while it is relayed, so that calls which repeat the first one get the same. That of a write is kept for the
//! flight only, another for as long as its client may repeat the call: it is no cache.

use std::collections::{BTreeMap, VecDeque};
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

/// Bytes of all answers that are kept for repeats, and of all that are kept for the flight.
const COPIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that an answer's head and its place in here count for.
const HEAD_BYTES: usize = 2 * 1024;

/// Answers that may be asked for again.
#[derive(Debug, Default)]
pub struct Copies {
    /// Of calls that have ended, the oldest first. At its bound the oldest goes.
    kept: VecDeque<(Mono, ActionId, Arc<AnswerCopy>)>,
    bytes: usize,
    /// Of writes whose agents take their answers yet, for who joins them. At its bound none is added: who joins such a one is
    /// told that it was done.
    told: BTreeMap<ActionId, Arc<AnswerCopy>>,
    told_bytes: usize,
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

    /// Until [`Copies::over`].
    pub fn keep_for_the_flight(&mut self, action: ActionId, copy: Arc<AnswerCopy>) {
        if self.told_bytes + copy.cost() <= COPIES_BYTES_MAX {
            self.told_bytes += copy.cost();
            self.told.insert(action, copy);
        }
    }

    /// The flight has ended.
    pub fn over(&mut self, action: ActionId) {
        if let Some(copy) = self.told.remove(&action) {
            self.told_bytes -= copy.cost();
        }
    }

    #[must_use]
    pub fn get(&self, action: ActionId) -> Option<&Arc<AnswerCopy>> {
        let told = self.told.get(&action);
        told.or_else(|| self.kept_for(action))
    }

    fn kept_for(&self, action: ActionId) -> Option<&Arc<AnswerCopy>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(bytes: usize) -> Arc<AnswerCopy> {
        let mut recorder = Recorder::new(Response::new(()).into_parts().0);
        recorder.pass(&Bytes::from(vec![0; bytes]));
        recorder.copy().unwrap()
    }

    #[test]
    fn what_is_kept_for_the_flight_pushes_nothing_else_out_and_goes_with_it() {
        let mut copies = Copies::default();
        copies.keep(Mono(0), ActionId(1), copy(100));
        for action in 2..1_000 {
            copies.keep_for_the_flight(ActionId(action), copy(COPY_BYTES_MAX));
        }
        let kept = (2..1_000).filter(|action| copies.get(ActionId(*action)).is_some()).count();
        assert!(kept > 50 && kept * COPY_BYTES_MAX <= COPIES_BYTES_MAX, "{kept}");
        assert!(copies.get(ActionId(1)).is_some());
        (2..1_000).for_each(|action| copies.over(ActionId(action)));
        assert!(copies.get(ActionId(2)).is_none());
        copies.keep_for_the_flight(ActionId(2), copy(100));
        assert!(copies.get(ActionId(2)).is_some());
    }
}
