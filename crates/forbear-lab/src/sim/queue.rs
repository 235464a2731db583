//! What is going to happen, by time and then by the order in which it was put in.

use std::collections::BTreeMap;

use forbear_core::time::Mono;

use super::world::Happening;

/// The happenings lie apart from their order: they are large, and an ordered map moves what it holds.
#[derive(Default)]
pub(super) struct Queue {
    order: BTreeMap<(Mono, u64), usize>,
    places: Vec<Option<Happening>>,
    free: Vec<usize>,
    count: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Mono, happening: Happening) {
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(happening);
                place
            }
            None => {
                self.places.push(Some(happening));
                self.places.len() - 1
            }
        };
        self.count += 1;
        self.order.insert((at, self.count), place);
    }

    pub(super) fn next_at(&self) -> Option<Mono> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn pop(&mut self) -> Option<(Mono, Happening)> {
        let ((at, _), place) = self.order.pop_first()?;
        self.free.push(place);
        Some((at, self.places[place].take()?))
    }
}
