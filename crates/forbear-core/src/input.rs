//! What the driver tells the core. Everything that can happen to an action is one of these.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::classify::Classification;
use crate::effect::Evidence;
use crate::event::KeyUsed;
use crate::ids::{
    ActionId, AttemptNo, ClassName, Digest, Key, ProviderName, Route, RunId, ScopeId, Seq, TaskId, TenantId,
};
use crate::lane::Lane;
use crate::pacer::{Ask, Rate};
use crate::policy::{ClassRule, Limits, Policy, Priority, Rank};
use crate::time::Wall;

/// Actions that a cancel ends in one visit, which takes some milliseconds.
const CANCELLED_AT_ONCE: usize = 1_000;

/// What a policy says of a provider's home scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeRule {
    pub limits: Limits,
    pub rates: Arc<[Rate]>,
}

/// What a person cancels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    Task(TaskId),
    Run(RunId),
    Action(ActionId),
}

#[derive(Debug)]
pub enum Input {
    /// An agent asks.
    Request(Box<Request>),
    /// A head was read, or the attempt failed without one.
    Result {
        action: ActionId,
        attempt: AttemptNo,
        report: Box<Report>,
    },
    /// The provider has given all of the answer that is being relayed, which ended so, and its agent has not taken it yet.
    /// Said only where the end is not told in the same breath.
    AnswerRead {
        action: ActionId,
        attempt: AttemptNo,
        end: BodyEnd,
    },
    /// The body that was being relayed ended.
    Ended {
        action: ActionId,
        attempt: AttemptNo,
        end: BodyEnd,
    },
    /// Nobody waits for the answer any more.
    AgentLeft {
        action: ActionId,
    },
    /// Nothing of it is sent any more.
    Cancel {
        whose: Whose,
        by: String,
    },
    /// Calls of a task or run that was cancelled are taken again.
    Reopen {
        whose: Whose,
        by: String,
    },
    /// Everything up to here is on the disk.
    Durable {
        seq: Seq,
    },
    /// What was appended after the last durable number is lost.
    AppendFailed {
        why: String,
    },
    /// The store's size bound was reached, or there is room again.
    StoreFull(bool),
    PolicyLoaded {
        settings: Arc<Settings>,
        by: String,
    },
    /// A refusal's head was read, and the rest of it is slow, or not waited for by who was cancelled: what it says of the
    /// scope holds for everybody.
    Refused {
        action: ActionId,
        attempt: AttemptNo,
        scope: ScopeId,
        lane: Lane,
        head: Box<HeadSeen>,
    },
    /// No new calls; what waits gets an answer that is safe to repeat.
    Drain,
    /// Draining took its time: what still waits for an answer's head is told what is known.
    DrainOver,
    /// Time passed.
    Wake,
}

/// The part of the policy that is not carried by each request.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub task: crate::policy::TaskRule,
    pub backoff: crate::policy::BackoffRule,
    pub pacing: crate::policy::PacingRule,
    pub breakers: crate::breaker::BreakerRule,
    /// Actions of something cancelled that end in one visit. The others follow at once, and none of them leaves meanwhile.
    pub cancelled_at_once: usize,
    /// What each provider's home scopes keep to.
    pub homes: BTreeMap<ProviderName, HomeRule>,
    pub digest: Digest,
}

impl Settings {
    /// What a policy says, under the name that it is known by; of no provider's homes yet.
    #[must_use]
    pub const fn of(policy: &Policy, digest: Digest) -> Self {
        Self {
            task: policy.task,
            backoff: policy.backoff,
            pacing: policy.pacing,
            breakers: policy.breakers,
            cancelled_at_once: CANCELLED_AT_ONCE,
            homes: BTreeMap::new(),
            digest,
        }
    }
}

/// One call, as the ingress understood it.
#[derive(Debug, Clone)]
pub struct Request {
    pub action: ActionId,
    pub task: TaskId,
    pub run: RunId,
    pub provider: ProviderName,
    /// The home scope: provider and account.
    pub scope: ScopeId,
    /// The credential, where its account has several.
    pub tenant: Option<TenantId>,
    /// The policy that it was understood by. What that says of its scopes holds while it is the one in force.
    pub policy: Digest,
    pub limits: Limits,
    pub quota: Quota,
    pub route: Route,
    pub class: ClassName,
    pub rank: Rank,
    pub rule: Arc<ClassRule>,
    /// Absent for a body that is streamed once.
    pub content_digest: Option<Digest>,
    pub content_bytes: u64,
    /// The body is held and can be sent again.
    pub replayable: bool,
    /// The agent holds its body back until it hears `100 Continue`: decide before reading it.
    pub body_pending: bool,
    pub key: Option<KeyUsed>,
    /// The route's effect is the same however often it is sent.
    pub repeatable: bool,
    /// Its effect is that something is gone, so that a repeat which finds nothing finds it done.
    pub deletes: bool,
    /// It came to the agent's own server in early data (RFC 8470), which may be somebody else's replay.
    pub early_data: bool,
    /// What the agent asked for, within what the class allows.
    pub deadline: Wall,
    pub goal: Option<Arc<str>>,
    pub reference: Option<Arc<str>>,
    /// Derived from the reference and its task, where the key is not that already.
    pub reference_key: Option<Key>,
    /// The client's own word on whether it repeats a call.
    pub mark: Mark,
    /// Of the id that its client gives to all sends of one call.
    pub invocation: Option<Digest>,
    /// What the sends of one call without lasting effect have in common, where its client marks them or its task has a name.
    pub call_digest: Option<Digest>,
    /// What makes a request the same one to a breaker: its content, where its run has a name or it writes.
    pub request_digest: Option<Digest>,
    /// The run was named by its agent: else each call is one of its own.
    pub run_named: bool,
    /// Also a read is journaled before it is sent (`journal_reads: before`).
    pub journal_before: bool,
    /// It is forwarded once, as it is, and what would have been decided is recorded.
    pub observe: bool,
}

impl Request {
    /// Whose agents they are: what repeats what is asked within it, and nothing of it is told to another.
    #[must_use]
    pub fn owner(&self) -> TenantId {
        owner(&self.scope, self.tenant.as_ref())
    }

    /// The run, where its agent named it.
    #[must_use]
    pub fn run_name(&self) -> Option<&RunId> {
        self.run_named.then_some(&self.run)
    }
}

/// The tenant, or the credential that is the account.
pub(crate) fn owner(scope: &ScopeId, tenant: Option<&TenantId>) -> TenantId {
    tenant.cloned().unwrap_or_else(|| TenantId(Arc::clone(&scope.0)))
}

/// What a call's turn depends on, beside the limits of its home.
#[derive(Debug, Clone, Default)]
pub struct Quota {
    /// The home's declared rates.
    pub rates: Arc<[Rate]>,
    /// The scopes below the home.
    pub lane: Lane,
    pub priority: Priority,
    /// What it takes of the rates, beside its being one request.
    pub ask: Ask,
}

/// What a client says of a call that it may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing: most clients mark no repeats.
    Silent,
    /// Its first send, of a client that marks its repeats.
    First,
    Repeat,
}

/// What became of an attempt, as far as its head.
#[derive(Debug)]
pub struct Report {
    pub evidence: Evidence,
    pub answer: Option<HeadSeen>,
    /// What the transport saw, in words.
    pub transport: Option<String>,
}

#[derive(Debug, Clone)]
pub struct HeadSeen {
    pub status: u16,
    pub classification: Classification,
}

/// How a relayed body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEnd {
    Complete,
    /// Cut by the provider, in words.
    Cut(String),
    /// A stream that came whole, with an error event inside or without its end mark.
    ErrorInside(String),
    /// The agent stopped reading.
    AgentLeft,
}
