//! The page that the two sides of a link on one host share.
//!
//! ```text
//!   one mapping in each process
//!   +--------------------------+-----------------------------------------------+
//!   | private page             | shared memfd, 8 KiB, size sealed              |
//!   | robust-list nodes (ours) |                                               |
//!   +--------------------------+-----------------------------------------------+
//!   0        64  128           P                    P = page size
//!
//!   shared part, offset   bytes  what
//!        0                 64    header: magic u64, version u32, copiers u32
//!       64                 64    liveness word of the initiator, u32
//!      128                 64    liveness word of the target, u32
//!      192                 64    epoch of the initiator, u64
//!      256                 64    epoch of the target, u64
//!      320            32 x 64    busy words of the initiator's copy threads, u64 each
//!     2368            32 x 64    busy words of the target's copy threads, u64 each
//!     4416                       end; the rest is zero
//! ```
//! Numbers are in the machine's own byte order: both sides are on one machine. A thread that holds a liveness word
//! keeps its robust-list node in the private page, exactly P bytes before the word: the kernel demands one distance
//! for all nodes of a list, and the peer must not be able to write the list's pointers.
//!
//! A peer may scribble over the shared part at any time. All of it is atomics, of which every bit pattern is valid,
//! and nothing read from it is an index, a length or a pointer.

#[cfg(test)]
mod tests;

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::param::page_size;
use thiserror::Error;

use crate::busy::BusyWord;
use crate::mapping::Mapping;
use crate::memfd::{ImportError, SharedMemory, sealed_size};

/// How many copy threads a side may have: the number of its busy words.
pub const COPIERS: usize = 32;

const MAGIC: u64 = u64::from_ne_bytes(*b"kvferry\0");
const VERSION: u32 = 1;
/// Bytes of the memfd.
const FILE_LEN: usize = 8192;

/// One of the two sides of a link.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The agent that opened the link.
    Initiator,
    /// The agent that was connected to.
    Target,
}

impl Side {
    /// The other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Target,
            Self::Target => Self::Initiator,
        }
    }
}

/// Why a file descriptor was not taken as a link page.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkPageError {
    /// Not a sealed memfd of the right size, or it cannot be mapped.
    #[error("the link page cannot be mapped")]
    Memory(#[from] ImportError),
    /// It does not begin with the magic number.
    #[error("the file is not a link page")]
    NotLinkPage,
    /// Another layout.
    #[error("the link page has layout {actual}, this side knows {VERSION}")]
    Version {
        /// The version found.
        actual: u32,
    },
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Line<T>(T);

#[derive(Debug)]
#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    copiers: AtomicU32,
}

#[derive(Debug)]
#[repr(C)]
struct Layout {
    header: Header,
    liveness: [Line<AtomicU32>; 2],
    epoch: [Line<AtomicU64>; 2],
    busy: [[BusyWord; COPIERS]; 2],
}

const _: () = assert!(size_of::<Layout>() == 4416 && size_of::<Layout>() <= FILE_LEN);
const _: () = assert!(offset_of!(Layout, liveness) == 64);

/// A link's shared page, mapped.
#[derive(Debug)]
pub struct LinkPage {
    mapping: Mapping,
    fd: OwnedFd,
}

impl LinkPage {
    /// A new page: epochs 0, no busy copiers, liveness unset.
    pub fn create() -> io::Result<Self> {
        let fd = SharedMemory::create("kvferry-link", FILE_LEN as u64)?.into_fd();
        let page = Self::map(fd)?;
        let header = &page.layout().header;
        header.version.store(VERSION, Ordering::Relaxed);
        header.copiers.store(COPIERS as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(page)
    }

    /// Maps the page that the other side created.
    pub fn import(fd: OwnedFd) -> Result<Self, LinkPageError> {
        let expected = FILE_LEN as u64;
        let actual = sealed_size(fd.as_fd())?;
        if actual != expected {
            return Err(ImportError::WrongSize { expected, actual }.into());
        }
        let page = Self::map(fd).map_err(|source| ImportError::Map { len: actual, source })?;
        let header = &page.layout().header;
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(LinkPageError::NotLinkPage);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION || header.copiers.load(Ordering::Relaxed) != COPIERS as u32 {
            return Err(LinkPageError::Version { actual: version });
        }
        Ok(page)
    }

    /// The memfd, to be sent to the other side.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The revocation epoch of the memory of `side`.
    #[must_use]
    pub fn epoch(&self, side: Side) -> &AtomicU64 {
        &self.layout().epoch[side as usize].0
    }

    /// The busy words of the copy threads of `side`.
    #[must_use]
    pub fn busy(&self, side: Side) -> &[BusyWord; COPIERS] {
        &self.layout().busy[side as usize]
    }

    /// The liveness word of `side`; decoded by [`Liveness::of`](crate::Liveness::of).
    #[must_use]
    pub fn liveness(&self, side: Side) -> &AtomicU32 {
        &self.layout().liveness[side as usize].0
    }

    /// Where the robust-list node for the liveness word of `side` belongs: in the private page, one page before it.
    pub(crate) fn robust_node(&self, side: Side) -> NonNull<u8> {
        let offset = offset_of!(Layout, liveness) + side as usize * size_of::<Line<AtomicU32>>();
        // SAFETY: the offset is less than a page, and the mapping is longer.
        unsafe { self.mapping.start().add(offset) }
    }

    fn map(fd: OwnedFd) -> io::Result<Self> {
        let page = page_size();
        let mut mapping = Mapping::private(page + FILE_LEN.next_multiple_of(page))?;
        mapping.overlay(page, fd.as_fd(), FILE_LEN)?;
        Ok(Self { mapping, fd })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: the shared part begins one page into the mapping, is longer than the layout and page-aligned. Its
        // size is sealed. It holds only atomics, which other threads and processes may change under us.
        unsafe { self.mapping.start().add(page_size()).cast::<Layout>().as_ref() }
    }
}
