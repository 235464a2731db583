//! The store as the server uses it: through its public door, on a real disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, helpers included")]

mod corpus;
mod damage;
mod facts;
mod journal;
mod kill;
mod reading;
mod retention;
mod size;
