//! The fake provider over real sockets: what a raw client sees, and what the provider says it saw.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod client;
#[cfg(test)]
mod control;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod state;
