//! When an end is told, and as what.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};

use super::*;
use crate::http::incoming::Shared;
use crate::http::told::{Piece, Telling};

const UNTOLD_MAX: Duration = Duration::from_secs(150);

/// A connection over HTTP/2 whose polls change nothing.
fn poll_once(shared: &Arc<Shared>) {
    let mut connection = std::pin::pin!(std::future::pending::<()>());
    let mut telling = Telling { connection: connection.as_mut(), shared: Arc::clone(shared) };
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert_eq!(std::pin::Pin::new(&mut telling).poll(&mut cx), Poll::Pending);
}

/// How often an end heard what.
#[derive(Default)]
struct Heard {
    waits: AtomicU32,
    told: AtomicU32,
    untold: AtomicU32,
}

impl Heard {
    fn end(self: &Arc<Self>) -> End {
        let heard = Arc::clone(self);
        Box::new(move |word| {
            let count = match word {
                Word::Waits => &heard.waits,
                Word::Over(true) => &heard.told,
                Word::Over(false) => &heard.untold,
            };
            count.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn counts(&self) -> (u32, u32) {
        (self.told.load(Ordering::Relaxed), self.untold.load(Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn over_http_2_an_end_waits_for_the_last_piece_a_flush_and_its_rest_but_not_for_ever() {
    let (shared, heard) = (Shared::new(UNTOLD_MAX), Arc::<Heard>::default());
    let answer = || {
        let receipt = Receipt::new(Arc::clone(&shared));
        let piece = Piece::new(Bytes::from_static(b"ok"), Some(&receipt));
        receipt.after(heard.end());
        piece
    };
    let rest = async || {
        tokio::time::advance(RESTS).await;
        shared.ends.rested(|| Some(0));
    };
    let mut piece = answer();
    shared.ends.flushed(|| false);
    poll_once(&shared);
    rest().await;
    assert_eq!(heard.counts(), (0, 0), "h2 still has its piece");
    piece.advance(2);
    drop(piece);
    shared.ends.written(0);
    poll_once(&shared);
    rest().await;
    assert_eq!(heard.counts(), (0, 0), "the socket has not taken it");
    shared.ends.flushed(|| false);
    poll_once(&shared);
    poll_once(&shared);
    assert_eq!(heard.counts(), (0, 0), "its agent may have left");
    rest().await;
    assert_eq!(heard.counts(), (1, 0));
    let _unread = answer();
    tokio::time::advance(Duration::from_secs(149)).await;
    poll_once(&shared);
    assert_eq!(heard.counts(), (1, 0));
    tokio::time::advance(Duration::from_secs(1)).await;
    poll_once(&shared);
    assert_eq!(heard.counts(), (1, 1), "what nobody takes is not kept for ever");
    let _unsent = answer();
    shared.ends.over(Shows::Closed, || Some(0));
    assert_eq!(heard.counts(), (1, 2));
    drop(answer());
    assert_eq!(heard.counts(), (1, 3), "what nobody took was not told");
}

#[test]
fn an_end_is_told_once_when_its_agent_goes_on_or_closes() {
    let (ends, heard) = (Ends::new(UNTOLD_MAX), Arc::<Heard>::default());
    ends.flushed(|| false);
    ends.after_flush(heard.end());
    ends.flushed(|| false);
    ends.flushed(|| false);
    ends.rested(|| Some(0));
    assert_eq!(heard.counts(), (0, 0), "its agent may have left unread what was sent");
    ends.shown(Shows::More, || Some(0));
    assert_eq!(heard.counts(), (1, 0));
    ends.after_flush(heard.end());
    ends.still_waiting();
    ends.still_waiting();
    assert_eq!(heard.waits.load(Ordering::Relaxed), 1, "it waits, which is said once");
    ends.flushed(|| true);
    assert_eq!(heard.counts(), (1, 1), "its agent had left");
    ends.after_flush(heard.end());
    ends.over(Shows::Closed, || Some(0));
    assert_eq!(heard.counts(), (1, 2), "it never left");
    ends.after_flush(heard.end());
    assert_eq!(heard.counts(), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_is_not_told() {
    let rests = |heard: &Arc<Heard>| {
        let ends = Ends::new(UNTOLD_MAX);
        ends.after_flush(heard.end());
        ends.written(10);
        ends.flushed(|| false);
        // Of another answer.
        ends.written(5);
        ends
    };
    for (shows, open, wanted) in [
        (Shows::More, 5, (1, 0)),
        (Shows::More, 6, (0, 0)),
        (Shows::Closed, 5, (1, 0)),
        (Shows::Closed, 6, (0, 1)),
        (Shows::Broken, 0, (0, 1)),
    ] {
        let heard = Arc::<Heard>::default();
        rests(&heard).shown(shows, || Some(open));
        assert_eq!(heard.counts(), wanted, "{shows:?} {open}");
    }
    let heard = Arc::<Heard>::default();
    let ends = rests(&heard);
    tokio::time::advance(RESTS).await;
    ends.rested(|| Some(6));
    assert_eq!(heard.counts(), (0, 0));
    ends.rested(|| Some(5));
    assert_eq!(heard.counts(), (1, 0));
    let ends = rests(&heard);
    tokio::time::advance(UNTOLD_MAX).await;
    ends.rested(|| Some(6));
    assert_eq!(heard.counts(), (1, 1), "a platform that knows, and an agent that takes nothing");
    let ends = rests(&heard);
    tokio::time::advance(RESTS).await;
    ends.rested(|| None);
    assert_eq!(heard.counts(), (2, 1), "a platform that does not know");
}
