//! An owned memory mapping.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// A readable and writable mapping, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// `len` bytes of private, zeroed memory.
    pub(crate) fn private(len: usize) -> Result<Self, Errno> {
        // SAFETY: with a null hint the kernel picks a range that nobody uses.
        let start = unsafe {
            mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        Self::own(start, len)
    }

    /// The first `len` bytes of the file `fd`, shared.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        // SAFETY: with a null hint the kernel picks a range that nobody uses.
        let start = unsafe {
            mm::mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)?
        };
        Self::own(start, len)
    }

    /// Replaces the bytes from `offset` on by the first `len` bytes of the file `fd`, shared. `offset` is a multiple
    /// of the page size and `offset + len` lies inside.
    pub(crate) fn overlay(&mut self, offset: usize, fd: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::INVAL);
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range lies inside this mapping, which is ours alone (`&mut self`), so replacing it takes
        // nothing from anybody.
        unsafe {
            let at = self.start.as_ptr().add(offset).cast::<c_void>();
            mm::mmap(at, len, prot, MapFlags::SHARED | MapFlags::FIXED, fd, 0)?;
        }
        Ok(())
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives the kernel one of the advices that leave the content as it is.
    pub(crate) fn advise(&self, advice: Advice) -> Result<(), Errno> {
        debug_assert!(!matches!(advice, Advice::LinuxDontNeed | Advice::LinuxFree | Advice::LinuxRemove));
        // SAFETY: the range is this mapping, and none of the advices that this crate gives changes its bytes.
        unsafe { mm::madvise(self.start.as_ptr().cast(), self.len, advice) }
    }

    fn own(start: *mut c_void, len: usize) -> Result<Self, Errno> {
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and whoever borrowed from it did so through `self`. It fails only for
        // a range that is none, which this is not.
        let _ = unsafe { mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread; what lies in it is guarded by those who use it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&self` gives out the address and takes advice, both of which any thread may do.
unsafe impl Sync for Mapping {}
