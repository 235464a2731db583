//! Answers of writes on their way over HTTP/2, until hyper and h2 have let go of them.
//!
//! A write that is on record as done is one whose agent knows it: were the end told when the last piece was handed to
//! hyper, a kill just then would leave it so, and the agent without its answer. It would ask again, and act twice. What
//! follows once the socket has the bytes, over HTTP/1 as well, is [`super::ends`]'s.
//!
//! A piece may wait in h2 for the agent's window. Each piece of a write's answer holds its [`Receipt`], and so does the
//! body, which hyper keeps until the frame that ends the answer is queued. Once nobody holds it, its bytes have left after
//! a poll of the connection that began later and left nothing unflushed. A piece that was dropped before it was taken, as
//! when the stream is reset, was lost: then, and where the connection ends first, the agent counts as gone, and what it did
//! as perhaps not told.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};

use super::ends::End;
use super::incoming::Shared;

/// Held by whatever stands between an answer and the wire.
#[derive(Debug)]
pub(super) struct Receipt {
    shared: Arc<Shared>,
    /// Some piece was dropped before it was taken.
    lost: Arc<AtomicBool>,
}

/// Bytes of an answer on their way to the wire, which know whether all of them were taken.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    receipt: Option<Arc<Receipt>>,
}

impl Receipt {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, lost: Arc::default() })
    }

    /// Told once this is held by nobody, and what it was held for has left.
    pub(super) fn after(self: &Arc<Self>, end: End) {
        self.shared.ends.hold(end, Arc::downgrade(self), Arc::clone(&self.lost));
    }

    /// Something of it will not be taken.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl Drop for Receipt {
    /// It may be h2 that lets go of the last piece, with its lock held: the end is told elsewhere.
    fn drop(&mut self) {
        self.shared.ends.poller.wake();
    }
}

impl Piece {
    /// The bytes, which hold the receipt until they are dropped.
    pub(super) fn new(bytes: Bytes, receipt: Option<&Arc<Receipt>>) -> Self {
        Self { bytes, receipt: receipt.cloned() }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, taken: usize) {
        self.bytes.advance(taken);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.as_ref().filter(|_| self.bytes.has_remaining()) {
            receipt.lose();
        }
    }
}

/// An HTTP/2 connection that tells ends between its polls.
pub(super) struct Telling<'c, C> {
    pub(super) connection: Pin<&'c mut C>,
    pub(super) shared: Arc<Shared>,
}

impl<C: Future> Future for Telling<'_, C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        let ends = &this.shared.ends;
        ends.poller.register(cx.waker());
        let due = ends.due();
        let polled = this.connection.as_mut().poll(cx);
        ends.polled(due);
        ends.still_waiting();
        polled
    }
}
