//! The gate through which several copy threads pass, chunk by chunk, on one operation.
//!
//! It answers two questions exactly once each, whoever comes last: "all chunks are copied" and, after a stop,
//! "no chunk is being copied any more".

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::sync::{AtomicU64, Ordering};

const STOPPED: u64 = 1 << 63;
const EXHAUSTED: u64 = 1 << 62;
const INFLIGHT: u64 = (1 << 32) - 1;

/// What a step through a [`ChunkGate`] has brought about. [`Finished`](Self::Finished) and [`Quiet`](Self::Quiet) are
/// each told to one caller only between two resets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GateState {
    /// Nothing to tell: others are inside, there are chunks left, or another caller was told.
    Pending,
    /// The last chunk is over and the gate was not stopped.
    Finished,
    /// The gate is stopped and nobody is inside.
    Quiet,
}

/// Counts the copy threads inside one operation; one word.
#[derive(Debug)]
pub struct ChunkGate(AtomicU64);

impl ChunkGate {
    /// An open gate with nobody inside.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Goes in to copy one chunk. False, and nothing may be touched, once the gate is stopped or exhausted.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                let open = word & (STOPPED | EXHAUSTED) == 0 && word & INFLIGHT != INFLIGHT;
                open.then_some(word + 1)
            })
            .is_ok()
    }

    /// Says that there are no more chunks; those inside finish theirs.
    ///
    /// [`GateState::Finished`] if nobody is inside; who calls it from inside hears that from [`exit`](Self::exit).
    pub fn exhaust(&self) -> GateState {
        let before = self.0.fetch_or(EXHAUSTED, Ordering::AcqRel);
        if before == 0 { GateState::Finished } else { GateState::Pending }
    }

    /// Forbids further chunks; those inside finish theirs.
    ///
    /// [`GateState::Quiet`] if nobody is inside, at the first stop.
    pub fn stop(&self) -> GateState {
        let before = self.0.fetch_or(STOPPED, Ordering::AcqRel);
        if before & (STOPPED | INFLIGHT) == 0 { GateState::Quiet } else { GateState::Pending }
    }

    /// Comes out after a chunk.
    pub fn exit(&self) -> GateState {
        let stepped = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (word & INFLIGHT != 0).then(|| word - 1)
        });
        match stepped {
            Ok(before) if before & INFLIGHT == 1 && before & STOPPED != 0 => GateState::Quiet,
            Ok(before) if before & INFLIGHT == 1 && before & EXHAUSTED != 0 => GateState::Finished,
            _ => GateState::Pending,
        }
    }

    /// Whether the gate is stopped and nobody is inside; for those who were not the first to learn it.
    pub fn is_quiet(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & STOPPED != 0 && word & INFLIGHT == 0
    }

    /// Opens the gate for the next operation. False, and nothing changed, while somebody is inside.
    pub fn reset(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & INFLIGHT == 0).then_some(0))
            .is_ok()
    }

    /// Opens the gate for the next operation and goes in, in one step: what is told before the way out is told there.
    ///
    /// False, and nothing changed, while somebody is inside.
    #[must_use]
    pub fn reset_and_enter(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| (word & INFLIGHT == 0).then_some(1))
            .is_ok()
    }
}

impl Default for ChunkGate {
    fn default() -> Self {
        Self::new()
    }
}
