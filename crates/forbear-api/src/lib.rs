//! What Forbear says over the wire: the types of its control API, the problems it answers with, and a client for both.
//!
//! It imports nothing of ours, so that a program which only talks to a server builds neither the core nor the store.

pub mod at;
pub mod client;
pub mod control;
pub mod problem;

pub use at::At;
pub use client::{Client, ClientError};
pub use control::{
    ActionQuery, ActionRow, ActionStory, Cancelled, ConfigReloaded, Named, Page, Ready, Reopened, ScopeLimits,
    ScopeRow, Scopes, Standing, StoryEvent, Window,
};
pub use problem::{ErrorShape, Kind, Problem, problem_body};
