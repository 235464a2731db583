//! What only the kernel knows of a socket, asked by a call that no safe library makes. A crate of its own, so that
//! everything else can forbid unsafe code.
//!
//! It promises the bytes that were given to a TCP socket and that the other end's kernel has not acknowledged. Where the
//! platform has no such question it says so, and does not guess.

use std::os::fd::AsFd;

/// Bytes that were written and not acknowledged; after the sending side was shut, its end counts as one. None where the
/// platform does not tell.
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "arm",
        target_arch = "x86",
        target_arch = "riscv64",
        target_arch = "s390x"
    )
))]
#[allow(unsafe_code, reason = "rustix has no name for this call")]
#[must_use]
pub fn unacknowledged_bytes(socket: impl AsFd) -> Option<u64> {
    /// SIOCOUTQ, which is TIOCOUTQ: tcp(7). The same number on all of these machines.
    const TIOCOUTQ: rustix::ioctl::Opcode = 0x5411;
    // SAFETY: the kernel writes one int, for whatever the descriptor is, or fails.
    let asked = unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Getter::<TIOCOUTQ, i32>::new()) };
    asked.ok().and_then(|bytes| u64::try_from(bytes).ok())
}

/// As above: not asked here.
#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "arm",
        target_arch = "x86",
        target_arch = "riscv64",
        target_arch = "s390x"
    )
)))]
#[must_use]
pub fn unacknowledged_bytes(_: impl AsFd) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::unacknowledged_bytes;

    #[test]
    fn what_the_other_end_has_no_room_for_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        assert_eq!(unacknowledged_bytes(&near), Some(0));
        near.set_nonblocking(true).unwrap();
        let (mut written, piece) = (0, [0; 65_536]);
        while let Ok(bytes) = near.write(&piece) {
            written += bytes;
        }
        let open = unacknowledged_bytes(&near).unwrap();
        assert!(open > 0 && open <= written as u64, "{open} of {written}");
        let mut read = vec![0; written];
        far.read_exact(&mut read).unwrap();
        while unacknowledged_bytes(&near).unwrap() > 0 {
            std::thread::yield_now();
        }
    }
}
