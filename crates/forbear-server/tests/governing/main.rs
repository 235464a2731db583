//! What agents get and what providers see, over real sockets. Counted at the provider.

#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod rig;

mod advising;
mod below;
mod cancelling;
mod equals;
mod http2;
mod leavers;
mod observing;
mod proven;
mod reads;
mod reloading;
mod repeats;
mod resends;
mod undelivered;
mod untaken;
mod writes;
