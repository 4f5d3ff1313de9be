use std::io::Read;
use std::os::fd::AsRawFd;

use super::*;

/// Forks; the child says by its exit status whether `fd` is open, without touching anything else.
fn is_open_in_child(fd: RawFd) -> bool {
    // SAFETY: the child makes async-signal-safe calls only.
    unsafe {
        match libc::fork() {
            0 => libc::_exit((libc::fcntl(fd, libc::F_GETFD) >= 0).into()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WEXITSTATUS(status) == 1
            }
        }
    }
}

#[test]
fn a_listed_descriptor_is_closed_in_a_child_and_stays_open_here() {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(is_open_in_child(theirs.as_raw_fd()));
    let listed = ClosedInChild::new(&theirs);
    assert!(!is_open_in_child(theirs.as_raw_fd()));
    // Closed there, not shut down: here nothing has changed.
    ours.set_nonblocking(true).unwrap();
    assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(listed);
    assert!(is_open_in_child(theirs.as_raw_fd()));
}
