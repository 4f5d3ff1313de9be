use std::sync::{Arc, RwLock, Weak};

use super::TransferCore;

/// Transfers by handle: the low half is a slot, the high half its generation, so that a handle is never used twice.
#[derive(Debug, Default)]
pub(crate) struct TransferTable {
    slots: RwLock<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    transfer: Weak<TransferCore>,
}

impl TransferTable {
    /// Takes a transfer in and returns its handle.
    pub(crate) fn insert(&self, transfer: &Arc<TransferCore>) -> u64 {
        let mut slots = self.slots.write().unwrap_or_else(|e| e.into_inner());
        let transfer = Arc::downgrade(transfer);
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.entries[slot as usize].transfer = transfer;
                slot
            }
            None => {
                slots.entries.push(Entry { generation: 1, transfer });
                slots.entries.len() as u32 - 1
            }
        };
        u64::from(slots.entries[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The transfer of a handle, if it has not been given up.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<TransferCore>> {
        let slots = self.slots.read().unwrap_or_else(|e| e.into_inner());
        let entry = slots.entries.get((handle & 0xffff_ffff) as usize)?;
        (u64::from(entry.generation) == handle >> 32).then(|| entry.transfer.upgrade()).flatten()
    }

    /// Forgets a handle. A slot whose generations are used up is not used again.
    pub(crate) fn remove(&self, handle: u64) {
        let mut slots = self.slots.write().unwrap_or_else(|e| e.into_inner());
        let slot = (handle & 0xffff_ffff) as u32;
        let Some(entry) = slots.entries.get_mut(slot as usize) else { return };
        if u64::from(entry.generation) != handle >> 32 {
            return;
        }
        entry.transfer = Weak::new();
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            slots.free.push(slot);
        }
    }

    /// All transfers that live.
    pub(crate) fn all(&self) -> Vec<Arc<TransferCore>> {
        let slots = self.slots.read().unwrap_or_else(|e| e.into_inner());
        slots.entries.iter().filter_map(|e| e.transfer.upgrade()).collect()
    }
}
