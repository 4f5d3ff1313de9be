use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use kvferry_proto::RevokeScope;

use crate::transport::Link;

/// How long a thread may be in a call that moves what is there already.
const STREAMS_LEAVE: Duration = Duration::from_millis(20);

/// All links of an agent, in both directions, with those that are lost and not quiet yet.
///
/// A link is forgotten only when no copy of the peer can touch our memory through it any more.
#[derive(Debug, Default)]
pub(crate) struct Links {
    entries: Mutex<Vec<Entry>>,
    lingering: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    channel: u64,
    peer: String,
    inbound: bool,
    link: Arc<dyn Link>,
    /// For a lost link, the epoch since when the peer is barred from everything.
    lost: Option<u64>,
}

impl Links {
    pub(crate) fn add(&self, channel: u64, peer: &str, inbound: bool, link: Arc<dyn Link>) {
        crate::lock(&self.entries).push(Entry { channel, peer: peer.into(), inbound, link, lost: None });
    }

    /// The channel is gone; everything is revoked as of `epoch`.
    pub(crate) fn lost(&self, channel: u64, epoch: u64) {
        let mut entries = crate::lock(&self.entries);
        if let Some(entry) = entries.iter_mut().find(|e| e.channel == channel) {
            entry.lost = Some(epoch);
            self.lingering.fetch_add(1, SeqCst);
        }
    }

    pub(crate) fn is_lingering(&self) -> bool {
        self.lingering.load(SeqCst) > 0
    }

    /// Forgets lost links that have become quiet.
    pub(crate) fn linger(&self) {
        if !self.is_lingering() {
            return;
        }
        let mut entries = crate::lock(&self.entries);
        entries.retain(|e| {
            let done = e.lost.is_some_and(|epoch| e.link.linger() && e.link.is_quiet(epoch));
            if done {
                self.lingering.fetch_sub(1, SeqCst);
            }
            !done
        });
    }

    /// Bars all peers (or one) from `scope` of our memory.
    pub(crate) fn revoke(&self, peer: Option<&str>, scope: &RevokeScope) -> Revoking {
        let entries = crate::lock(&self.entries);
        let barred = entries.iter().filter(|e| peer.is_none_or(|name| name == e.peer)).map(|e| {
            let epoch = e.lost.unwrap_or_else(|| e.link.revoke(scope.clone()));
            (e.peer.clone(), e.link.clone(), epoch)
        });
        Revoking { waiting: barred.collect() }
    }

    /// Waits the moment that it takes for our own threads to leave the lost wire links that a peer had opened; false if they
    /// do not. Until then what is under way on those links may still land.
    pub(crate) fn await_streams(&self, peer: &str) -> bool {
        let entries = crate::lock(&self.entries);
        let lost: Vec<(Arc<dyn Link>, u64)> = entries
            .iter()
            .filter(|e| e.inbound && e.peer == peer && e.link.has_streams())
            .filter_map(|e| Some((e.link.clone(), e.lost?)))
            .collect();
        drop(entries);
        lost.is_empty()
            || wait_until(STREAMS_LEAVE, || lost.iter().all(|(link, epoch)| link.is_quiet(*epoch)))
    }

    /// The channels to and from one peer.
    pub(crate) fn channels(&self, peer: &str) -> Vec<u64> {
        let entries = crate::lock(&self.entries);
        entries.iter().filter(|e| e.peer == peer && e.lost.is_none()).map(|e| e.channel).collect()
    }

    /// Whether anything, lost or not, leads to or from this peer.
    pub(crate) fn knows(&self, peer: &str) -> bool {
        crate::lock(&self.entries).iter().any(|e| e.peer == peer)
    }

    /// How many links there are: opened by us, opened to us, lost and not quiet yet.
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let entries = crate::lock(&self.entries);
        let live =
            |inbound: bool| entries.iter().filter(|e| e.lost.is_none() && e.inbound == inbound).count();
        (live(false), live(true), entries.iter().filter(|e| e.lost.is_some()).count())
    }
}

/// Peers that have been barred and may not be quiet yet.
#[derive(Debug)]
pub(crate) struct Revoking {
    waiting: Vec<(String, Arc<dyn Link>, u64)>,
}

impl Revoking {
    /// Whether all are quiet.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.waiting.retain(|(_, link, epoch)| !link.is_quiet(*epoch));
        self.waiting.is_empty()
    }

    /// Who was not, when last asked.
    pub(crate) fn busy(self) -> Vec<String> {
        let mut busy: Vec<String> = self.waiting.into_iter().map(|(peer, ..)| peer).collect();
        busy.sort_unstable();
        busy.dedup();
        busy
    }
}

/// Asks until the answer is yes or the time is up. What is waited for happens in other processes, which do not signal us:
/// first often, then less so.
pub(crate) fn wait_until(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    let mut pause = Duration::from_micros(20);
    loop {
        if done() {
            return true;
        }
        let now = Instant::now();
        if now >= deadline {
            return false;
        }
        std::thread::sleep(pause.min(deadline - now));
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
