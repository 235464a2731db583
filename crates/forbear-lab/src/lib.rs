//! What breaks Forbear on purpose, and what measures it.

pub mod bench;
