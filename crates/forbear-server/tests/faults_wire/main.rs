//! Faults that were reported of other proxies, on the wire and through the whole gateway: streams, bodies, redirects,
//! encodings, and what a proxy may change. Each test is named after its case.

#[path = "../governing/rig.rs"]
mod rig;

mod agent;

mod bodies;
mod exact;
mod expectations;
mod redirects;
mod semantics;
mod streams;
mod streams_ends;
