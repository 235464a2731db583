//! Why a request's body could not be read. Who left is told from who sent what is no body: only one of them hears of it.

use std::io::ErrorKind;
use std::time::Duration;

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the request body is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    /// The agent left.
    #[error("the request body ended early: {0}")]
    Broken(String),
    /// What it sent is no body.
    #[error("the request body is malformed: {0}")]
    Malformed(String),
    /// The agent is there and sends nothing.
    #[error("nothing of the request body came for {seconds} s")]
    Silent { seconds: u64 },
}

impl BodyError {
    pub(super) fn of(e: &hyper::Error) -> Self {
        let mut cause = std::error::Error::source(e);
        while let Some(this) = cause {
            let io = this.downcast_ref::<std::io::Error>();
            if let Some(io) = io.filter(|io| matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput)) {
                return Self::Malformed(io.to_string());
            }
            cause = this.source();
        }
        Self::Broken(e.to_string())
    }

    pub(super) const fn silent(silence_max: Duration) -> Self {
        Self::Silent { seconds: silence_max.as_secs() }
    }
}
