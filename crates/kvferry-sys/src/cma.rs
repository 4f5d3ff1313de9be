//! Cross-memory attach: one vectored system call that copies between this process's memory and another's.

#[cfg(test)]
mod tests;

use rustix::io::Errno;
use thiserror::Error;

use crate::process::Pid;
use crate::region::{RegionSlice, RemoteSlice};

/// How many pairs of ranges one call takes; the kernel's limit.
pub const MAX_VECTORS: usize = 1024;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// From the other process's memory into ours.
    Read,
    /// From our memory into the other process's.
    Write,
}

/// Whose memory was not there.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FaultSide {
    /// Ours.
    Local,
    /// The other process's.
    Remote,
    /// It was there when we looked afterwards, or we may not look.
    Unknown,
}

/// Why bytes could not be copied between two processes.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CmaError {
    /// A range is not mapped, or not with the right this direction needs.
    #[error("vector {position} cannot be touched at offset {offset} ({side:?} side)")]
    Fault {
        /// The index of the vector, in the order pushed.
        position: usize,
        /// How many bytes of it were copied before.
        offset: u64,
        /// Whose memory it is.
        side: FaultSide,
    },
    /// There is no such process, or it has given up its memory already.
    #[error("the process is gone")]
    NoProcess,
    /// The kernel forbids it; [`explain_denial`](crate::explain_denial) finds out why.
    #[error("the kernel forbids access to the process's memory")]
    Denied(#[source] Errno),
    /// The memory at the address is not what the process said it was: another process, or another memory.
    #[error("the memory does not hold the nonce expected")]
    Mismatch,
    /// Anything else.
    #[error("the copy between processes failed")]
    Other(#[source] Errno),
}

/// A reusable list of up to [`MAX_VECTORS`] pairs of equally long ranges, copied by one system call.
#[derive(Debug)]
pub struct Vectors {
    _todo: (),
}

impl Vectors {
    /// An empty list; its room is allocated once.
    #[must_use]
    pub fn new() -> Self {
        unimplemented!()
    }

    /// Adds a pair. False, and nothing added, if the list is full or the pair is unusable: of unequal lengths, or
    /// reaching past the end of the address space.
    #[must_use]
    pub fn push(&mut self, local: RegionSlice, remote: RemoteSlice) -> bool {
        let _ = (local, remote);
        unimplemented!()
    }

    /// Empties the list and keeps its room.
    pub fn clear(&mut self) {
        unimplemented!()
    }

    /// How many pairs are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        unimplemented!()
    }

    /// Whether no pair is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has no room for another pair.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == MAX_VECTORS
    }

    /// Bytes of all pairs together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }

    /// Copies all pairs, first to last, between this process and `pid`. Returns the bytes copied: all of them.
    ///
    /// After an error any part may have been copied.
    pub fn transfer(&self, direction: Direction, pid: Pid) -> Result<u64, CmaError> {
        let _ = (direction, pid);
        unimplemented!()
    }
}
