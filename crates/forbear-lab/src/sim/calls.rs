//! The calls of a schedule, as their agents, the driver and the provider know them.

use forbear_core::effect::Effect;
use forbear_core::ids::ActionId;
use forbear_core::input::Request;
use forbear_core::time::Mono;

/// Calls that an agent makes for one intent, at most.
pub(super) const CALLS_MAX: u32 = 5;

pub(super) struct Call {
    pub(super) intent: usize,
    pub(super) task: usize,
    /// The process that holds its connection.
    pub(super) home: u32,
    pub(super) request: Request,
    pub(super) came: Mono,
    pub(super) deadline: Mono,
    pub(super) answers: u32,
    /// The agent hung up, or its connection was lost with the process.
    pub(super) gone: bool,
    /// Commands given so far, and when the driver has run them all.
    pub(super) commands: u64,
    pub(super) commands_at: Mono,
    /// The attempt that the driver has in hand, and whether its first byte left.
    pub(super) attempt: u32,
    pub(super) on_wire: bool,
    pub(super) relaying: bool,
    /// The last attempt that the core gave, and the step in which its slot was taken.
    pub(super) given: u32,
    pub(super) took: (u32, u64),
    /// The attempt whose head was told before its body came.
    pub(super) head_told: u32,
    /// Attempts that reached the wire, and effects at the provider.
    pub(super) sends: u32,
    /// The last attempt that did.
    pub(super) left: u32,
    pub(super) effects: u32,
    pub(super) heads: u32,
    /// The next attempt that leaves was charged as a retry.
    pub(super) is_retry: bool,
    /// What the provider told this call alone.
    pub(super) not_before: Mono,
    /// Attempts that the provider proved unprocessed.
    pub(super) refused: u32,
    /// Answers that the core gave, run or not, and what the last of Forbear's own said of the effect.
    pub(super) promised: u32,
    pub(super) told: Option<(ActionId, Effect)>,
    /// The attempt was cancelled upstream or its process is gone: nothing more is heard of it.
    pub(super) dead: bool,
    /// An attempt left whose fate is open.
    pub(super) unknown: bool,
    /// When its key first reached the wire.
    pub(super) key_since: Option<Mono>,
}

impl Call {
    pub(super) fn new(intent: usize, task: usize, home: u32, request: Request, came: Mono, deadline: Mono) -> Self {
        Self {
            intent,
            task,
            home,
            request,
            came,
            deadline,
            answers: 0,
            gone: false,
            commands: 0,
            commands_at: came,
            attempt: 0,
            on_wire: false,
            relaying: false,
            given: 0,
            took: (0, 0),
            head_told: 0,
            sends: 0,
            left: 0,
            effects: 0,
            heads: 0,
            is_retry: false,
            not_before: Mono(0),
            refused: 0,
            promised: 0,
            told: None,
            dead: false,
            unknown: false,
            key_since: None,
        }
    }

    /// Its agent waits for an answer, or for the rest of one.
    pub(super) const fn is_open(&self) -> bool {
        !self.gone && (self.answers == 0 || self.relaying)
    }
}

/// Found by their action, which is named after intent and call: `a31` is the first call for the third intent.
#[derive(Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    places: Vec<u16>,
}

impl Calls {
    pub(super) fn action(intent: usize, nth: u32) -> ActionId {
        ActionId(intent as u128 * 10 + u128::from(nth))
    }

    pub(super) fn push(&mut self, call: Call) {
        if self.all.is_empty() {
            self.all.reserve(32);
        }
        let place = place(call.request.action);
        if self.places.len() <= place {
            self.places.resize(place + 1, 0);
        }
        self.all.push(call);
        self.places[place] = u16::try_from(self.all.len()).unwrap_or(0);
    }

    pub(super) fn get(&self, action: ActionId) -> Option<&Call> {
        let at = *self.places.get(place(action))?;
        self.all.get(usize::from(at).checked_sub(1)?)
    }

    pub(super) fn get_mut(&mut self, action: ActionId) -> Option<&mut Call> {
        let at = *self.places.get(place(action))?;
        self.all.get_mut(usize::from(at).checked_sub(1)?)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Call> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Call> {
        self.all.iter_mut()
    }
}

/// What chance calls it by.
pub(super) fn number(action: ActionId) -> u64 {
    u64::try_from(action.0).unwrap_or(0)
}

fn place(action: ActionId) -> usize {
    usize::try_from(action.0).unwrap_or(usize::MAX)
}
