//! Memory and buffers for this crate's tests.

use std::sync::atomic::{AtomicU64, Ordering};

use kvferry::{Agent, MemoryKind};
use rustix::mm::{MapFlags, ProtFlags};

use crate::buffers::{AuxBuffer, KvEntry, KvPart, StateComponent, StateTensor, WorkerBuffers};

/// One page of private memory with nothing mapped after it for a gigabyte or more, unmapped when dropped.
pub(crate) struct LonePage {
    pub(crate) addr: u64,
}

impl LonePage {
    pub(crate) const LEN: u64 = 4096;

    /// At an address that the kernel gives nobody who does not ask for it, so that no other thread's memory
    /// follows.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0x3000_0000_0000);
        let addr = NEXT.fetch_add(1 << 32, Ordering::Relaxed);
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the kernel refuses a range that is in use.
        let page = unsafe { rustix::mm::mmap_anonymous(addr as *mut _, Self::LEN as usize, prot, flags) };
        Self { addr: page.expect("memory") as u64 }
    }
}

impl Drop for LonePage {
    fn drop(&mut self) {
        // SAFETY: the page is ours, and no Rust object is in it.
        let _ = unsafe { rustix::mm::munmap(self.addr as *mut _, Self::LEN as usize) };
    }
}

pub(crate) fn agent() -> Agent {
    Agent::builder("worker").build().expect("an agent")
}

/// `layers` pools of K, then as many of V, each of ten items of 400 bytes in the page.
pub(crate) fn kv(page: &LonePage, layers: u32) -> Vec<KvEntry> {
    let pools =
        [KvPart::K, KvPart::V].into_iter().flat_map(|part| (0..layers).map(move |layer| (layer, part)));
    pools
        .map(|(layer, part)| KvEntry {
            ptr: page.addr,
            len: 4000,
            item_len: 400,
            kind: MemoryKind::Dram,
            device: 0,
            layer,
            part,
        })
        .collect()
}

/// Buffers of all sorts in the page, all good.
pub(crate) fn buffers(page: &LonePage) -> WorkerBuffers {
    let aux = AuxBuffer { ptr: page.addr + 100, len: 64, item_len: 8 };
    let tensor = StateTensor {
        ptr: page.addr + 8,
        len: 80,
        item_len: 16,
        kind: MemoryKind::Dram,
        device: 0,
        layer: Some(3),
    };
    let state = [("mamba", 2), ("swa", 3)]
        .map(|(name, tensors)| StateComponent { name: name.to_owned(), tensors: vec![tensor; tensors] });
    WorkerBuffers { kv: kv(page, 40), aux: vec![aux; 5], state: state.into() }
}
