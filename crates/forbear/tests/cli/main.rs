//! The built program, as a shell sees it: what it prints where, and how it ends.

mod commands;
mod rehearsals;
mod rig;
mod stops;
