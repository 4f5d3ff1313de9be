use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use kvferry_sys::{BusyGuard, BusyWord, COPIERS};

/// The epoch and busy words that guard an agent's own memory against its own copy threads.
#[derive(Debug)]
pub(crate) struct Board {
    epoch: AtomicU64,
    busy: [BusyWord; COPIERS],
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { epoch: AtomicU64::new(0), busy: std::array::from_fn(|_| BusyWord::new()) }
    }

    /// Bars copies that have not begun; returns the epoch to ask [`Board::is_quiet`] about.
    pub(crate) fn revoke(&self) -> u64 {
        kvferry_sys::revoke(&self.epoch)
    }

    /// Whether all copies that began before `epoch` are over.
    pub(crate) fn is_quiet(&self, epoch: u64) -> bool {
        kvferry_sys::is_quiet(&self.busy, epoch)
    }

    /// Begins a copy, if `alive` says that its memory is still ours to touch.
    pub(crate) fn enter(&self, slot: usize, alive: impl Fn() -> bool) -> Option<BusyGuard<'_>> {
        loop {
            let epoch = self.epoch.load(SeqCst);
            // Regions are marked as gone before the epoch moves: alive under this epoch means alive until it moves.
            if !alive() {
                return None;
            }
            if let Some(guard) = kvferry_sys::enter(&self.epoch, &self.busy[slot], epoch) {
                return Some(guard);
            }
        }
    }
}
