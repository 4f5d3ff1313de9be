//! Finding out cheaply that this process is the child of the one that created an object.

#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use rustix::mm::Advice;
use rustix::param::page_size;
use rustix::process::{Pid, getpid};

use crate::mapping::Mapping;

/// Tells whether the process has forked since the guard was made and this is the child.
#[derive(Debug)]
pub struct ForkGuard {
    /// A page that the kernel zeroes in a child; None where it cannot.
    page: Option<Mapping>,
    creator: Pid,
}

impl ForkGuard {
    /// A guard of the calling process.
    pub fn new() -> io::Result<Self> {
        let page = Mapping::private(page_size())?;
        // Linux 4.14 on; without it the process id is asked for each time.
        let wiped = page.advise(Advice::LinuxWipeOnFork).is_ok();
        let guard = Self { page: wiped.then_some(page), creator: getpid() };
        if let Some(mark) = guard.mark() {
            mark.store(1, Ordering::Relaxed);
        }
        Ok(guard)
    }

    /// Whether this is a child of the process that made the guard. One load, where the kernel helps.
    #[must_use]
    pub fn forked(&self) -> bool {
        match self.mark() {
            Some(mark) => mark.load(Ordering::Relaxed) == 0,
            None => getpid() != self.creator,
        }
    }

    fn mark(&self) -> Option<&AtomicU32> {
        let page = self.page.as_ref()?;
        // SAFETY: the page is private to us, mapped as long as `self`, aligned, and used as this atomic only.
        Some(unsafe { page.start().cast::<AtomicU32>().as_ref() })
    }
}
