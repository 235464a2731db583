//! What the core tells the driver to do. Commands are run after the lock is given back, in order.

use crate::effect::Effect;
use crate::event::{Event, Joined, Outcome};
use crate::ids::{ActionId, AttemptNo};
use crate::time::{Mono, Wall};

pub type Commands = Vec<Command>;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Put this into the journal, in this order. `behind`: no one waits for it.
    Append {
        event: Box<Event>,
        behind: bool,
    },
    Dispatch(Dispatch),
    /// The agent holds its body back, and it may be read now.
    ReadBody {
        action: ActionId,
    },
    /// Give the provider's answer to the agent.
    Relay {
        action: ActionId,
        attempt: AttemptNo,
        stamp: Stamp,
    },
    /// Give the agent an answer of our own.
    Answer {
        action: ActionId,
        answer: Box<Answer>,
    },
    /// Give this call the answer that the action `of` got, or `otherwise` where no copy of it is kept.
    Share {
        action: ActionId,
        of: ActionId,
        stamp: Stamp,
        otherwise: Box<Answer>,
    },
    /// Close the attempt's upstream connection or stream.
    CancelUpstream {
        action: ActionId,
        attempt: AttemptNo,
    },
    /// The sealed content is no longer needed: the end is proven.
    ForgetContent {
        action: ActionId,
    },
}

impl Command {
    /// The action whose call must carry this out; none for the journal.
    #[must_use]
    pub fn action(&self) -> Option<ActionId> {
        match self {
            Self::Append { .. } | Self::ForgetContent { .. } => None,
            Self::Dispatch(d) => Some(d.action),
            Self::ReadBody { action }
            | Self::Relay { action, .. }
            | Self::Answer { action, .. }
            | Self::Share { action, .. }
            | Self::CancelUpstream { action, .. } => Some(*action),
        }
    }
}

/// One attempt to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatch {
    pub action: ActionId,
    pub attempt: AttemptNo,
    /// Not a byte may leave after this instant; the decision is stale then.
    pub send_not_after: Mono,
    /// The head must be there by this instant, or the attempt is given up.
    pub give_up_at: Mono,
    /// Take a connection that carried no request: a used one may carry that one's answer.
    pub fresh_connection: bool,
    /// [`Coordinator::doubts`](crate::coordinator::Coordinator::doubts) at the decision: while it has not grown, the
    /// attempt may leave without being asked about again.
    pub doubts: u64,
}

/// What every answer says about its action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub outcome: Outcome,
    pub attempts: u32,
    pub waited_ms: u64,
}

/// An answer of Forbear's own, before it is a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub stamp: Stamp,
    /// A byte of the request may have left.
    pub sent: bool,
    /// The provider answered at least once.
    pub answered: bool,
    pub effect: Effect,
    pub provider_status: Option<u16>,
    pub provider_code: Option<String>,
    pub next_allowed_at: Option<Wall>,
    /// Whole seconds for `Retry-After`, rounded up, where a repeat is safe.
    pub retry_after_seconds: Option<u64>,
    /// The action to look at: this one, or the open one that this call repeats.
    pub about: ActionId,
    pub reason: String,
    pub safe_next: Vec<SafeNext>,
    pub problem: Problem,
    /// The call was joined to the action that the answer is about.
    pub joined: Option<Joined>,
}

/// Which problem an answer tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The one of its outcome.
    OfOutcome,
    /// The same key or reference was used with other content.
    KeyMismatch,
    /// The write was done before, and is not done again.
    AlreadyDone,
}

/// What may be done now: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SafeNext {
    /// Nothing was done; the same call may be made again at `next_allowed_at`, or now where there is none.
    CallAgain,
    /// The same call with the same idempotency key.
    CallAgainSameKey,
    /// Look at the provider whether it was done, before anything else.
    LookUp,
    /// Follow the action at its address.
    WatchAction,
    /// A person must raise a budget, a quota or a deadline.
    AskPerson,
    /// Change the request: it will fail again unchanged.
    ChangeRequest,
}

impl SafeNext {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallAgain => "call_again",
            Self::CallAgainSameKey => "call_again_with_same_key",
            Self::LookUp => "look_up_at_provider",
            Self::WatchAction => "watch_action",
            Self::AskPerson => "ask_a_person",
            Self::ChangeRequest => "change_the_request",
        }
    }
}
