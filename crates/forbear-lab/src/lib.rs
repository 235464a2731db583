//! The lab breaks things on purpose: a fake provider that misbehaves on request and measures what it is sent.

pub mod provider;
