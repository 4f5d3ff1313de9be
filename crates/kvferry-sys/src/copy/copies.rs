//! Many copies at once: while one block is copied, those after it are on their way into the cache.
//!
//! A single scattered block of a few KiB is over before the processor's own prefetcher has understood it, so that most
//! of its time is waiting for its first lines. A list of them is known beforehand and can be asked for in time.

use super::{CopyError, copy_range, streams};
use crate::region::RegionSlice;

#[cfg(test)]
mod tests;

/// How many blocks ahead of the copy are prefetched.
const AHEAD: usize = 2;

/// Most lines of a block that are prefetched; from there on the processor's own prefetcher has caught on.
const MAX_LINES: usize = 16;

/// Lists of no more bytes than this are copied through the cache: it is not worth sparing, and the processor is through
/// with streaming stores only when they have reached the memory.
const CACHED: usize = 16 << 10;

const LINE: usize = 64;

/// A reusable list of copies between ranges of this process's address space.
///
/// Like the slices that it is made from it keeps nothing alive: whoever runs it vouches for all slices that were pushed
/// since it was last run or cleared.
#[derive(Debug, Default)]
pub struct Copies {
    pairs: Vec<Pair>,
    /// Of all pairs together.
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    to: usize,
    from: usize,
    len: usize,
}

impl Copies {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { pairs: Vec::new(), bytes: 0 }
    }

    /// Adds a copy of `src` to `dst`. After an error nothing is added.
    #[inline]
    pub fn push(&mut self, dst: RegionSlice, src: RegionSlice) -> Result<(), CopyError> {
        super::check(dst, src)?;
        let len = dst.len() as usize;
        self.pairs.push(Pair { to: dst.addr() as usize, from: src.addr() as usize, len });
        self.bytes = self.bytes.saturating_add(len);
        Ok(())
    }

    /// How many copies are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether no copy is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Empties the list and keeps its room.
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.bytes = 0;
    }

    /// Whether the list is copied through the cache.
    const fn is_short(&self) -> bool {
        self.bytes <= CACHED
    }

    /// Makes all copies, first to last, each as [`copy`](super::copy()) does, and empties the list.
    ///
    /// As there, unless the whole list is short, large copies are not ordered with later stores before a [`copy_fence`](super::copy_fence).
    pub fn run(&mut self) {
        if self.is_short() {
            for pair in &self.pairs {
                let (to, from) = pair.ends();
                // SAFETY: as below; this copy allows the two to overlap.
                unsafe { core::ptr::copy(from, to, pair.len) };
            }
            return self.clear();
        }
        for pair in self.pairs.iter().take(AHEAD) {
            pair.prefetch();
        }
        for (at, pair) in self.pairs.iter().enumerate() {
            if let Some(later) = self.pairs.get(at + AHEAD) {
                later.prefetch();
            }
            let (to, from) = pair.ends();
            // SAFETY: both ends come from slices that were checked when they were pushed; whoever made them vouched for
            // their memory for as long as they are handed to a copy, and this is where it ends.
            unsafe { copy_range(to, from, pair.len) };
        }
        self.clear();
    }
}

impl Pair {
    /// Pointers to the destination and to the source.
    #[inline]
    fn ends(&self) -> (*mut u8, *const u8) {
        (core::ptr::with_exposed_provenance_mut(self.to), core::ptr::with_exposed_provenance(self.from))
    }

    /// Asks for the first lines of both ends. Changes nothing, whatever the addresses are.
    #[inline]
    fn prefetch(&self) {
        let bytes = self.len.min(MAX_LINES * LINE);
        prefetch_lines(self.from, bytes);
        // Streaming stores don't want the old bytes, but they do want the page's translation.
        prefetch_lines(self.to, if streams(self.len) { bytes.min(1) } else { bytes });
    }
}

/// Prefetches the lines of `bytes` bytes from `addr` on.
#[inline]
fn prefetch_lines(addr: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64. It is a hint: it raises no fault and changes no memory,
        // whatever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(addr.wrapping_add(offset))) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (addr, bytes);
}
