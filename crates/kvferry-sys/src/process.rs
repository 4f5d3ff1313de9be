//! Small facts about this process and its threads.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::io;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use rustix::time::Timespec;

/// The id of a process, in this process's PID namespace; positive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Pid(i32);

impl Pid {
    /// None for 0 and below: those name groups, or nobody, to the kernel.
    #[must_use]
    pub const fn new(raw: i32) -> Option<Self> {
        if raw > 0 { Some(Self(raw)) } else { None }
    }

    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self(rustix::process::getpid().as_raw_pid())
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl core::fmt::Display for Pid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// The calling thread's id, as the kernel counts.
#[must_use]
pub fn gettid() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// Whether this process may be dumped, and so read by others of its user.
#[must_use]
pub fn is_dumpable() -> bool {
    matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable))
}

/// Allows or forbids others of this user to read this process's memory.
pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    let behavior = if dumpable { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    Ok(set_dumpable_behavior(behavior)?)
}

/// `duration` as the kernel takes it; what is too long for it becomes the longest.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Why the last call into libc on this thread failed.
pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
