//! The memory of one pool, as a serving engine has it: private pages, or memory from the agent.

use std::ptr::NonNull;
use std::sync::Arc;

use anyhow::{Context, Result};
use kvferry::{Agent, MemoryKind, RegionDesc, RegionOwner, SharedBuf};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Memory that a peer may write to at any time: copied in and out, never borrowed.
pub(crate) enum PoolMemory {
    /// Page-aligned private memory, which only the kernel can copy to and from another process.
    Private(PrivateMemory),
    /// Memory from the agent, which a peer of this host can map.
    Shared(SharedBuf),
}

impl PoolMemory {
    /// Private memory of `len` bytes, all zero.
    pub(crate) fn private(len: usize) -> Result<Self> {
        let mapping = Arc::new(Mapping::new(len)?);
        Ok(Self::Private(PrivateMemory { mapping }))
    }

    /// Memory of `len` bytes from the agent, all zero.
    pub(crate) fn shared(agent: &Agent, len: usize) -> Result<Self> {
        Ok(Self::Shared(agent.alloc(len)?))
    }

    /// Where it lies.
    pub(crate) fn desc(&self) -> RegionDesc {
        match self {
            Self::Private(memory) => memory.mapping.desc(),
            Self::Shared(buffer) => buffer.desc(),
        }
    }

    /// What keeps the memory mapped for as long as it is registered.
    pub(crate) fn hold(&self) -> Hold {
        match self {
            Self::Private(memory) => Hold::Private(Arc::clone(&memory.mapping)),
            Self::Shared(buffer) => Hold::Shared(buffer.clone()),
        }
    }

    /// Copies `bytes` to `offset`. Panics beyond the end, like a slice.
    pub(crate) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        match self {
            Self::Private(memory) => memory.copy_in(offset, bytes),
            Self::Shared(buffer) => inside(buffer.copy_in(offset, bytes), buffer.len()),
        }
    }

    /// Copies from `offset` on into `bytes`. Panics beyond the end, like a slice.
    pub(crate) fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        match self {
            Self::Private(memory) => memory.copy_out(offset, bytes),
            Self::Shared(buffer) => inside(buffer.copy_out(offset, bytes), buffer.len()),
        }
    }
}

/// The one way to the bytes of a private mapping.
pub(crate) struct PrivateMemory {
    mapping: Arc<Mapping>,
}

impl PrivateMemory {
    fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let target = self.mapping.range(offset, bytes.len());
        // SAFETY: the range lies within the mapping and `bytes` does not, for nobody gets a reference
        // into it. This is the only way in and borrowed exclusively. Peers write through the kernel,
        // to other pages; where they would not, the page hashes would tell.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    }

    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let source = self.mapping.range(offset, bytes.len());
        // SAFETY: as in `copy_in`, with the roles changed; nothing of this process writes meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// An anonymous private mapping. By itself it gives no access to its bytes.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and its methods do not touch its bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = start.with_context(|| format!("cannot map {len} bytes for a KV pool"))?;
        let start = NonNull::new(start.cast()).context("the kernel mapped a pool at address 0")?;
        Ok(Self { start, len })
    }

    fn desc(&self) -> RegionDesc {
        let addr = self.start.as_ptr().expose_provenance() as u64;
        RegionDesc { addr, len: self.len as u64, kind: MemoryKind::Dram, device: 0 }
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} are beyond a pool of {} bytes",
            self.len
        );
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and ends here: whoever held it has let go.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Keeps the memory of a pool mapped.
pub(crate) enum Hold {
    Private(Arc<Mapping>),
    Shared(SharedBuf),
}

/// The memory of all pools, for the time in which it is registered.
pub(crate) struct Holds(pub(crate) Vec<Hold>);

// SAFETY: each range is mapped, readable and writable for as long as its hold lives, and no Rust
// reference to its bytes exists at any time: they are only copied in and out.
unsafe impl RegionOwner for Holds {
    fn regions(&self) -> Vec<RegionDesc> {
        let regions = self.0.iter().map(|hold| match hold {
            Hold::Private(mapping) => mapping.desc(),
            Hold::Shared(buffer) => buffer.desc(),
        });
        regions.collect()
    }
}

fn inside(copied: Result<(), kvferry::OutOfBounds>, len: usize) {
    if let Err(error) = copied {
        panic!("a copy is beyond a pool of {len} bytes: {error}");
    }
}
