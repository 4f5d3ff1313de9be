use std::{
    collections::HashMap,
    fmt,
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, OnceLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use kvferry_proto::{Evidence, Outcome, RemoteRegion, Revocations, RevokeScope};
use kvferry_sys::{BusyGuard, COPIERS, LinkPage, Liveness as Word, Pid, SharedMemory, Side};

use super::{
    delegate::{DelegatedOp, Delegations},
    message::Wire,
    op::LocalOp,
    pool::{CopyPool, Step, Work},
    route::{Class, Router},
    routes::{Routes, split},
    served::Served,
};
use crate::{
    error::{FaultCause, LostCause},
    path::{Path, PathReport},
    region::{Backing, LocalRegion},
    registry::Registry,
    settings::Settings,
    transport::{Acknowledge, AdmitError, Link, LinkOp, Liveness, Message, OpRequest, Outbox},
};

/// A peer process on this host.
pub(super) struct SameHostLink {
    me: Weak<Self>,
    peer: String,
    side: Side,
    page: Arc<LinkPage>,
    pid: Option<Pid>,
    router: Router,
    pool: Arc<CopyPool>,
    registry: Arc<Registry>,
    settings: Arc<Settings>,
    pub(super) outbox: Outbox,
    /// The last epoch of the peer's memory whose revocation we have carried out.
    acknowledged: AtomicU64,
    stalled: Mutex<Vec<(u64, Arc<dyn Work>)>>,
    lost: OnceLock<FaultCause>,
    revocations: Mutex<Revocations>,
    /// The peer's process, where the kernel gives a handle to it.
    process: Option<Arc<OwnedFd>>,
    /// Operations submitted and not ended.
    active: AtomicUsize,
    memories: Mutex<Memories>,
    arrived: Condvar,
    pub(super) delegations: Delegations,
    served: Served,
}

/// The peer's memory files that are mapped here.
#[derive(Debug, Default)]
struct Memories {
    mapped: HashMap<u64, Result<Arc<SharedMemory>, String>>,
    asked: Vec<u64>,
}

/// What a copier is told when it wants to touch the peer's memory.
pub(super) enum Entry<'a> {
    /// Go on, quickly.
    Go(BusyGuard<'a>),
    /// The peer is revoking something: wait until that has been carried out.
    Stalled,
    /// A region of the operation was revoked.
    Revoked,
    /// The peer is gone.
    Lost(FaultCause),
}

/// What a link is made from.
pub(super) struct Parts {
    pub(super) peer: String,
    pub(super) side: Side,
    pub(super) page: Arc<LinkPage>,
    pub(super) pid: Option<Pid>,
    pub(super) process: Option<Arc<OwnedFd>>,
    pub(super) router: Router,
    pub(super) pool: Arc<CopyPool>,
    pub(super) registry: Arc<Registry>,
    pub(super) settings: Arc<Settings>,
    pub(super) outbox: Outbox,
}

impl SameHostLink {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            peer: parts.peer,
            side: parts.side,
            page: parts.page,
            pid: parts.pid,
            router: parts.router,
            pool: parts.pool,
            registry: parts.registry,
            settings: parts.settings,
            outbox: parts.outbox,
            acknowledged: AtomicU64::new(0),
            stalled: Mutex::default(),
            lost: OnceLock::new(),
            revocations: Mutex::new(Revocations::new(Evidence::Words)),
            process: parts.process,
            active: AtomicUsize::new(0),
            memories: Mutex::default(),
            arrived: Condvar::new(),
            delegations: Delegations::default(),
            served: Served::default(),
        })
    }

    pub(super) fn pool(&self) -> &Arc<CopyPool> {
        &self.pool
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn path_of_link(&self) -> Path {
        self.router.path
    }

    pub(super) fn served(&self) -> &Served {
        &self.served
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Counts an operation in; returns how many there were.
    pub(super) fn join(&self) -> usize {
        self.active.fetch_add(1, SeqCst)
    }

    pub(super) fn leave(&self) {
        self.active.fetch_sub(1, SeqCst);
    }

    /// Begins a touch of the peer's memory.
    ///
    /// `alive` is asked once for each epoch: the peer's revocations are marked before their epoch is acknowledged.
    pub(super) fn enter(
        &self,
        slot: usize,
        validated: &AtomicU64,
        alive: impl FnOnce() -> bool,
    ) -> Entry<'_> {
        if let Some(cause) = self.lost.get() {
            return Entry::Lost(cause.clone());
        }
        let acknowledged = self.acknowledged.load(SeqCst);
        if validated.load(SeqCst) != acknowledged + 1 {
            if !alive() {
                return Entry::Revoked;
            }
            validated.store(acknowledged + 1, SeqCst);
        }
        let theirs = self.side.other();
        let busy = &self.page.busy(self.side)[slot];
        let Some(guard) = kvferry_sys::enter(self.page.epoch(theirs), busy, acknowledged) else {
            return Entry::Stalled;
        };
        if Word::of(self.page.liveness(theirs).load(SeqCst)) == Word::Dead {
            drop(guard);
            return Entry::Lost(self.peer_died());
        }
        Entry::Go(guard)
    }

    /// Puts a work aside until the peer's revocation has been carried out.
    pub(super) fn stall(&self, handle: u64, work: Arc<dyn Work>) -> Step {
        crate::lock(&self.stalled).push((handle, work));
        let epoch = self.page.epoch(self.side.other()).load(SeqCst);
        // If it was carried out, or the link lost, between the look and the push, nobody else will fetch the work.
        if epoch == self.acknowledged.load(SeqCst) || self.lost.get().is_some() {
            self.resume();
        }
        Step::Leave
    }

    fn resume(&self) {
        let stalled = std::mem::take(&mut *crate::lock(&self.stalled));
        for (handle, work) in stalled {
            if self.pool.enqueue(handle, work.queued()).is_err() {
                // No room just now; the copy threads will make some.
                crate::lock(&self.stalled).push((handle, work));
            }
        }
    }

    /// Whether the peer's process has ended with all its threads, so that no system call of it runs any more.
    ///
    /// The liveness word alone does not say that: it changes as soon as one thread is gone.
    fn process_is_gone(&self) -> bool {
        self.process.as_ref().is_some_and(crate::process::has_ended)
    }

    /// The kernel says that the peer's process is gone: ends the link, returns what operations fail with.
    pub(super) fn peer_died(&self) -> FaultCause {
        self.outbox.peer_died();
        FaultCause::PeerLost { peer: self.peer.clone(), cause: LostCause::Died }
    }

    /// The peer's memory file, mapped; asks for it and waits if it is not there yet.
    fn memory(&self, memfd: u64) -> Result<Arc<SharedMemory>, FaultCause> {
        let deadline = Instant::now() + self.settings.connect_timeout;
        let mut memories = crate::lock(&self.memories);
        loop {
            match memories.mapped.get(&memfd) {
                Some(Ok(memory)) => return Ok(memory.clone()),
                Some(Err(detail)) => return Err(FaultCause::Denied { detail: detail.clone() }),
                None => {}
            }
            if let Some(cause) = self.lost.get() {
                return Err(cause.clone());
            }
            if !memories.asked.contains(&memfd) {
                memories.asked.push(memfd);
                self.outbox.send(Wire::WantMemory { memfd }.encode(), Vec::new());
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                let detail = format!("peer {:?} did not send its memory file in time", self.peer);
                return Err(FaultCause::LinkLost { peer: self.peer.clone(), detail });
            };
            let wait = left.min(Duration::from_millis(100));
            memories = self.arrived.wait_timeout(memories, wait).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    /// A memory file of the peer that has arrived already.
    pub(super) fn mapped(&self, memfd: u64) -> Option<Arc<SharedMemory>> {
        crate::lock(&self.memories).mapped.get(&memfd)?.as_ref().ok().cloned()
    }

    fn memory_arrived(&self, memfd: u64, len: u64, fd: Option<OwnedFd>) -> Result<(), String> {
        let mut memories = crate::lock(&self.memories);
        if !memories.asked.contains(&memfd) || memories.mapped.contains_key(&memfd) {
            return Err(format!("memory file {memfd} came unasked"));
        }
        let memory = match fd {
            Some(fd) => SharedMemory::import(fd, len).map(Arc::new).map_err(|e| {
                format!(
                    "the memory file of peer {:?} cannot be mapped: {}",
                    self.peer,
                    crate::error_chain(&e)
                )
            }),
            None => Err(format!("peer {:?} no longer has memory file {memfd}", self.peer)),
        };
        memories.mapped.insert(memfd, memory);
        drop(memories);
        self.arrived.notify_all();
        Ok(())
    }

    /// Takes in a memory file that the peer sends along with a declaration.
    pub(super) fn memory_declared(&self, memfd: u64, len: u64, fd: OwnedFd) -> Result<(), String> {
        crate::lock(&self.memories).asked.push(memfd);
        self.memory_arrived(memfd, len, Some(fd))
    }

    fn send_memory(&self, memfd: u64) {
        match self.registry.allocs().memory(memfd) {
            Some(memory) => match memory.fd().try_clone_to_owned() {
                Ok(fd) => {
                    self.outbox.send(Wire::Memory { memfd, len: memory.len() }.encode(), vec![Arc::new(fd)])
                }
                Err(error) => {
                    tracing::warn!(target: "kvferry::peer", peer = %self.peer, "no descriptor for a memory file: {error}");
                    self.outbox.send(Wire::Memory { memfd, len: 0 }.encode(), Vec::new());
                }
            },
            None => self.outbox.send(Wire::Memory { memfd, len: 0 }.encode(), Vec::new()),
        }
    }
}

impl Link for SameHostLink {
    fn path(&self) -> Path {
        self.router.path
    }

    fn report(&self, local: &[Arc<LocalRegion>], remote: &[RemoteRegion]) -> Vec<PathReport> {
        let local = local.iter().map(|r| Class::of_local(r));
        self.router.report(local, remote.iter().map(Class::of_remote))
    }

    fn carries(&self, local: &LocalRegion, remote: &RemoteRegion) -> bool {
        self.router.choose(Class::of_local(local), Class::of_remote(remote), u64::MAX).is_ok()
    }

    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        let Some(me) = self.me.upgrade() else { return Ok(Vec::new()) };
        if let Some(cause) = self.lost.get() {
            return Err(AdmitError::Lost(cause.clone()));
        }
        let mut routes = Routes::choose(&self.router, &request, self.pid);
        let used = routes.check(&self.router, &request.plan).map_err(|no| AdmitError::NoRoute {
            local: no.local,
            remote: no.remote,
            why_not: no.why_not,
        })?;
        for (slot, memfd, offset) in routes.wanted(&request.remote) {
            routes.map(slot, self.memory(memfd).map_err(AdmitError::Lost)?, offset);
        }
        let (by_us, by_target) = routes.bytes(&request.plan, &used);
        let routes = Arc::new(routes);
        let mut ops: Vec<Arc<dyn LinkOp>> = Vec::new();
        let (initiated, delegated) = split(&used);
        if let Some(way) = initiated {
            ops.push(LocalOp::new(me.clone(), request.clone(), routes.clone(), way, by_us));
        }
        if let Some(way) = delegated {
            for region in request.local.iter() {
                self.declare(region);
            }
            ops.push(DelegatedOp::new(me, request, routes, way, by_target));
        }
        Ok(ops)
    }

    fn message(&self, message: Message) -> Result<(), String> {
        let mut fds = message.fds.into_iter();
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        match Wire::decode(&message.body)? {
            Wire::WantMemory { memfd } => {
                self.send_memory(memfd);
                Ok(())
            }
            Wire::Memory { memfd, len } => self.memory_arrived(memfd, len, fds.next()),
            Wire::Declare { region, addr, len, memory } => {
                self.served.declare(self, region, addr, len, memory, fds.next())
            }
            Wire::Copy { op, attempt, write, last, segments } => {
                self.served.copy(&me, op, attempt, write, last, segments)
            }
            Wire::Stop { op, attempt } => {
                self.served.stop(self, op, attempt);
                Ok(())
            }
            Wire::Copied { op, attempt, segments } => self.delegations.copied(op, attempt, segments),
            Wire::Done { op, attempt } => {
                self.delegations.done(op, attempt);
                Ok(())
            }
            Wire::Failed { op, attempt, fault } => {
                self.delegations.failed(op, attempt, fault);
                Ok(())
            }
            Wire::Stopped { op, attempt } => {
                self.delegations.stopped(op, attempt);
                Ok(())
            }
            Wire::Attach(_) | Wire::Attached(_) | Wire::Probed { .. } => {
                Err("an attach message after the link was ready".into())
            }
        }
    }

    fn revoke(&self, scope: RevokeScope) -> u64 {
        if scope.all {
            // What we copy for the peer touches our memory as well.
            self.served.stop_all();
        }
        // Bump, note and tell under one lock, so that the peer hears of the epochs in their order.
        let mut revocations = crate::lock(&self.revocations);
        for piece in scope.split() {
            let epoch = kvferry_sys::revoke(self.page.epoch(self.side));
            // A peer may scribble over the word; then it is at fault, and its connection ends over the order of the epochs.
            let deadline = Instant::now() + self.settings.cancel_timeout;
            if let Err(error) = revocations.begin(epoch, piece.clone(), deadline) {
                tracing::warn!(target: "kvferry::control", peer = %self.peer, "the link page is damaged: {error}");
            }
            self.outbox.revoked(epoch, piece);
        }
        revocations.epoch()
    }

    fn is_quiet(&self, epoch: u64) -> bool {
        if !self.served.is_quiet() {
            return false;
        }
        let mut revocations = crate::lock(&self.revocations);
        let words = self.page.busy(self.side.other());
        let words: [u64; COPIERS] = std::array::from_fn(|i| words[i].load(SeqCst));
        revocations.on_busy_words(&words);
        if revocations.outcome(epoch, Instant::now()) != Outcome::Quiet && self.process_is_gone() {
            revocations.on_copier_dead();
        }
        while revocations.poll_quiet().is_some() {}
        revocations.outcome(epoch, Instant::now()) == Outcome::Quiet
    }

    fn acknowledge(&self, epoch: u64, scope: &RevokeScope) -> Acknowledge {
        self.served.revoked(scope);
        self.acknowledged.store(epoch, SeqCst);
        self.resume();
        // Our busy words say what still runs; the peer does not go by our word.
        Acknowledge::Now
    }

    fn lost(&self, cause: FaultCause) {
        let _ = self.lost.set(cause);
        self.arrived.notify_all();
        self.served.stop_all();
        self.delegations.lost();
        self.resume();
    }

    fn linger(&self) -> bool {
        self.delegations.linger()
    }

    fn liveness(&self) -> Option<Liveness> {
        Some(Liveness { page: self.page.clone(), ours: self.side })
    }
}

impl SameHostLink {
    /// Tells the target of a region that segments will name; once a region.
    fn declare(&self, region: &LocalRegion) {
        if !self.delegations.first_use(region.id()) {
            return;
        }
        let mut fds = Vec::new();
        let memory = match region.backing() {
            Backing::Shared { memory, memfd, offset } => {
                if self.delegations.first_memory(*memfd) {
                    fds.extend(memory.fd().try_clone_to_owned().map(Arc::new));
                }
                Some((*memfd, *offset, memory.len()))
            }
            Backing::Private { .. } => None,
        };
        let declare =
            Wire::Declare { region: region.id().0, addr: region.desc().addr, len: region.desc().len, memory };
        self.outbox.send(declare.encode(), fds);
        // Deregistered meanwhile: that revocation may have gone out before this.
        if region.is_gone() {
            self.revoke(RevokeScope::regions([region.id()]));
        }
    }
}

impl fmt::Debug for SameHostLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SameHostLink")
            .field("peer", &self.peer)
            .field("side", &self.side)
            .field("pid", &self.pid)
            .field("active", &self.active)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}
