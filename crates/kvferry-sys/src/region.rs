//! Ranges of memory, ours and a peer's.

#[cfg(test)]
mod tests;

/// How a range of memory may be touched.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Touch {
    /// Only by system calls, which answer EFAULT where the memory is gone. Right for anything.
    Syscall,
    /// By loads and stores too. Only for memory that cannot raise SIGBUS: anonymous, or a memfd that is sealed
    /// against shrinking.
    LoadStore,
}

/// A range of this process's memory that may be read and written. A plain value: it keeps nothing alive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RegionSlice {
    addr: u64,
    len: u64,
    touch: Touch,
}

impl RegionSlice {
    /// Vouches for a range of memory.
    ///
    /// # Safety
    /// For as long as this value, or anything sliced from it, is handed to a copy of this crate, or lies in a list of
    /// copies that may still be run:
    /// - `addr + len` does not wrap, and the range belongs to the caller: a write into it breaks no one's references,
    ///   allocations or invariants;
    /// - with [`Touch::LoadStore`] the range is also mapped, readable, writable where it is a destination, and cannot
    ///   raise SIGBUS.
    #[must_use]
    pub const unsafe fn new(addr: u64, len: u64, touch: Touch) -> Self {
        Self { addr, len, touch }
    }

    /// Where it begins.
    #[must_use]
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it may be touched.
    #[must_use]
    pub const fn touch(&self) -> Touch {
        self.touch
    }

    /// The part of `len` bytes from `offset` on; None if it does not lie wholly inside.
    #[must_use]
    pub const fn slice(&self, offset: u64, len: u64) -> Option<Self> {
        match offset.checked_add(len) {
            // The end is inside the range, and the range's end does not wrap, so the sum does not either.
            Some(end) if end <= self.len => Some(Self { addr: self.addr + offset, len, touch: self.touch }),
            _ => None,
        }
    }
}

/// A range of another process's memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RemoteSlice {
    /// Where it begins, in that process.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}
