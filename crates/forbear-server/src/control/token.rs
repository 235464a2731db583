//! The control API's token: 32 random bytes, made at the first start, in a file that only its owner can read.
//!
//! It promises never to show itself and to be compared in constant time. It refuses a file that others can read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use forbear_api::client::TOKEN_FILE;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::private;

const TOKEN_BYTES: usize = 32;
/// A token written by hand may be longer than ours, but not without end.
const FILE_BYTES_MAX: u64 = 1_024;
/// A shorter one can be guessed.
const TEXT_BYTES_MIN: usize = 32;

#[derive(Clone)]
pub struct ControlToken(Zeroizing<Vec<u8>>);

impl ControlToken {
    /// The token of a data directory, made where there is none.
    pub fn load_or_make(dir: &Path) -> io::Result<Self> {
        let path = dir.join(TOKEN_FILE);
        match OpenOptions::new().read(true).open(&path) {
            Ok(file) => Self::read(file, &path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::make(&path),
            Err(e) => Err(e),
        }
    }

    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.as_slice().ct_eq(given).into()
    }

    fn read(file: fs::File, path: &Path) -> io::Result<Self> {
        only_the_owner_can_read(&file, path)?;
        let mut text = Zeroizing::new(Vec::new());
        file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        let text = Zeroizing::new(text.trim_ascii().to_vec());
        if text.len() < TEXT_BYTES_MIN {
            let what = format!("{} is too short to be a token; remove it, and a new one is made", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Self(text))
    }

    fn make(path: &Path) -> io::Result<Self> {
        let mut bytes = Zeroizing::new([0u8; TOKEN_BYTES]);
        getrandom::fill(bytes.as_mut_slice()).map_err(io::Error::other)?;
        let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice()));
        private::write(path, &text)?;
        Ok(Self(Zeroizing::new(text.as_bytes().to_vec())))
    }
}

#[cfg(unix)]
fn only_the_owner_can_read(file: &fs::File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if !file.metadata()?.is_file() {
        let what = format!("{} is not a file; remove it, and a new one is made", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    if file.metadata()?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("others than its owner can read {}; run `chmod 600` on it", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

#[cfg(not(unix))]
fn only_the_owner_can_read(_: &fs::File, _: &Path) -> io::Result<()> {
    Ok(())
}

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken(…)")
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_made_once_for_the_owner_alone_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let made = ControlToken::load_or_make(dir.path()).unwrap();
        let path = dir.path().join(TOKEN_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read(&path).unwrap();
        assert_eq!(text.trim_ascii().len(), 43);
        let again = ControlToken::load_or_make(dir.path()).unwrap();
        assert!(made.is(text.trim_ascii()) && again.is(text.trim_ascii()));
        assert!(!made.is(b"") && !made.is(&text[..42]));
        assert_eq!(format!("{made:?}"), "ControlToken(…)");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_read_or_that_is_empty_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN_FILE);
        fs::write(&path, "x".repeat(43)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = ControlToken::load_or_make(dir.path()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::write(&path, "\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(ControlToken::load_or_make(dir.path()).unwrap_err().to_string().contains("too short"));
    }
}
