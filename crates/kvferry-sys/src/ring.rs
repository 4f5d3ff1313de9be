//! A bounded queue of handles for many producers and many consumers.
//!
//! Dmitry Vyukov's array queue: each cell carries a sequence number that says whose turn it is. The values are atomics
//! too, so the queue has no unsafe code and no cell whose content is read while it is written.
//!
//! ```text
//!   cell i, round r, n cells:   sequence = r*n + i      free: the producer at position r*n + i may fill it
//!                               sequence = r*n + i + 1  full: the consumer at position r*n + i may empty it
//! ```

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicU64, Ordering};

/// A position on its own cache line, so that producers and consumers do not slow each other down.
#[derive(Debug)]
#[repr(align(64))]
struct Position(AtomicU64);

impl Position {
    /// Claims the position `from`; the position found instead if another thread was faster.
    fn advance(&self, from: u64) -> Result<(), u64> {
        let to = from.wrapping_add(1);
        self.0.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed).map(|_| ())
    }
}

#[derive(Debug)]
struct Cell {
    sequence: AtomicU64,
    value: AtomicU64,
}

/// A bounded first-in, first-out queue of 64-bit handles, usable from any number of threads.
///
/// No call waits. A push or pop that another thread is in the middle of may make the queue look full or empty to a
/// third for that moment.
#[derive(Debug)]
pub struct HandleRing {
    cells: Box<[Cell]>,
    mask: u64,
    head: Position,
    tail: Position,
}

impl HandleRing {
    /// An empty queue for `capacity` handles, rounded up to a power of two and at least 2.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let cells: Box<[Cell]> = (0..capacity.max(2).next_power_of_two() as u64)
            .map(|index| Cell { sequence: AtomicU64::new(index), value: AtomicU64::new(0) })
            .collect();
        Self {
            mask: cells.len() as u64 - 1,
            cells,
            head: Position(AtomicU64::new(0)),
            tail: Position(AtomicU64::new(0)),
        }
    }

    /// How many handles fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// Appends a handle; gives it back if the queue is full.
    pub fn push(&self, value: u64) -> Result<(), u64> {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(tail);
            let sequence = cell.sequence.load(Ordering::Acquire);
            if sequence == tail {
                match self.tail.advance(tail) {
                    Ok(()) => {
                        cell.value.store(value, Ordering::Relaxed);
                        cell.sequence.store(tail.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(actual) => tail = actual,
                }
            } else if is_behind(sequence, tail) {
                return Err(value);
            } else {
                tail = self.tail.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest handle.
    pub fn pop(&self) -> Option<u64> {
        let mut head = self.head.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(head);
            let sequence = cell.sequence.load(Ordering::Acquire);
            let full = head.wrapping_add(1);
            if sequence == full {
                match self.head.advance(head) {
                    Ok(()) => {
                        let value = cell.value.load(Ordering::Relaxed);
                        let free = full.wrapping_add(self.mask);
                        cell.sequence.store(free, Ordering::Release);
                        return Some(value);
                    }
                    Err(actual) => head = actual,
                }
            } else if is_behind(sequence, full) {
                return None;
            } else {
                head = self.head.0.load(Ordering::Relaxed);
            }
        }
    }

    /// How many handles are queued; a moment's value while others push and pop.
    pub fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Acquire);
        let tail = self.tail.0.load(Ordering::Acquire);
        // The tail was read later, so it can only be ahead; by more than the capacity if the head moved in between.
        (tail.wrapping_sub(head) as usize).min(self.cells.len())
    }

    /// Whether nothing is queued; a moment's value as well.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn cell(&self, position: u64) -> &Cell {
        // The mask keeps the index below the length.
        &self.cells[(position & self.mask) as usize]
    }
}

/// Whether `sequence` has not reached `position` yet, on numbers that wrap.
fn is_behind(sequence: u64, position: u64) -> bool {
    (sequence.wrapping_sub(position) as i64) < 0
}
