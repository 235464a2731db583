//! The control API's token, where a client finds it: the file that the server made, readable by its owner only.

use std::fmt;
use std::io::Read;
use std::path::Path;

use super::ClientError;

/// The token's file in the server's data directory.
pub const TOKEN_FILE: &str = "control.token";
/// A token is 43 characters; a longer file is not one.
const FILE_BYTES_MAX: u64 = 1_024;

#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Spaces around it are cut, as an editor or a shell may add them.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    pub fn from_data_dir(dir: &Path) -> Result<Self, ClientError> {
        let path = dir.join(TOKEN_FILE);
        let mut text = String::new();
        let read = std::fs::File::open(&path).and_then(|f| f.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Self::new(&text)),
            Err(e) => Err(ClientError::TokenFile { path, why: e.to_string() }),
        }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
