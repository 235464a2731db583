//! Where the core's commands for one call wait until the call takes them. One small allocation a call, no channel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use forbear_core::command::Command;

use crate::gateway::AnswerCopy;

#[derive(Debug, Default)]
pub struct Mailbox(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    commands: VecDeque<Command>,
    waker: Option<Waker>,
    /// What a [`Command::Share`] gives.
    copy: Option<Arc<AnswerCopy>>,
}

impl Mailbox {
    pub fn put(&self, command: Command) {
        let waker = {
            let mut inner = self.lock();
            inner.commands.push_back(command);
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Comes before the command that gives it.
    pub fn put_copy(&self, copy: Arc<AnswerCopy>) {
        self.lock().copy = Some(copy);
    }

    #[must_use]
    pub fn take_copy(&self) -> Option<Arc<AnswerCopy>> {
        self.lock().copy.take()
    }

    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Command> {
        let mut inner = self.lock();
        if let Some(command) = inner.commands.pop_front() {
            return Poll::Ready(command);
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    pub async fn next(&self) -> Command {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Ready when the core wants the attempt cancelled. Other commands cannot come while an attempt is on the wire.
    pub async fn cancelled(&self) {
        while !matches!(self.next().await, Command::CancelUpstream { .. }) {}
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
