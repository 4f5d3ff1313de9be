//! Memory of tests: private or shared, filled and checked by patterns.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use kvferry::{Agent, Block, MemoryKind, RegionDesc, RegionOwner, SharedBuf};
use kvferry_sys::{RegionSlice, Touch};
use rustix::fs::MemfdFlags;
pub use rustix::mm::MprotectFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::pattern::{Difference, Pattern};

/// Bytes that are filled or compared at a time.
const PIECE: u64 = 256 << 10;

/// Where memory of tests comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryClass {
    /// An anonymous mapping of this process.
    Private,
    /// From [`Agent::alloc`]: peers of this host can map it.
    Shared,
    /// A mapping of a file that may shrink: only system calls may touch it.
    File,
}

/// A mapping of this process that no other can map.
///
/// Nothing lies directly behind it: a byte too far is not mapped.
#[derive(Debug)]
pub struct PrivateMemory {
    addr: u64,
    len: u64,
}

/// Memory that a test registers, fills and checks.
#[derive(Debug)]
pub enum Pool {
    /// Of class [`MemoryClass::Private`] or [`MemoryClass::File`].
    Private(PrivateMemory),
    /// Of class [`MemoryClass::Shared`].
    Shared(SharedBuf),
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const ELSEWHERE: MapFlags = MapFlags::PRIVATE.union(MapFlags::FIXED_NOREPLACE).union(MapFlags::NORESERVE);

/// An address with room for `len` bytes and nothing behind them, and the length in whole pages.
fn place(len: u64) -> (*mut std::ffi::c_void, u64) {
    // Addresses that the kernel gives nobody who does not ask: no other mapping follows.
    static NEXT: AtomicU64 = AtomicU64::new(0x2000_0000_0000);
    let len = len.max(1).next_multiple_of(4096);
    let addr = NEXT.fetch_add(len.next_multiple_of(1 << 30) + (1 << 30), Ordering::Relaxed);
    (ptr::without_provenance_mut(addr as usize), len)
}

impl PrivateMemory {
    /// `len` zeroed bytes of anonymous memory, rounded up to whole pages.
    ///
    /// # Panics
    /// There is no memory.
    pub fn new(len: u64) -> Self {
        let (hint, len) = place(len);
        // SAFETY: the kernel refuses a range that is in use.
        let mapped = unsafe { rustix::mm::mmap_anonymous(hint, len as usize, READ_WRITE, ELSEWHERE) };
        Self { addr: mapped.expect("memory for a test").expose_provenance() as u64, len }
    }

    /// The same of a file in memory whose size is not sealed.
    ///
    /// # Panics
    /// There is no memory.
    pub fn of_file(len: u64) -> Self {
        let (hint, len) = place(len);
        let file = rustix::fs::memfd_create("testkit", MemfdFlags::CLOEXEC).expect("a file in memory");
        rustix::fs::ftruncate(&file, len).expect("room in memory");
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses a range that is in use.
        let mapped = unsafe { rustix::mm::mmap(hint, len as usize, READ_WRITE, flags, &file, 0) };
        Self { addr: mapped.expect("memory for a test").expose_provenance() as u64, len }
    }

    /// Where it begins.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte; never the case.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Unmaps `len` bytes at `offset`, whole pages: what is left of it is no good memory any more.
    ///
    /// # Panics
    /// They are not pages of it.
    pub fn unmap(&mut self, offset: u64, len: u64) {
        let start = self.page(offset, len);
        // SAFETY: the pages are ours (`&mut self`), and nothing is mapped in their place before `self` is gone.
        unsafe { rustix::mm::munmap(start, len as usize) }.expect("an unmapped page");
    }

    /// Changes how `len` bytes at `offset`, whole pages, may be touched.
    ///
    /// # Panics
    /// They are not pages of it.
    pub fn protect(&mut self, offset: u64, len: u64, flags: MprotectFlags) {
        let start = self.page(offset, len);
        // SAFETY: the pages are ours (`&mut self`); whoever touches them from now on is at fault.
        unsafe { rustix::mm::mprotect(start, len as usize, flags) }.expect("a protected page");
    }

    fn page(&self, offset: u64, len: u64) -> *mut std::ffi::c_void {
        assert!(offset.is_multiple_of(4096) && len.is_multiple_of(4096) && offset + len <= self.len);
        ptr::with_exposed_provenance_mut((self.addr + offset) as usize)
    }

    fn slice(&self) -> RegionSlice {
        // SAFETY: the mapping is readable and writable, nobody shrinks what it maps, and it lives as long as `self`, which
        // callers borrow.
        unsafe { RegionSlice::new(self.addr, self.len, Touch::LoadStore) }
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.addr as usize);
        // SAFETY: the mapping is ours alone, and nothing borrows from it beyond `self`.
        let _ = unsafe { rustix::mm::munmap(start, self.len as usize) };
    }
}

// SAFETY: the mapping lives as long as the value, is readable and writable, and its bytes are never borrowed.
unsafe impl RegionOwner for PrivateMemory {
    fn regions(&self) -> Vec<RegionDesc> {
        vec![RegionDesc { addr: self.addr, len: self.len, kind: MemoryKind::Dram, device: 0 }]
    }
}

impl Pool {
    /// `len` zeroed bytes.
    ///
    /// # Panics
    /// There is no memory.
    pub fn new(agent: &Agent, class: MemoryClass, len: u64) -> Self {
        match class {
            MemoryClass::Private => Self::Private(PrivateMemory::new(len)),
            MemoryClass::File => Self::Private(PrivateMemory::of_file(len)),
            MemoryClass::Shared => Self::Shared(agent.alloc(len as usize).expect("shared memory for a test")),
        }
    }

    /// Where it begins.
    pub fn addr(&self) -> u64 {
        match self {
            Self::Private(memory) => memory.addr,
            Self::Shared(memory) => memory.addr(),
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Private(memory) => memory.len,
            Self::Shared(memory) => memory.len() as u64,
        }
    }

    /// Whether it holds no byte; never the case.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole of it as a region.
    pub fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.addr(), len: self.len(), kind: MemoryKind::Dram, device: 0 }
    }

    /// The block of `len` bytes at `offset`.
    pub fn block(&self, offset: u64, len: u64) -> Block {
        Block { addr: self.addr() + offset, len, device: 0 }
    }

    /// Copies bytes in, to `offset` and on.
    ///
    /// # Panics
    /// They do not fit.
    pub fn store(&self, offset: u64, bytes: &[u8]) {
        match self {
            Self::Private(memory) => {
                let (from, len) = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
                // SAFETY: the bytes are borrowed while they are read; nothing is written to this slice.
                let from = unsafe { RegionSlice::new(from, len, Touch::LoadStore) };
                let to = memory.slice().slice(offset, len).expect("a place inside the memory");
                kvferry_sys::copy(to, from).expect("two ranges of one length");
                kvferry_sys::copy_fence();
            }
            Self::Shared(memory) => {
                memory.copy_in(offset as usize, bytes).expect("a place inside the memory")
            }
        }
    }

    /// Copies bytes out, from `offset` and on. What a peer writes meanwhile comes as a mixture.
    ///
    /// # Panics
    /// There are not so many.
    pub fn load(&self, offset: u64, bytes: &mut [u8]) {
        match self {
            Self::Private(memory) => {
                let (to, len) = (bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64);
                // SAFETY: the bytes are borrowed exclusively while they are written.
                let to = unsafe { RegionSlice::new(to, len, Touch::LoadStore) };
                let from = memory.slice().slice(offset, len).expect("a place inside the memory");
                kvferry_sys::copy(to, from).expect("two ranges of one length");
                kvferry_sys::copy_fence();
            }
            Self::Shared(memory) => {
                memory.copy_out(offset as usize, bytes).expect("a place inside the memory")
            }
        }
    }

    /// Fills all of it with a pattern that begins at its start.
    pub fn fill(&self, pattern: Pattern) {
        self.fill_range(pattern, 0, 0, self.len());
    }

    /// Fills `len` bytes at `offset` with what the pattern has at `of` and on.
    pub fn fill_range(&self, pattern: Pattern, of: u64, offset: u64, len: u64) {
        let mut bytes = vec![0; PIECE.min(len) as usize];
        for at in (0..len).step_by(PIECE as usize) {
            let bytes = &mut bytes[..PIECE.min(len - at) as usize];
            pattern.fill(of + at, bytes);
            self.store(offset + at, bytes);
        }
    }

    /// The first byte that is not as the pattern, which begins at the memory's start, has it.
    pub fn difference(&self, pattern: Pattern) -> Option<Difference> {
        self.difference_in(pattern, 0, 0, self.len())
    }

    /// The first of `len` bytes at `offset` that is not what the pattern has at `of` and on; its offset is that in the
    /// pattern.
    pub fn difference_in(&self, pattern: Pattern, of: u64, offset: u64, len: u64) -> Option<Difference> {
        self.pieces(offset, len).find_map(|(at, bytes)| pattern.difference(of + (at - offset), &bytes))
    }

    /// Bytes, in whole words, that are as the pattern has them.
    pub fn matching(&self, pattern: Pattern) -> u64 {
        self.pieces(0, self.len()).map(|(at, bytes)| pattern.matching(at, &bytes)).sum()
    }

    /// Panics unless all of it is as the pattern has it.
    #[track_caller]
    pub fn verify(&self, pattern: Pattern) {
        if let Some(difference) = self.difference(pattern) {
            panic!("{difference}");
        }
    }

    /// All its bytes, as they are now.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len() as usize];
        self.load(0, &mut bytes);
        bytes
    }

    fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, Vec<u8>)> + '_ {
        (offset..offset + len).step_by(PIECE as usize).map(move |at| {
            let mut bytes = vec![0; PIECE.min(offset + len - at) as usize];
            self.load(at, &mut bytes);
            (at, bytes)
        })
    }
}

// SAFETY: as for the two that it may be.
unsafe impl RegionOwner for Pool {
    fn regions(&self) -> Vec<RegionDesc> {
        vec![self.desc()]
    }
}
