//! Memory that peers of this host can map.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kvferry_proto::{MemoryKind, RegionDesc};
use kvferry_sys::SharedMemory;

use crate::error::{AllocError, OutOfBounds};
use crate::region::RegionOwner;

/// How many bytes [`SharedBuf::fill`] copies at a time.
const FILL: usize = 64 << 10;

/// Zeroed memory that peers of this host can map, so that one copy moves data in or out of it.
///
/// Clones are the same memory; it is unmapped when the last of them and the last registration of it are gone.
/// There is no way to borrow its bytes, for a peer may write at any time: bytes are copied in and out.
///
/// Register it, or ranges within it by address: both are recognised as shared.
#[derive(Clone)]
pub struct SharedBuf {
    memory: Arc<SharedMemory>,
    memfd: u64,
}

impl SharedBuf {
    /// Where it is mapped in this process.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Bytes, at least one.
    pub fn len(&self) -> usize {
        self.memory.len() as usize
    }

    /// Never: an allocation has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The whole of it as a region.
    pub fn desc(&self) -> RegionDesc {
        RegionDesc { addr: self.addr(), len: self.memory.len(), kind: MemoryKind::Dram, device: 0 }
    }

    /// Copies `bytes` in, to `offset` and on.
    ///
    /// # Errors
    /// They do not fit; nothing is copied then.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.memory.copy_in(offset as u64, bytes).map_err(OutOfBounds::from)
    }

    /// Copies from `offset` and on out into `bytes`. What a peer is writing meanwhile comes as a mixture.
    ///
    /// # Errors
    /// There are not so many; nothing is copied then.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.memory.copy_out(offset as u64, bytes).map_err(OutOfBounds::from)
    }

    /// Sets every byte to `byte`.
    pub fn fill(&self, byte: u8) {
        let piece = vec![byte; FILL.min(self.len())];
        for offset in (0..self.len()).step_by(piece.len()) {
            let left = piece.len().min(self.len() - offset);
            // Inside by construction.
            let _ = self.memory.copy_in(offset as u64, &piece[..left]);
        }
    }
}

// SAFETY: the memory is mapped readable and writable while the value lives, belongs to it, and its bytes are
// never borrowed.
unsafe impl RegionOwner for SharedBuf {
    fn regions(&self) -> Vec<RegionDesc> {
        vec![self.desc()]
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({}, memfd {})", self.desc(), self.memfd)
    }
}

/// The allocations of one agent.
#[derive(Debug, Default)]
pub(crate) struct AllocTable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers are never reused, so that a peer cannot take one memfd for another.
    last_memfd: u64,
    /// By address.
    allocations: BTreeMap<u64, Allocation>,
}

#[derive(Debug)]
struct Allocation {
    memory: Weak<SharedMemory>,
    memfd: u64,
}

/// A range inside an allocation.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) memfd: u64,
    pub(crate) offset: u64,
}

impl AllocTable {
    /// Allocates `len` zeroed bytes, on huge pages where `collapse` asks for them and the system has them.
    pub(crate) fn alloc(&self, len: usize, collapse: bool) -> Result<SharedBuf, AllocError> {
        if len == 0 {
            return Err(AllocError::Empty);
        }
        let bytes = len as u64;
        let failed = |source: io::Error| AllocError::System { bytes, source: Arc::new(source) };
        let memory = SharedMemory::create("kvferry", bytes).map_err(failed)?;
        // Now rather than under the first copy: it costs time there, and a lack of memory would be a signal.
        memory.populate().map_err(failed)?;
        if collapse && let Err(error) = memory.collapse() {
            tracing::debug!(target: "kvferry::register", %error, "no huge pages for shared memory");
        }
        let memory = Arc::new(memory);
        let mut state = self.lock();
        state.allocations.retain(|_, allocation| allocation.memory.strong_count() > 0);
        state.last_memfd += 1;
        let memfd = state.last_memfd;
        state.allocations.insert(memory.addr(), Allocation { memory: Arc::downgrade(&memory), memfd });
        Ok(SharedBuf { memory, memfd })
    }

    /// The allocation that holds all `len` bytes from `addr` on.
    pub(crate) fn find(&self, addr: u64, len: u64) -> Option<Found> {
        let state = self.lock();
        let (start, allocation) = state.allocations.range(..=addr).next_back()?;
        let memory = allocation.memory.upgrade()?;
        let offset = addr - start;
        memory.slice(offset, len)?;
        Some(Found { memory, memfd: allocation.memfd, offset })
    }

    /// The allocation with that memfd, if it lives.
    pub(crate) fn memory(&self, memfd: u64) -> Option<Arc<SharedMemory>> {
        let state = self.lock();
        let allocation = state.allocations.values().find(|allocation| allocation.memfd == memfd)?;
        allocation.memory.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
