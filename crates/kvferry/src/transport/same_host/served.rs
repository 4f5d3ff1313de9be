use std::{
    collections::{HashMap, VecDeque},
    fmt,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use kvferry_proto::{ChunkLimits, RegionId, RevokeScope};
use kvferry_sys::{ChunkGate, Direction, GateState, RegionSlice, RemoteSlice, SharedMemory};

use super::{
    copy::{ChunkCopy, Far, side_of},
    link::{Entry, SameHostLink},
    message::{Wire, WireFault, WireSegment},
    pool::{Copier, Step, Work},
};
use crate::{error::FaultSide, region::LocalRegion};

/// Regions that one peer may declare.
const MAX_REGIONS: usize = 1 << 20;
/// Operations of one peer at once.
const MAX_OPS: usize = 64;
/// Segments of one peer that wait here.
const MAX_SEGMENTS: usize = 1 << 18;

/// What we execute for one peer: its operations, and its regions as it has declared them.
#[derive(Debug, Default)]
pub(super) struct Served {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    regions: HashMap<u64, Declared>,
    ops: HashMap<u64, Arc<ServedOp>>,
    stopped: bool,
}

/// A region of the initiator.
#[derive(Clone, Debug)]
struct Declared {
    addr: u64,
    len: u64,
    memory: Option<(Arc<SharedMemory>, u64)>,
    revoked: Arc<AtomicBool>,
}

/// A segment with both ends found and checked, or what is left of it.
#[derive(Clone, Debug)]
struct Resolved {
    near: RegionSlice,
    own: Arc<LocalRegion>,
    far: Far,
    /// Address of the far end in the initiator's address space.
    initiator: u64,
    revoked: Arc<AtomicBool>,
    len: u64,
    block: u64,
}

impl Resolved {
    /// Takes the first `len` bytes off; `None` if it has no more than that.
    fn cut(&mut self, len: u64) -> Option<Self> {
        let left = self.len.checked_sub(len).filter(|left| *left > 0)?;
        let part = |far: &Far, from: u64, len: u64| match far {
            Far::Process { pid, slice } => {
                Some(Far::Process { pid: *pid, slice: RemoteSlice { addr: slice.addr + from, len } })
            }
            Far::Mapped(slice) => slice.slice(from, len).map(Far::Mapped),
        };
        let first =
            Self { near: self.near.slice(0, len)?, far: part(&self.far, 0, len)?, len, ..self.clone() };
        (self.near, self.far) = (self.near.slice(len, left)?, part(&self.far, len, left)?);
        self.initiator += len;
        self.len = left;
        Some(first)
    }
}

impl Served {
    pub(super) fn declare(
        &self,
        link: &SameHostLink,
        region: u64,
        addr: u64,
        len: u64,
        memory: Option<(u64, u64, u64)>,
        fd: Option<OwnedFd>,
    ) -> Result<(), String> {
        if addr.checked_add(len).is_none() {
            return Err(format!("region {region} wraps around"));
        }
        let memory = match memory {
            None => None,
            Some((memfd, offset, file_len)) => {
                if let Some(fd) = fd {
                    link.memory_declared(memfd, file_len, fd)?;
                }
                let memory =
                    link.mapped(memfd).ok_or("a region lies in a memory file that cannot be mapped")?;
                memory.slice(offset, len).ok_or("a region does not lie inside its memory file")?;
                Some((memory, offset))
            }
        };
        let mut state = crate::lock(&self.state);
        if state.regions.len() >= MAX_REGIONS || state.regions.contains_key(&region) {
            return Err(format!("region {region} is declared twice, or one too many"));
        }
        state
            .regions
            .insert(region, Declared { addr, len, memory, revoked: Arc::new(AtomicBool::new(false)) });
        Ok(())
    }

    pub(super) fn copy(
        &self,
        link: &Arc<SameHostLink>,
        op: u64,
        attempt: u32,
        write: bool,
        last: bool,
        segments: Vec<WireSegment>,
    ) -> Result<(), String> {
        let mut state = crate::lock(&self.state);
        if state.stopped {
            return Ok(());
        }
        let waiting: usize = state.ops.values().map(|o| crate::lock(&o.queue).len()).sum();
        if waiting + segments.len() > MAX_SEGMENTS {
            return Err("more segments than the window allows".into());
        }
        let served = match state.ops.get(&op) {
            Some(served) if served.attempt == attempt => served.clone(),
            None if state.ops.len() >= MAX_OPS => return Err("too many operations at once".into()),
            older => {
                // An older attempt that the initiator has found quiet: it may not have come round to saying so itself.
                let older = older.cloned();
                let served = ServedOp::new(link, op, attempt, write);
                state.ops.insert(op, served.clone());
                if let Some(older) = older {
                    drop(state);
                    older.stop(None);
                    state = crate::lock(&self.state);
                }
                served
            }
        };
        if served.last.load(SeqCst) {
            return Err(format!("segments after the last of operation {op}"));
        }
        let mut resolved = Vec::with_capacity(segments.len());
        for segment in &segments {
            match state.resolve(link, segment) {
                Ok(segment) => resolved.push(segment),
                Err(fault) => {
                    drop(state);
                    served.stop(Some(fault));
                    return Ok(());
                }
            }
        }
        drop(state);
        crate::lock(&served.queue).extend(resolved);
        served.last.store(last, SeqCst);
        if link.pool().enqueue(served.handle(), &served.queued).is_err() {
            served.stop(Some(WireFault::Other("the copy queue is full".into())));
        }
        Ok(())
    }

    pub(super) fn stop(&self, link: &SameHostLink, op: u64, attempt: u32) {
        let found = crate::lock(&self.state).ops.get(&op).filter(|o| o.attempt == attempt).cloned();
        match found {
            Some(served) => served.stop(None),
            // It has ended: the answer is on its way, and the initiator ignores this one if it is.
            None => link.outbox.send(Wire::Stopped { op, attempt }.encode(), Vec::new()),
        }
    }

    /// The initiator has taken regions back.
    pub(super) fn revoked(&self, scope: &RevokeScope) {
        let mut state = crate::lock(&self.state);
        let gone = |id: &u64| scope.all || scope.regions.contains(&RegionId(*id));
        state.regions.retain(|id, declared| {
            let gone = gone(id);
            if gone {
                declared.revoked.store(true, SeqCst);
            }
            !gone
        });
    }

    pub(super) fn stop_all(&self) {
        let ops: Vec<_> = {
            let mut state = crate::lock(&self.state);
            state.stopped = true;
            state.regions.clear();
            state.ops.values().cloned().collect()
        };
        ops.iter().for_each(|op| op.stop(None));
    }

    /// Whether nothing is being copied for the peer that was to stop.
    pub(super) fn is_quiet(&self) -> bool {
        let state = crate::lock(&self.state);
        !state.stopped || state.ops.is_empty()
    }

    fn forget(&self, op: u64, attempt: u32) {
        let mut state = crate::lock(&self.state);
        if state.ops.get(&op).is_some_and(|o| o.attempt == attempt) {
            state.ops.remove(&op);
        }
    }
}

impl State {
    fn resolve(&self, link: &SameHostLink, s: &WireSegment) -> Result<Resolved, WireFault> {
        let other = |detail: &str| WireFault::Other(detail.into());
        let declared = self.regions.get(&s.initiator).ok_or(WireFault::Gone { initiators: true })?;
        let inside = s.initiator_offset.checked_add(s.len).is_some_and(|end| end <= declared.len);
        if !inside {
            return Err(other("a segment leaves the initiator's region"));
        }
        let addr = declared.addr + s.initiator_offset;
        let far = match &declared.memory {
            Some((memory, offset)) => Far::Mapped(
                memory
                    .slice(offset + s.initiator_offset, s.len)
                    .ok_or_else(|| other("a segment leaves its memory file"))?,
            ),
            None => Far::Process {
                pid: link.pid().ok_or_else(|| other("the initiator's process is not visible here"))?,
                slice: RemoteSlice { addr, len: s.len },
            },
        };
        let own = link.registry().get(RegionId(s.target)).filter(|r| r.key().0 == s.target_key);
        let own = own.ok_or(WireFault::Gone { initiators: false })?;
        let near = s
            .target_offset
            .checked_add(own.desc().addr)
            .and_then(|addr| own.slice(addr, s.len))
            .ok_or_else(|| other("a segment leaves the target's region"))?;
        Ok(Resolved {
            near,
            own,
            far,
            initiator: addr,
            revoked: declared.revoked.clone(),
            len: s.len,
            block: s.block,
        })
    }
}

/// An operation of the peer that our threads copy.
pub(super) struct ServedOp {
    link: Weak<SameHostLink>,
    id: u64,
    attempt: u32,
    direction: Direction,
    handle: OnceLock<u64>,
    queue: Mutex<VecDeque<Resolved>>,
    last: AtomicBool,
    gate: ChunkGate,
    queued: AtomicBool,
    ended: AtomicBool,
    failure: Mutex<Option<WireFault>>,
    validated: AtomicU64,
}

impl ServedOp {
    fn new(link: &Arc<SameHostLink>, id: u64, attempt: u32, write: bool) -> Arc<Self> {
        let op = Arc::new(Self {
            link: Arc::downgrade(link),
            id,
            attempt,
            direction: if write { Direction::Read } else { Direction::Write },
            handle: OnceLock::new(),
            queue: Mutex::default(),
            last: AtomicBool::new(false),
            gate: ChunkGate::new(),
            queued: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            failure: Mutex::default(),
            validated: AtomicU64::new(0),
        });
        let weak: Weak<dyn Work> = Arc::downgrade(&(op.clone() as Arc<dyn Work>));
        let _ = op.handle.set(link.pool().adopt(weak));
        op
    }

    fn handle(&self) -> u64 {
        self.handle.get().copied().unwrap_or_default()
    }

    /// Goes no further, for this reason if there is one.
    fn stop(&self, fault: Option<WireFault>) {
        if let Some(fault) = fault {
            crate::lock(&self.failure).get_or_insert(fault);
        }
        self.settle(self.gate.stop());
    }

    fn settle(&self, state: GateState) {
        if state == GateState::Pending || self.ended.swap(true, SeqCst) {
            return;
        }
        let Some(link) = self.link.upgrade() else { return };
        link.served().forget(self.id, self.attempt);
        let (op, attempt) = (self.id, self.attempt);
        let answer = match (state, crate::lock(&self.failure).take()) {
            (GateState::Finished, _) => Wire::Done { op, attempt },
            (_, Some(fault)) => Wire::Failed { op, attempt, fault },
            (_, None) => Wire::Stopped { op, attempt },
        };
        link.outbox.send(answer.encode(), Vec::new());
    }

    fn chunk(self: &Arc<Self>, link: &Arc<SameHostLink>, copier: &mut Copier<'_>) -> Step {
        let Some(ours) = copier.pool.board.enter(copier.slot, || true) else { return Step::Leave };
        let theirs = match link.enter(copier.slot, &self.validated, || true) {
            Entry::Go(guard) => guard,
            Entry::Stalled => {
                drop(ours);
                return link.stall(self.handle(), self.clone());
            }
            Entry::Revoked | Entry::Lost(_) => {
                self.stop(Some(WireFault::Other("the link is gone".into())));
                return Step::Leave;
            }
        };
        let mut segments = Vec::new();
        // Segments that end in this chunk, of which the initiator hears.
        let mut ended = 0;
        let left = {
            let mut queue = crate::lock(&self.queue);
            let ChunkLimits { max_vectors, max_bytes } = ChunkLimits::default();
            let mut room = max_bytes;
            while segments.len() < max_vectors
                && room > 0
                && let Some(next) = queue.front_mut()
            {
                // However long a segment is, a chunk of it is over soon.
                let part = next.cut(room);
                ended += u32::from(part.is_none());
                let Some(segment) = part.or_else(|| queue.pop_front()) else { break };
                room -= segment.len;
                segments.push(segment);
            }
            !queue.is_empty()
        };
        // Asked after the queue: whatever came before the mark is in what was taken.
        if !left && self.last.load(SeqCst) && crate::lock(&self.queue).is_empty() {
            self.gate.exhaust();
        }
        if segments.is_empty() {
            return Step::Leave;
        }
        let shared = !left || copier.share(self.handle(), &self.queued);
        crate::testing::pause(crate::testing::Point::BeforeCopy);
        self.copy(copier, &segments);
        drop((theirs, ours));
        if ended > 0 {
            let copied = Wire::Copied { op: self.id, attempt: self.attempt, segments: ended };
            link.outbox.send(copied.encode(), Vec::new());
        }
        if shared { Step::Leave } else { Step::Again }
    }

    fn copy(&self, copier: &mut Copier<'_>, segments: &[Resolved]) {
        // Both flags are set before the epoch moves under which we hold the busy words.
        for s in segments {
            let (ours, theirs) = (s.own.is_gone(), s.revoked.load(SeqCst));
            if ours || theirs {
                return self.stop(Some(WireFault::Gone { initiators: theirs }));
            }
        }
        let mut copy = ChunkCopy::new(&mut copier.buffers.lists, self.direction);
        let pushed = segments.iter().enumerate().try_for_each(|(i, s)| copy.push(i, s.near, s.far));
        let Err(failed) = pushed.and_then(|()| copy.flush()) else { return };
        let fault = match (failed.error, segments.get(failed.segment)) {
            (kvferry_sys::CmaError::Fault { side, offset, .. }, Some(s)) => {
                let initiators = side_of(side, FaultSide::Remote) == FaultSide::Local;
                let start = if initiators { s.initiator } else { s.near.addr() };
                WireFault::Unmapped { initiators, block: s.block, addr: start.saturating_add(offset) }
            }
            (error, _) => WireFault::Other(error.to_string()),
        };
        self.stop(Some(fault));
    }
}

impl Work for ServedOp {
    fn run(self: Arc<Self>, copier: &mut Copier<'_>) -> Step {
        let Some(link) = self.link.upgrade() else { return Step::Leave };
        if !self.gate.enter() {
            return Step::Leave;
        }
        let step = self.chunk(&link, copier);
        self.settle(self.gate.exit());
        step
    }

    fn queued(&self) -> &AtomicBool {
        &self.queued
    }
}

impl Drop for ServedOp {
    fn drop(&mut self) {
        if let Some(link) = self.link.upgrade() {
            link.pool().disown(self.handle());
        }
    }
}

impl fmt::Debug for ServedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedOp")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .field("handle", &self.handle.get())
            .field("waiting", &crate::lock(&self.queue).len())
            .field("ended", &self.ended.load(Relaxed))
            .finish_non_exhaustive()
    }
}
