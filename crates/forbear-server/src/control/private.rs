//! Files of the data directory that only their owner can read. It promises that a crash leaves a whole one or none.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use forbear_api::client::ADDRESS_FILE;

/// Puts one line into the file, written apart and renamed.
pub(super) fn write(path: &Path, line: &str) -> io::Result<()> {
    let fresh = [path.as_os_str().to_owned(), ".new".into()].into_iter().collect::<OsString>();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&fresh)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

/// Says where this server is found, for the commands that are told its data directory. It is left at the stop: who finds
/// nobody there says whose address it was.
pub(crate) fn write_address(dir: &Path, listening: SocketAddr) -> io::Result<()> {
    let mut addr = listening;
    // Every address is none to connect to.
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    write(&dir.join(ADDRESS_FILE), &format!("http://{addr}"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_address_can_be_connected_to_and_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ADDRESS_FILE);
        for (listening, said) in [
            ("127.0.0.1:8499", "http://127.0.0.1:8499\n"),
            ("0.0.0.0:80", "http://127.0.0.1:80\n"),
            ("[::]:8429", "http://[::1]:8429\n"),
        ] {
            write_address(dir.path(), listening.parse().unwrap()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), said);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
