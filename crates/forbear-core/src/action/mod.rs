//! One action from its request to its outcome. `live` is what the process knows of it, `verdict` decides what follows
//! an attempt, `admit`, `repeat`, `resend`, `turn`, `send`, `recheck`, `result`, `circuit`, `cancel`, `close`, `finish` and `leave` are the steps that the
//! coordinator routes to, and `observe` is what they come to where calls are only watched.

pub mod live;
pub mod resend;
pub mod verdict;

mod admit;
pub(crate) mod cancel;
mod circuit;
mod close;
mod finish;
mod leave;
mod observe;
mod recheck;
pub(crate) mod repeat;

mod result;
mod send;
mod turn;
