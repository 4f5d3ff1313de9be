//! Copies between ranges of this process's address space.

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::region::RegionSlice;

/// Why two ranges were not copied.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CopyError {
    /// They differ in length.
    #[error("{src} bytes cannot be copied to {dst} bytes")]
    UnequalLengths {
        /// Bytes of the destination.
        dst: u64,
        /// Bytes of the source.
        src: u64,
    },
    /// One of them may only be touched by system calls.
    #[error("the memory may only be touched by system calls")]
    SyscallOnly,
}

/// Copies `src` to `dst`. Overlapping ranges are copied as if through a buffer.
///
/// Large copies bypass the cache: call [`copy_fence`] after the last copy and before telling anybody.
pub fn copy(dst: RegionSlice, src: RegionSlice) -> Result<(), CopyError> {
    let _ = (dst, src);
    unimplemented!()
}

/// Makes the bytes of the copies before it visible before any store after it.
pub fn copy_fence() {
    unimplemented!()
}
