use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::path::{Mechanism, Path};

/// Counters of an agent since it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transfers done and their bytes, for each path and mechanism.
    pub paths: BTreeMap<(Path, Mechanism), PathStats>,
    /// Failed transfers by error code.
    pub failures: BTreeMap<&'static str, u64>,
    /// Transfers that were cancelled.
    pub cancels: u64,
    /// Cancels that ended as [`CancelError::Fenced`](crate::CancelError::Fenced).
    pub fences: u64,
    /// Peers that came within reach.
    pub peers_up: u64,
    /// Peers that were lost.
    pub peers_lost: u64,
    /// Peers that came back as another incarnation.
    pub peers_restarted: u64,
    /// Transfers posted and not yet ended, now.
    pub queue_depth: u64,
    /// Notifications sent.
    pub notifications_sent: u64,
    /// Notifications received.
    pub notifications_received: u64,
    /// Registered regions that share bytes with another, now.
    pub regions_overlapping: usize,
    /// Regions that were deregistered while a peer could not be shown to have let go of them, now.
    pub regions_quarantined: usize,
    /// Links that we opened and that are up, now.
    pub links_out: usize,
    /// Links that peers opened to us and that are up, now.
    pub links_in: usize,
    /// Links that are lost and through which a peer may still touch our memory, now.
    pub links_lingering: usize,
}

/// Transfers that went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Transfers done.
    pub transfers: u64,
    /// Bytes of those.
    pub bytes: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((path, mechanism), s) in &self.paths {
            write!(f, "{path} {mechanism}: {} transfers, {} bytes; ", s.transfers, s.bytes)?;
        }
        for (code, n) in &self.failures {
            write!(f, "{code}: {n}; ")?;
        }
        write!(
            f,
            "{} cancelled, {} fenced, peers {} up {} lost {} restarted, {} in flight, notifications {} sent {} received",
            self.cancels,
            self.fences,
            self.peers_up,
            self.peers_lost,
            self.peers_restarted,
            self.queue_depth,
            self.notifications_sent,
            self.notifications_received
        )
    }
}

/// The live counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cancels: AtomicU64,
    pub(crate) fences: AtomicU64,
    peers_up: AtomicU64,
    peers_lost: AtomicU64,
    peers_restarted: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    notifications_sent: AtomicU64,
    notifications_received: AtomicU64,
    paths: Mutex<BTreeMap<(Path, Mechanism), PathStats>>,
    failures: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub(crate) fn done(&self, path: Path, mechanism: Mechanism, bytes: u64) {
        let mut paths = crate::lock(&self.paths);
        let entry = paths.entry((path, mechanism)).or_default();
        entry.transfers += 1;
        entry.bytes += bytes;
    }

    pub(crate) fn failed(&self, code: &'static str) {
        *crate::lock(&self.failures).entry(code).or_default() += 1;
    }

    pub(crate) fn peer_up(&self) {
        self.peers_up.fetch_add(1, Relaxed);
    }

    pub(crate) fn peer_lost(&self) {
        self.peers_lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn peer_restarted(&self) {
        self.peers_restarted.fetch_add(1, Relaxed);
    }

    pub(crate) fn notification_sent(&self) {
        self.notifications_sent.fetch_add(1, Relaxed);
    }

    pub(crate) fn notification_received(&self) {
        self.notifications_received.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            paths: crate::lock(&self.paths).clone(),
            failures: crate::lock(&self.failures).clone(),
            cancels: self.cancels.load(Relaxed),
            fences: self.fences.load(Relaxed),
            peers_up: self.peers_up.load(Relaxed),
            peers_lost: self.peers_lost.load(Relaxed),
            peers_restarted: self.peers_restarted.load(Relaxed),
            queue_depth: self.in_flight.load(Relaxed),
            notifications_sent: self.notifications_sent.load(Relaxed),
            notifications_received: self.notifications_received.load(Relaxed),
            ..Stats::default()
        }
    }
}
