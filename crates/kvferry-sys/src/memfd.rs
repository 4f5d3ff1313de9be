//! Memory that two processes can share without trusting each other's goodwill: a memfd sealed against changing its
//! size, so that no touch of its mapping can raise SIGBUS.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::Advice;
use thiserror::Error;

use crate::mapping::Mapping;
use crate::region::{RegionSlice, Touch};

/// `MADV_COLLAPSE` is younger than the libraries' list of advices.
const MADV_COLLAPSE: i32 = 25;

const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why a file descriptor was not taken as shared memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Not a memfd on ordinary pages.
    #[error("the file is not a memfd on ordinary pages")]
    NotMemfd,
    /// Its size can still change, so touching its mapping could raise SIGBUS.
    #[error("the memfd is not sealed against shrinking and growing")]
    NotSealed,
    /// Its size is not the one announced.
    #[error("the memfd holds {actual} bytes, {expected} were announced")]
    WrongSize {
        /// Bytes announced.
        expected: u64,
        /// Bytes found.
        actual: u64,
    },
    /// The kernel did not map it.
    #[error("the memfd of {len} bytes cannot be mapped")]
    Map {
        /// Bytes.
        len: u64,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A range that does not lie inside the memory it names.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("{len} bytes at offset {offset} do not lie inside {size} bytes")]
pub struct OutOfBounds {
    /// Where the range begins.
    pub offset: u64,
    /// Bytes of the range.
    pub len: u64,
    /// Bytes of the memory.
    pub size: u64,
}

/// A sealed memfd, mapped readable and writable.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Mapping,
    fd: OwnedFd,
}

impl SharedMemory {
    /// New zeroed memory of `len` bytes, at least one. `name` (up to 249 bytes) is what the maps file shows.
    pub fn create(name: &str, len: u64) -> io::Result<Self> {
        let size = usize::try_from(len).ok().filter(|&size| size > 0).ok_or(Errno::INVAL)?;
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
        // Kernels before 6.3 do not know the flag; later ones may be set to demand it.
        let fd = match fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => fs::memfd_create(name, flags)?,
            other => other?,
        };
        fs::ftruncate(&fd, len)?;
        let mapping = Mapping::shared(fd.as_fd(), size)?;
        fs::fcntl_add_seals(&fd, SIZE_SEALS)?;
        Ok(Self { mapping, fd })
    }

    /// Maps memory that a peer created, after making sure that it is what a peer should have created: a memfd of
    /// `expected_len` bytes whose size is sealed.
    pub fn import(fd: OwnedFd, expected_len: u64) -> Result<Self, ImportError> {
        let actual = sealed_size(fd.as_fd())?;
        if actual != expected_len || actual == 0 {
            return Err(ImportError::WrongSize { expected: expected_len, actual });
        }
        let unmappable = |errno: Errno| ImportError::Map { len: actual, source: errno.into() };
        let size = usize::try_from(actual).map_err(|_| unmappable(Errno::NOMEM))?;
        let mapping = Mapping::shared(fd.as_fd(), size).map_err(unmappable)?;
        Ok(Self { mapping, fd })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Whether it holds no byte; never the case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it is mapped in this process.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.mapping.start().as_ptr() as u64
    }

    /// The memfd, to be sent to a peer.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Unmaps the memory and keeps only the memfd.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The part of `len` bytes from `offset` on; None if it does not lie wholly inside.
    ///
    /// The slice does not keep the memory mapped: whoever copies with it holds the `SharedMemory` until the copy is
    /// over, as the contract of [`RegionSlice::new`] says.
    #[must_use]
    pub fn slice(&self, offset: u64, len: u64) -> Option<RegionSlice> {
        // SAFETY: the whole is mapped readable and writable while `self` lives, is nobody's Rust object, and its
        // size is sealed, so it cannot raise SIGBUS.
        let whole = unsafe { RegionSlice::new(self.addr(), self.len(), Touch::LoadStore) };
        whole.slice(offset, len)
    }

    /// Gives every page its memory now, so that no copy pays for it. The bytes stay as they are.
    pub fn populate(&self) -> io::Result<()> {
        match self.mapping.advise(Advice::LinuxPopulateWrite) {
            // Before Linux 5.14.
            Err(Errno::INVAL) => {
                fs::fallocate(&self.fd, fs::FallocateFlags::empty(), 0, self.len())?;
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Asks for huge pages. Only an optimisation: an error may be ignored.
    pub fn collapse(&self) -> io::Result<()> {
        // SAFETY: the range is our mapping; collapsing moves its bytes to other pages and changes none.
        let rc =
            unsafe { libc::madvise(self.mapping.start().as_ptr().cast(), self.mapping.len(), MADV_COLLAPSE) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Copies `bytes` in from `offset` on. A peer may be writing at the same time; then what is there is a mixture.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, bytes.len())?;
        // SAFETY: `at` points to as many bytes of our mapping; `bytes` is a Rust slice and so lies elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        Ok(())
    }

    /// Copies out into `bytes` from `offset` on. A peer may be writing at the same time; then what comes is a mixture.
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.at(offset, bytes.len())?;
        // SAFETY: `at` points to as many bytes of our mapping; `bytes` is a Rust slice and so lies elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(at.cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// A pointer to `len` bytes from `offset` on.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfBounds> {
        let slice = self.slice(offset, len as u64).ok_or_else(|| OutOfBounds {
            offset,
            len: len as u64,
            size: self.len(),
        })?;
        // The offset lies inside the mapping, which fits in the address space.
        Ok(self.mapping.start().as_ptr().wrapping_add((slice.addr() - self.addr()) as usize))
    }
}

/// The size of a memfd whose size cannot change any more.
pub(crate) fn sealed_size(fd: BorrowedFd<'_>) -> Result<u64, ImportError> {
    // Only memfds and hugetlbfs files answer to seals. A hugetlb page may be missing when it is first touched, which
    // raises SIGBUS, seal or no seal.
    let seals = fs::fcntl_get_seals(fd).map_err(|_| ImportError::NotMemfd)?;
    let filesystem = fs::fstatfs(fd).map_err(|_| ImportError::NotMemfd)?;
    if filesystem.f_type != libc::TMPFS_MAGIC {
        return Err(ImportError::NotMemfd);
    }
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(ImportError::NotSealed);
    }
    let stat = fs::fstat(fd).map_err(|_| ImportError::NotMemfd)?;
    u64::try_from(stat.st_size).map_err(|_| ImportError::NotMemfd)
}
