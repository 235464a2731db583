//! Where a server listens, as it wrote it into its data directory: for a client that is told the directory alone.

use std::io::Read;
use std::path::Path;

/// The address's file in the server's data directory.
pub const ADDRESS_FILE: &str = "control.address";
/// An address is one short line; a longer file has none.
const FILE_BYTES_MAX: u64 = 1_024;

/// The address of the server that runs with this data, or of the last one that did.
pub(super) fn read(dir: &Path) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(dir.join(ADDRESS_FILE)).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}
