//! What agents get and what providers see, over real sockets. Counted at the provider.

mod rig;

mod reads;
mod writes;
