//! Copies between ranges of this process's address space.
//!
//! A large block is copied with streaming stores: they bypass the cache, which would only be filled with bytes that
//! this process does not read again, and save reading the destination before it is overwritten. Which instructions are
//! best depends on the block's length; small blocks are left to the C library.

mod copies;
#[cfg(target_arch = "x86_64")]
mod streaming;
#[cfg(test)]
mod tests;

pub use copies::Copies;
use thiserror::Error;

use crate::region::{RegionSlice, Touch};

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
/// Large copies bypass the cache and are not ordered with later stores: call [`copy_fence`] once after the last copy
/// of a chunk, before anybody is told of it. Dropping a [`BusyGuard`](crate::BusyGuard) does so by itself.
pub fn copy(dst: RegionSlice, src: RegionSlice) -> Result<(), CopyError> {
    check(dst, src)?;
    // SAFETY: whoever made the slices vouched that both are mapped, readable and, for the destination, writable,
    // without SIGBUS; and they have one length.
    unsafe {
        copy_range(
            core::ptr::with_exposed_provenance_mut(dst.addr() as usize),
            core::ptr::with_exposed_provenance(src.addr() as usize),
            dst.len() as usize,
        );
    }
    Ok(())
}

/// Makes the bytes of the copies before it visible before any store after it.
pub fn copy_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64 and touches no memory.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
}

/// Whether one may be copied to the other by loads and stores.
#[inline]
fn check(dst: RegionSlice, src: RegionSlice) -> Result<(), CopyError> {
    if dst.len() != src.len() {
        return Err(CopyError::UnequalLengths { dst: dst.len(), src: src.len() });
    }
    if dst.touch() != Touch::LoadStore || src.touch() != Touch::LoadStore {
        return Err(CopyError::SyscallOnly);
    }
    Ok(())
}

/// Copies `len` bytes as if through a buffer.
///
/// # Safety
/// `from` is mapped and readable for `len` bytes, `to` writable and free to be overwritten, both without SIGBUS.
#[inline]
unsafe fn copy_range(to: *mut u8, from: *const u8, len: usize) {
    if to.addr().abs_diff(from.addr()) >= len {
        // SAFETY: as the caller says, and they do not overlap.
        unsafe { copy_apart(to, from, len) };
    } else {
        // SAFETY: as the caller says; this copy allows them to overlap.
        unsafe { core::ptr::copy(from, to, len) };
    }
}

/// Copies by the instructions that suit the length and the processor.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
unsafe fn copy_apart(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= streaming::FROM_LEN {
        if len < streaming::PREFETCH_FROM_LEN && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512F; the ranges are as the caller says.
            return unsafe { streaming::avx512(to, from, len) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2; the ranges are as the caller says.
            return unsafe { streaming::avx2(to, from, len) };
        }
    }
    // SAFETY: the caller's contract is this function's.
    unsafe { core::ptr::copy_nonoverlapping(from, to, len) };
}

/// Whether a block of `len` bytes is copied by streaming stores.
#[inline]
fn streams(len: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    return len >= streaming::FROM_LEN && is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = len;
        false
    }
}
