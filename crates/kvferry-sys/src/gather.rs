//! Sending from and receiving into scattered memory, through a stream socket.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::region::RegionSlice;

/// Most ranges of one call, the bytes before and behind them not counted.
pub const MAX_GATHER: usize = 1022;

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

    /// Sends `head`, then the bytes of `slices` (the first [`MAX_GATHER`] of them), and then `tail`, unless there are more
    /// slices; returns how many bytes went. `WouldBlock` if nothing can be sent now. Memory that is not mapped is EFAULT; then
    /// nothing, or what came before it, was sent.
    pub fn send<Fd: AsFd>(
        &mut self,
        socket: Fd,
        head: &[u8],
        slices: impl IntoIterator<Item = RegionSlice>,
        tail: &[u8],
    ) -> io::Result<usize> {
        self.vectors.clear();
        self.push(head.as_ptr().cast_mut(), head.len());
        if self.fill(slices) {
            self.push(tail.as_ptr().cast_mut(), tail.len());
        }
        let message = self.message();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the vectors are `head` and `tail`, which are borrowed, and slices that the caller vouches for; the kernel
        // only reads.
        retry(|| unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &message, flags) })
    }

    /// Receives into `slices` (the first [`MAX_GATHER`] of them) and then into `tail`, unless there are more slices, in order;
    /// returns how many bytes came, 0 at the end of the stream. `WouldBlock` if there is nothing now. Memory that is not mapped
    /// is EFAULT.
    pub fn receive<Fd: AsFd>(
        &mut self,
        socket: Fd,
        slices: impl IntoIterator<Item = RegionSlice>,
        tail: &mut [u8],
    ) -> io::Result<usize> {
        self.vectors.clear();
        if self.fill(slices) {
            self.push(tail.as_mut_ptr(), tail.len());
        }
        let mut message = self.message();
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the vectors are slices that the caller vouches for as his to write, and `tail`, which is borrowed.
        retry(|| unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, flags) })
    }

    /// Whether all slices have room.
    fn fill(&mut self, slices: impl IntoIterator<Item = RegionSlice>) -> bool {
        let mut slices = slices.into_iter();
        for slice in slices.by_ref().take(MAX_GATHER) {
            self.push(slice.addr() as *mut u8, slice.len() as usize);
        }
        slices.next().is_none()
    }

    fn push(&mut self, base: *mut u8, len: usize) {
        if len > 0 {
            self.vectors.push(Vector(libc::iovec { iov_base: base.cast(), iov_len: len }));
        }
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
