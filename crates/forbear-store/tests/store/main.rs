//! The store as the server uses it: through its public door, on a real disk.

mod corpus;
mod damage;
mod facts;
mod journal;
mod kill;
mod reading;
mod retention;
mod size;
