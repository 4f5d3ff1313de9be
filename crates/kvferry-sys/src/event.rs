//! A file descriptor that becomes readable when something has happened.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// A counter with a file descriptor; neither call ever waits.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at 0, its descriptor non-blocking and closed on exec.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        // It fails only when the counter is at its limit: then the descriptor is readable, which is all we want.
        let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1u64.to_ne_bytes()));
    }

    /// Makes the descriptor unreadable; returns how often it was signalled since the last time.
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut count)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
