use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::OpReport;

/// Measures one attempt.
#[derive(Debug)]
pub(crate) struct Clock {
    born: Instant,
    /// Nanoseconds from `born` to the submission, and to the first chunk (0 = none yet).
    submitted: AtomicU64,
    first: AtomicU64,
    pub(crate) segments: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            born: Instant::now(),
            submitted: AtomicU64::new(0),
            first: AtomicU64::new(0),
            segments: AtomicU64::new(0),
        }
    }

    pub(crate) fn start(&self) {
        self.submitted.store(self.now(), Relaxed);
        self.first.store(0, Relaxed);
        self.segments.store(0, Relaxed);
    }

    /// Starts where nothing lies between the submission and the first chunk.
    pub(crate) fn start_at_once(&self) {
        let now = self.now();
        self.submitted.store(now, Relaxed);
        self.first.store(now, Relaxed);
        self.segments.store(0, Relaxed);
    }

    /// Marks a chunk; only the first counts.
    pub(crate) fn first(&self) {
        if self.first.load(Relaxed) == 0 {
            let _ = self.first.compare_exchange(0, self.now(), Relaxed, Relaxed);
        }
    }

    pub(crate) fn report(&self) -> OpReport {
        let (submitted, first, now) = (self.submitted.load(Relaxed), self.first.load(Relaxed), self.now());
        let begun = if first == 0 { now } else { first };
        OpReport {
            queued: Duration::from_nanos(begun.saturating_sub(submitted)),
            copied: Duration::from_nanos(now.saturating_sub(begun)),
            segments: self.segments.load(Relaxed),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}
