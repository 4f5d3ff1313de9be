//! Sending from and receiving into scattered memory, through a stream socket.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::region::RegionSlice;

/// Most ranges of one call, the leading bytes not counted.
pub const MAX_GATHER: usize = 1023;

/// Reusable vectors of a call.
#[derive(Debug, Default)]
pub struct Gather {
    vectors: Vec<Vector>,
}

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Vector(libc::iovec);

// SAFETY: the pointers are only handed to the kernel, in calls that borrow what they point to.
unsafe impl Send for Gather {}

impl Gather {
    /// Empty vectors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends `head` and then the bytes of `slices` (the first [`MAX_GATHER`] of them); returns how many bytes went.
    /// `WouldBlock` if nothing can be sent now. Memory that is not mapped is EFAULT; then nothing, or what came before
    /// it, was sent.
    pub fn send<Fd: AsFd>(
        &mut self,
        socket: Fd,
        head: &[u8],
        slices: impl IntoIterator<Item = RegionSlice>,
    ) -> io::Result<usize> {
        self.vectors.clear();
        if !head.is_empty() {
            let base = head.as_ptr().cast_mut().cast();
            self.vectors.push(Vector(libc::iovec { iov_base: base, iov_len: head.len() }));
        }
        self.fill(slices);
        let message = self.message();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the vectors are `head`, which is borrowed, and slices that the caller vouches for; the kernel reads.
        retry(|| unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &message, flags) })
    }

    /// Receives into `slices` (the first [`MAX_GATHER`] of them), in order; returns how many bytes came, 0 at the end of the
    /// stream. `WouldBlock` if there is nothing now. Memory that is not mapped is EFAULT.
    pub fn receive<Fd: AsFd>(
        &mut self,
        socket: Fd,
        slices: impl IntoIterator<Item = RegionSlice>,
    ) -> io::Result<usize> {
        self.vectors.clear();
        self.fill(slices);
        let mut message = self.message();
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the vectors are slices that the caller vouches for as his to write.
        retry(|| unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, flags) })
    }

    fn fill(&mut self, slices: impl IntoIterator<Item = RegionSlice>) {
        self.vectors.extend(slices.into_iter().take(MAX_GATHER).map(|slice| {
            Vector(libc::iovec { iov_base: slice.addr() as *mut libc::c_void, iov_len: slice.len() as usize })
        }));
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all zeroes is an empty message.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = self.vectors.as_mut_ptr().cast();
        message.msg_iovlen = self.vectors.len() as _;
        message
    }
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
