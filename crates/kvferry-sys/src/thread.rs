//! Threads that leave the program's signals to the program.

#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Signals that a thread causes itself. Blocked, they would kill the process without asking its handler, which may be
/// a crash reporter.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that no signal sent to the process is delivered to. Only faults of its own reach it.
///
/// `name` is shown by the system up to its 15th byte; a NUL byte in it is an error.
pub fn spawn_quiet<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    if name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Blocked before the thread exists, which inherits the mask: there is no moment at which it takes a signal.
    let blocked = SignalsBlocked::new()?;
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    drop(blocked);
    thread
}

/// The calling thread's signals are blocked while this lives.
struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    fn new() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for writing; the first is initialised by sigfillset before it is used, the
        // second by pthread_sigmask, if it succeeds.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            for signal in SYNCHRONOUS {
                libc::sigdelset(set.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self { before: before.assume_init() }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is a set that pthread_sigmask gave us.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, core::ptr::null_mut()) };
    }
}
