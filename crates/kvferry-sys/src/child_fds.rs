//! Descriptors that a forked child must not keep: while it held a copy, the peer at the other end would not see us go.

#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;

/// How many descriptors can be listed; those beyond stay open in a child.
const LISTED: usize = 8192;

static LIST: [AtomicI32; LISTED] = [const { AtomicI32::new(-1) }; LISTED];
static HANDLER: Once = Once::new();

/// A descriptor that is closed in every child that is forked while this lives; closed, not shut down, so that the
/// parent's connection goes on.
///
/// Drop it before the descriptor. In a child its owner must be forgotten, not dropped: the number may be somebody
/// else's by then.
#[derive(Debug)]
pub struct ClosedInChild {
    slot: Option<usize>,
    fd: RawFd,
}

impl ClosedInChild {
    /// Lists a descriptor.
    pub fn new(fd: &impl AsRawFd) -> Self {
        HANDLER.call_once(|| {
            // SAFETY: the handler makes no call but close, and touches nothing but the list of atomics.
            unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
        });
        let fd = fd.as_raw_fd();
        let free =
            |slot: &AtomicI32| slot.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Self { slot: LIST.iter().position(free), fd }
    }
}

impl Drop for ClosedInChild {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let _ = LIST[slot].compare_exchange(self.fd, -1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

extern "C" fn close_all() {
    for slot in &LIST {
        let fd = slot.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            // SAFETY: whoever listed the descriptor owns it, and does not use it in this child.
            unsafe { libc::close(fd) };
        }
    }
}
