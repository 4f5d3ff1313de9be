//! What is mapped where in this process, from one pass over the kernel's list.

#[cfg(test)]
mod tests;

use std::io;

use thiserror::Error;

use crate::region::Touch;

/// What stands behind a range of memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// A memfd whose size cannot change, mapped inside that size.
    SealedMemfd,
    /// A file, a device, or a memfd that may still shrink.
    File,
    /// Anonymous memory shared with children, or System V shared memory.
    SharedAnonymous,
}

/// A mapping whose memory other processes cannot read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Special {
    /// Registered with userfaultfd: a touch may wait for this program itself.
    Userfaultfd,
    /// Device memory.
    Io,
    /// Pages without the kernel's bookkeeping.
    PfnMap,
}

/// What is known of a range that may be registered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MapFacts {
    /// What stands behind its first byte.
    pub backing: Backing,
    /// How the whole range may be touched.
    pub touch: Touch,
    /// The path of its first mapping that has one, as the kernel shows it.
    pub path: Option<String>,
}

/// Why a range cannot be registered.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MapFault {
    /// Nothing is mapped.
    #[error("address is not mapped from {from:#x} on")]
    Unmapped {
        /// The first such address.
        from: u64,
    },
    /// Mapped, but not readable.
    #[error("memory is not readable from {from:#x} on")]
    NotReadable {
        /// The first such address.
        from: u64,
    },
    /// Mapped, but not writable.
    #[error("memory is not writable from {from:#x} on")]
    NotWritable {
        /// The first such address.
        from: u64,
    },
    /// A mapping that no other process can read.
    #[error("memory is of a special kind ({what:?}) from {from:#x} on")]
    Special {
        /// The first such address.
        from: u64,
        /// Of what kind.
        what: Special,
        /// What is mapped there, if it has a name.
        path: Option<String>,
    },
}

/// The mappings of this process at one moment.
#[derive(Debug)]
pub struct MemoryMap {
    _mappings: (),
}

impl MemoryMap {
    /// Reads the kernel's list once.
    pub fn read() -> io::Result<Self> {
        unimplemented!()
    }

    /// Looks at every mapping under the range. An empty range answers for its first byte.
    pub fn check(&self, addr: u64, len: u64, need_write: bool) -> Result<MapFacts, MapFault> {
        let _ = (addr, len, need_write);
        unimplemented!()
    }

    /// Reads one byte of each mapping under the range, by a system call that never faults.
    pub fn probe_readable(&self, addr: u64, len: u64) -> Result<(), MapFault> {
        let _ = (addr, len);
        unimplemented!()
    }
}
