use std::ptr::{self, NonNull};

use anyhow::{Context, Result, anyhow, ensure};
use kvferry::{Agent, Block, MemoryKind, RegionDesc, RegionOwner, Registration, SharedBuf};
use kvferry_sys::{RegionSlice, Touch};
use rustix::mm::{MapFlags, ProtFlags};

use crate::options::Memory;

/// The registered memory of one side.
///
/// Its bytes are only ever copied in and out: a peer may write at any time.
pub(crate) struct Pool {
    held: Held,
}

enum Held {
    Private(Registration<Anonymous>),
    Kvferry(Registration<SharedBuf>),
}

impl Pool {
    /// Populated memory of `len` bytes, registered with the agent.
    pub(crate) fn new(agent: &Agent, memory: Memory, len: u64) -> Result<Self> {
        let size = usize::try_from(len).context("the pool is larger than the address space")?;
        let held = match memory {
            Memory::Private => {
                let anonymous = Anonymous::new(size).context("can't map a pool")?;
                Held::Private(agent.register(anonymous).map_err(|rejected| rejected.error)?)
            }
            Memory::Kvferry => {
                Held::Kvferry(agent.register(agent.alloc(size)?).map_err(|rejected| rejected.error)?)
            }
        };
        Ok(Self { held })
    }

    /// Where it begins.
    pub(crate) fn addr(&self) -> u64 {
        match &self.held {
            Held::Private(anonymous) => anonymous.desc().addr,
            Held::Kvferry(buf) => buf.addr(),
        }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.held {
            Held::Private(anonymous) => anonymous.desc().len,
            Held::Kvferry(buf) => buf.len() as u64,
        }
    }

    /// Copies `bytes` in from `offset` on.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = self.check(offset, bytes.len())?;
        match &self.held {
            // SAFETY: the range lies inside the mapping, whose bytes nobody borrows; `bytes` lies elsewhere.
            Held::Private(anonymous) => unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), anonymous.start.as_ptr().add(at), bytes.len());
            },
            Held::Kvferry(buf) => buf.copy_in(at, bytes)?,
        }
        Ok(())
    }

    /// Copies from `offset` on out into `bytes`.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.check(offset, bytes.len())?;
        match &self.held {
            // SAFETY: as above.
            Held::Private(anonymous) => unsafe {
                ptr::copy_nonoverlapping(anonymous.start.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len());
            },
            Held::Kvferry(buf) => buf.copy_out(at, bytes)?,
        }
        Ok(())
    }

    /// The range for the raw loops.
    pub(crate) fn slice(&self, offset: u64, len: u64) -> Result<RegionSlice> {
        self.check(offset, usize::try_from(len)?)?;
        // SAFETY: the range lies inside memory that belongs to the pool and is anonymous or sealed; what the raw
        // loops make of it borrows the pool.
        Ok(unsafe { RegionSlice::new(self.addr() + offset, len, Touch::LoadStore) })
    }

    fn check(&self, offset: u64, len: usize) -> Result<usize> {
        let end = offset.checked_add(len as u64);
        ensure!(end.is_some_and(|end| end <= self.len()), "{len} bytes at {offset} are not inside the pool");
        Ok(offset as usize)
    }
}

/// Blocks of `len` bytes at `offsets` of a pool that begins at `base`.
pub(crate) fn blocks(base: u64, offsets: &[u64], len: u64) -> Vec<Block> {
    offsets.iter().map(|offset| Block { addr: base + offset, len, device: 0 }).collect()
}

/// A private anonymous mapping, populated.
struct Anonymous {
    start: NonNull<u8>,
    len: usize,
}

impl Anonymous {
    fn new(len: usize) -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: with a null hint the kernel picks a range that nobody uses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        // The raw loops reach it by its address.
        start.expose_provenance();
        let start = NonNull::new(start.cast()).ok_or_else(|| anyhow!("mapped at address 0"))?;
        Ok(Self { start, len })
    }

    fn desc(&self) -> RegionDesc {
        let addr = self.start.as_ptr().addr() as u64;
        RegionDesc { addr, len: self.len as u64, kind: MemoryKind::Dram, device: 0 }
    }
}

// SAFETY: the mapping is readable and writable while the value lives, belongs to it, and its bytes are never borrowed.
unsafe impl RegionOwner for Anonymous {
    fn regions(&self) -> Vec<RegionDesc> {
        vec![self.desc()]
    }
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Anonymous {}
// SAFETY: as above; `&self` gives out the address only.
unsafe impl Sync for Anonymous {}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and the registration that owned it is quiet.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
