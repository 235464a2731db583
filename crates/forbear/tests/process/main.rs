//! The built binary as a process: started wrongly, starved of disk, killed, drained, flooded. What counts is measured at
//! the provider, in the journal and in what the process says.

mod agent;
mod disk;
mod drain;
mod holds;
mod hostile;
mod journal;
mod kills;
mod kills_steps;
mod kills_upkeep;
mod rig;
mod start;
mod terminal;
