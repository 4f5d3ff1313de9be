use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::{
    path::{Mechanism, Path, Route},
    transport::OpReport,
};

/// What the last attempt of a transfer measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Telemetry {
    /// How long the call to post took.
    pub post: Duration,
    /// From the post to the first chunk.
    pub queue: Duration,
    /// From the first chunk to the last.
    pub copy: Duration,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Blocks as given.
    pub blocks: u64,
    /// Segments that were copied, after merging neighbours; 0 before the end.
    pub merged: u64,
    /// The path of most bytes.
    pub path: Option<Path>,
    /// The mechanism of most bytes.
    pub mechanism: Option<Mechanism>,
}

/// Measures one attempt. Written by whoever owns the attempt; read at any time.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    post_ns: AtomicU64,
    queue_ns: AtomicU64,
    copy_ns: AtomicU64,
    segments: AtomicU64,
}

impl Timing {
    pub(crate) fn start(&self) {
        for counter in [&self.post_ns, &self.queue_ns, &self.copy_ns, &self.segments] {
            counter.store(0, Relaxed);
        }
    }

    pub(crate) fn posted(&self, took: Duration) {
        self.post_ns.store(nanos(took), Relaxed);
    }

    pub(crate) fn finished(&self, report: OpReport) {
        self.queue_ns.fetch_max(nanos(report.queued), Relaxed);
        self.copy_ns.fetch_max(nanos(report.copied), Relaxed);
        self.segments.fetch_add(report.segments, Relaxed);
    }

    pub(crate) fn read(&self, blocks: u64, bytes: u64, route: Option<Route>) -> Telemetry {
        Telemetry {
            post: Duration::from_nanos(self.post_ns.load(Relaxed)),
            queue: Duration::from_nanos(self.queue_ns.load(Relaxed)),
            copy: Duration::from_nanos(self.copy_ns.load(Relaxed)),
            bytes,
            blocks,
            merged: self.segments.load(Relaxed),
            path: route.map(|r| r.path),
            mechanism: route.map(|r| r.mechanism),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
