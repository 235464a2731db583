//! One action, from its admission to the agent's answer.
//!
//! A call without lasting effect lives in its agent's future: when the agent leaves, the future is dropped and so is the
//! send. A write lives in a task of its own, and the agent's future holds only the answer's end: when the agent leaves, the
//! write is followed to its end. So does any call whose client marks its repeats: one of them may take it over.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forbear_audit::seal::{Place, Sealed};
use forbear_core::command::{Command, Commands, Stamp};
use forbear_core::ids::{ActionId, AttemptNo};
use forbear_core::input::{HeadSeen, Input, Mark, Request as Asked};
use http::{Response, request};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::{Notify, oneshot};

use super::Gateway;
use super::attempt::Answered;
use super::ingress::Understood;
use super::own::{self, Refusal};
use super::secrets;
use super::stacked::Stacked;
use crate::http::body::{BodyError, RequestBody, receive};
use crate::http::relay::AgentBody;
use crate::keys;
use crate::mailbox::Mailbox;
use forbear_api::problem::Kind;

/// RFC 8470 section 5.1: there at all, it says so.
const EARLY_DATA: &str = "early-data";
/// An agent that left is known to have left by then. So long an equal write without a name waits where that would join it to
/// the one before it.
const LEAVING_SHOWS: Duration = Duration::from_millis(100);

/// Bytes of request bodies that are held for a resend, over all calls.
#[derive(Debug)]
pub struct Held {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Held {
    #[must_use]
    pub const fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max }
    }

    /// Takes places for a piece of a body, or none.
    fn reserve(&self, wanted: u64) -> bool {
        let more = |held: u64| held.checked_add(wanted).filter(|all| *all <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The line before the body in a sealed content.
#[derive(Serialize)]
struct ContentHead<'a> {
    fields: Vec<(&'a str, &'a str)>,
    method: &'a str,
    target: String,
}

/// One call on its way.
pub(super) struct Call {
    pub gateway: Arc<Gateway>,
    pub understood: Understood,
    pub head: request::Parts,
    pub body: Option<RequestBody>,
    pub mailbox: Arc<Mailbox>,
    /// The provider's last answer, until it is relayed or overtaken.
    pub answered: Option<Answered>,
    /// Set when the agent's body, not the provider, ended the attempt.
    pub body_error: Option<BodyError>,
    /// A refusal whose head was read and whose body was not yet.
    pub refused: Option<(AttemptNo, HeadSeen)>,
    /// For a write: told when its agent leaves before its answer.
    pub left: Option<Arc<Notify>>,
    held_bytes: u64,
    /// The action is the core's; dropping the call tells it that the agent left.
    admitted: bool,
}

/// The call is boxed, so that none of the futures that hold it is large.
pub(super) async fn run(call: Box<Call>, incoming: Incoming) -> Response<AgentBody> {
    let stacked = Stacked::of(&call);
    let mut answer = answered(call, incoming).await;
    if let Some(stacked) = stacked {
        stacked.tell(&mut answer);
    }
    answer
}

async fn answered(mut call: Box<Call>, incoming: Incoming) -> Response<AgentBody> {
    let writes = call.understood.class.rank.writes();
    if call.understood.expects_continue
        && let Some(answer) = call.ask_before_reading().await
    {
        return answer;
    }
    if let Err(response) = call.read_body(incoming).await {
        return response;
    }
    call.read_key();
    let content = match call.seal() {
        Ok(content) => content,
        Err(e) => return own::refusal(&Refusal::new(Kind::InternalError, e.to_string())),
    };
    let asked = call.asked(false);
    if writes && call.gateway.shard.may_repeat_one_who_leaves(&asked) {
        tokio::time::sleep(LEAVING_SHOWS).await;
    }
    call.admitted = true;
    let first = call.gateway.shard.admit(Box::new(asked), content, &call.mailbox);
    if !call.outlives_agent() {
        return call.drive(first).await;
    }
    let left = Arc::new(Notify::new());
    call.left = writes.then(|| Arc::clone(&left));
    let guard = AgentGuard { gateway: Arc::clone(&call.gateway), action: call.understood.action, left, here: true };
    let (give, take) = oneshot::channel();
    tokio::spawn(async move {
        // An agent that left takes no answer: the body is followed to its end all the same.
        if let Err(unwanted) = give.send(call.drive(first).await) {
            drop(unwanted);
        }
    });
    let answer = take.await;
    guard.disarm();
    answer.unwrap_or_else(|_| own::refusal(&Refusal::new(Kind::InternalError, "the call broke off inside Forbear")))
}

/// Tells the core when the agent of a write leaves before its answer.
struct AgentGuard {
    gateway: Arc<Gateway>,
    action: ActionId,
    left: Arc<Notify>,
    here: bool,
}

impl AgentGuard {
    fn disarm(mut self) {
        self.here = false;
    }
}

impl Drop for AgentGuard {
    fn drop(&mut self) {
        if self.here {
            self.gateway.shard.note(Input::AgentLeft { action: self.action });
            self.left.notify_one();
        }
    }
}

impl Call {
    pub(super) fn new(gateway: Arc<Gateway>, understood: Understood, head: request::Parts) -> Box<Self> {
        Box::new(Self {
            gateway,
            understood,
            head,
            body: None,
            mailbox: Arc::new(Mailbox::default()),
            answered: None,
            body_error: None,
            refused: None,
            left: None,
            held_bytes: 0,
            admitted: false,
        })
    }

    pub(super) fn action(&self) -> ActionId {
        self.understood.action
    }

    /// For an agent that holds its body back: a refusal comes before the body, an admission lets it come.
    async fn ask_before_reading(&mut self) -> Option<Response<AgentBody>> {
        self.admitted = true;
        let mut first = self.gateway.shard.admit(Box::new(self.asked(true)), None, &self.mailbox).into_iter();
        let answer = loop {
            // A refusal may have to wait until its boundary is durable.
            let command = match first.next() {
                Some(command) => command,
                None => self.mailbox.next().await,
            };
            match command {
                Command::ReadBody { .. } => break None,
                Command::Answer { answer, .. } => {
                    break Some(own::answer(&self.understood.provider, self.action(), &answer));
                }
                _ => {}
            }
        };
        self.over();
        answer
    }

    async fn read_body(&mut self, incoming: Incoming) -> Result<(), Response<AgentBody>> {
        let writes = self.understood.class.rank.writes();
        let Self { head, gateway, held_bytes, .. } = self;
        // Counted as it comes, so that what is half sent counts too, and what was only announced does not.
        let mut is_full = false;
        let keep = |bytes| {
            let has_place = gateway.held.reserve(bytes);
            is_full |= !has_place;
            *held_bytes += if has_place { bytes } else { 0 };
            has_place
        };
        match receive(head, incoming, gateway.limits, keep).await {
            // A write that is not kept whole has no intent that could be looked up: not for want of memory.
            Ok(RequestBody::Once(_)) if is_full && writes => {
                let why = "replay_bytes_total_max is reached, and a write is not sent unkept";
                Err(own::refusal(&Refusal::new(Kind::Shed, why)))
            }
            Ok(body) => {
                self.body = Some(body);
                Ok(())
            }
            Err(e @ BodyError::TooLarge { .. }) => Err(own::refusal(&Refusal::new(Kind::BodyTooLarge, e.to_string()))),
            Err(e @ (BodyError::Broken(_) | BodyError::Malformed(_) | BodyError::Silent { .. })) => {
                Err(own::refusal(&Refusal::new(Kind::BadRequest, e.to_string())))
            }
        }
    }

    /// Gives back the places that are not needed any more.
    pub(super) fn hold_only(&mut self, bytes: u64) {
        let rest = self.held_bytes.saturating_sub(bytes);
        self.held_bytes -= rest;
        self.gateway.held.give_back(rest);
    }

    /// The content of a write, sealed, for the intent's transaction. Its credential is not part of it.
    fn seal(&self) -> Result<Option<Sealed>, Box<dyn std::error::Error + Send + Sync>> {
        let Some(RequestBody::Replayable(body)) = &self.body else { return Ok(None) };
        if !self.understood.class.rank.writes() {
            return Ok(None);
        }
        let credentials = &self.understood.provider.credentials;
        let fields: Vec<(&str, &str)> = self
            .head
            .headers
            .iter()
            .filter(|(name, _)| !credentials.contains(name) && !secrets::is_named(name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
            .collect();
        let target = self.understood.uri.to_string();
        let mut content = serde_json::to_vec(&ContentHead { fields, method: self.head.method.as_str(), target })?;
        content.push(b'\n');
        body.chunks().iter().for_each(|chunk| content.extend_from_slice(chunk));
        let place = Place { log: self.gateway.log_id, action: self.action().0.to_be_bytes() };
        Ok(Some(self.gateway.keys.sealer.seal(&place, keys::nonce()?, &content)?))
    }

    fn asked(&self, body_pending: bool) -> Asked {
        let u = &self.understood;
        let (writes, is_compared) = (u.class.rank.writes(), u.run_named || u.marker.is_some());
        let (content, content_bytes, replayable) = match &self.body {
            Some(RequestBody::Replayable(body)) => {
                let whole = || self.content_digest(&self.body_digest(body));
                ((writes || is_compared).then(whole), body.bytes(), true)
            }
            Some(RequestBody::Once(body)) => {
                // Its beginning and its length have to tell it from another: the rest comes only while it is sent.
                let prefix = || self.content_digest(&self.beginning_digest(body));
                (writes.then(prefix), body.declared().unwrap_or(0), false)
            }
            None => (None, 0, true),
        };
        Asked {
            action: u.action,
            task: u.task.clone(),
            run: u.run.clone(),
            provider: u.provider.compiled.name.clone(),
            scope: u.scope.clone(),
            tenant: u.tenant.clone(),
            policy: u.policy,
            limits: u.provider.compiled.limits,
            quota: self.quota(),
            route: u.route.clone(),
            class: u.class.name.clone(),
            rank: u.class.rank,
            rule: Arc::clone(&u.class.rule),
            content_digest: content.filter(|_| writes),
            content_bytes,
            replayable,
            body_pending,
            key: u.key.clone(),
            repeatable: u.repeatable,
            deletes: self.head.method == http::Method::DELETE,
            early_data: self.head.headers.contains_key(EARLY_DATA),
            deadline: u.deadline,
            goal: u.goal.clone(),
            reference: u.reference.clone(),
            reference_key: u.reference_key.clone(),
            mark: match &u.marker {
                None => Mark::Silent,
                Some(marker) if marker.is_repeat() => Mark::Repeat,
                Some(_) => Mark::First,
            },
            invocation: self.invocation(),
            call_digest: content.and_then(|content| self.call_digest(content)),
            request_digest: content.filter(|_| writes || u.run_named),
            run_named: u.run_named,
            journal_before: self.gateway.journal_before,
            observe: u.provider.compiled.observes,
        }
    }

    /// It is followed when its agent leaves: a write always, another call where a repeat of it may come.
    pub(super) fn outlives_agent(&self) -> bool {
        self.understood.class.rank.writes() || self.understood.marker.is_some()
    }

    /// Does what the core says until there is an answer.
    async fn drive(mut self: Box<Self>, first: Commands) -> Response<AgentBody> {
        let mut todo: VecDeque<Command> = first.into();
        loop {
            let command = match todo.pop_front() {
                Some(command) => command,
                None => self.mailbox.next().await,
            };
            match command {
                Command::Dispatch(dispatch) => {
                    // The answer before this one must not be open when the next attempt leaves.
                    self.answered = None;
                    todo.extend(self.attempt(dispatch).await);
                }
                Command::Relay { attempt, stamp, .. } => return self.relay(attempt, &stamp),
                Command::Answer { answer, .. } => {
                    self.answered = None;
                    self.over();
                    if let Some(error @ BodyError::TooLarge { .. }) = &self.body_error {
                        return own::too_large(&self.understood.provider, self.action(), *answer, &error.to_string());
                    }
                    return own::answer(&self.understood.provider, self.action(), &answer);
                }
                Command::Share { of, stamp, otherwise, .. } => {
                    self.over();
                    let provider = &self.understood.provider;
                    match self.mailbox.take_copy() {
                        Some(copy) => return own::shared(copy.response(), provider, of, &stamp, otherwise.joined),
                        None if self.understood.class.rank.writes() => {
                            return own::answer(provider, self.action(), &otherwise);
                        }
                        // What has no lasting effect may be asked for once more.
                        None => todo.extend(self.admit_unjoined()),
                    }
                }
                Command::CancelUpstream { .. } => self.answered = None,
                Command::Append { .. } | Command::ReadBody { .. } | Command::ForgetContent { .. } => {}
            }
        }
    }

    /// The result that it waited for cannot be given to it: it goes its own way.
    fn admit_unjoined(&mut self) -> Commands {
        self.admitted = true;
        let asked = Asked { call_digest: None, ..self.asked(false) };
        self.gateway.shard.admit(Box::new(asked), None, &self.mailbox)
    }

    fn relay(mut self: Box<Self>, attempt: AttemptNo, stamp: &Stamp) -> Response<AgentBody> {
        let Some(answered) = self.answered.take() else {
            // The core relays only what it was told of; without it there is nothing true to say but this.
            self.gateway.shard.note(Input::Ended {
                action: self.action(),
                attempt,
                end: forbear_core::input::BodyEnd::Cut("the answer was lost inside Forbear".into()),
            });
            self.over();
            return own::refusal(&Refusal::new(Kind::InternalError, "the answer was lost inside Forbear"));
        };
        // From here on the body reports its own end.
        self.admitted = false;
        answered.relay(&self, attempt, stamp)
    }

    /// The core needs nothing more from this call.
    fn over(&mut self) {
        self.admitted = false;
        self.gateway.shard.hang_up(self.action());
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.hold_only(0);
        self.heed_refusal();
        if self.admitted {
            self.gateway.shard.note(Input::AgentLeft { action: self.action() });
            // Its answer may have waited for a word of the core's; nobody else reports its end.
            if let Some(answered) = self.answered.take() {
                let end = forbear_core::input::BodyEnd::AgentLeft;
                self.gateway.shard.note(Input::Ended { action: self.action(), attempt: answered.attempt, end });
            }
            self.gateway.shard.hang_up(self.action());
        }
    }
}
