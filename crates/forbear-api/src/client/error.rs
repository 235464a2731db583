//! What can go wrong with a call to the control API. Each error has a code with a page in `docs/errors/`, and says what
//! happened and, apart from that, what to do.

use std::path::PathBuf;

use crate::problem::{Kind, Problem};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("`{address}` is not the address of a server")]
    BadAddress { address: String },
    #[error("no Forbear server answers at {server} ({why})")]
    NotRunning { server: String, why: String },
    #[error("no Forbear server answers at {server} ({why}), where the last one with the data in {} was", data.display())]
    Stopped { server: String, data: PathBuf, why: String },
    #[error("the server at {server} gave no answer within {seconds} s")]
    Silent { server: String, seconds: u64 },
    #[error("the connection to {server} broke ({why})")]
    Broken { server: String, why: String },
    #[error("the answer of {server} is longer than {bytes_max} bytes")]
    TooLong { server: String, bytes_max: usize },
    #[error("what answers there is not the control API of this version of Forbear ({why})")]
    NotForbear { why: String },
    #[error("the server refused the token: {detail}")]
    Token { detail: String },
    #[error("the token file {} cannot be read ({why})", path.display())]
    TokenFile { path: PathBuf, why: String },
    #[error("{detail}")]
    NotFound { detail: String },
    #[error("{}", problem.detail)]
    Refused { problem: Box<Problem> },
}

impl ClientError {
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BadAddress { .. } => "FB5001",
            Self::NotRunning { .. } | Self::Stopped { .. } => "FB5002",
            Self::Silent { .. } => "FB5003",
            Self::Broken { .. } | Self::TooLong { .. } => "FB5004",
            Self::NotForbear { .. } => "FB5005",
            Self::Token { .. } | Self::TokenFile { .. } => "FB5006",
            Self::NotFound { .. } => "FB5007",
            Self::Refused { .. } => "FB5008",
        }
    }

    #[must_use]
    pub const fn what_to_do(&self) -> &'static str {
        match self {
            Self::BadAddress { .. } => "write the address that `forbear serve` printed, such as http://127.0.0.1:8429",
            Self::NotRunning { .. } => {
                "start it with `forbear serve`, or name the address of a running one with --server"
            }
            Self::Stopped { .. } => {
                "it has stopped: start it with `forbear serve`, or name the address of a running one with --server"
            }
            Self::Silent { .. } => "look at the server's log and at GET /-/ready; then call again",
            Self::Broken { .. } => "call again; if it stays so, look at the server's log",
            Self::TooLong { .. } => "ask for fewer with --limit",
            Self::NotForbear { .. } => "check the address and that server and command line are of one version",
            Self::Token { .. } => "name the server's data directory with --data, or put its token into FORBEAR_TOKEN",
            Self::TokenFile { .. } => {
                "run this as the user that runs the server, name its data directory with --data, or put the token into FORBEAR_TOKEN and leave --data away"
            }
            Self::NotFound { .. } => "`forbear actions` lists what there is",
            Self::Refused { problem } if matches!(problem.kind, Kind::BadQuery) => "mend the option that it names",
            Self::Refused { .. } => "do what the server says above",
        }
    }
}
