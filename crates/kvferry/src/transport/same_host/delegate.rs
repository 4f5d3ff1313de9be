use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use kvferry_proto::{Chunk, ChunkLimits, Plan, PlanCursor, RegionId, RevokeScope, Segment};

use super::{
    link::SameHostLink,
    message::{BATCH, WINDOW, Wire, WireFault, WireSegment},
    route::Way,
    routes::{Routes, writes},
};
use crate::{
    error::{FaultCause, FaultSide, LostCause},
    path::Route,
    region::LocalRegion,
    transport::{Backlog, Clock, Link, LinkOp, OpRequest, OpSink, RemoteRef, Residue},
};

/// Operations that the peer executes at once; the rest wait here.
const AT_ONCE: usize = 16;

/// A transfer, or the part of one, that the target copies on our behalf.
///
/// All but [`LinkOp::poll_quiet`] and the entry points runs on the control thread.
pub(super) struct DelegatedOp {
    me: Weak<Self>,
    link: Arc<SameHostLink>,
    id: u64,
    write: bool,
    local: Arc<[Arc<LocalRegion>]>,
    remote: Arc<[RemoteRef]>,
    routes: Arc<Routes>,
    route: Route,
    bytes: u64,
    sending: Mutex<Sending>,
    /// Held while an attempt begins, and while one is asked to stop.
    turn: Mutex<()>,
    attempt: AtomicU32,
    open: AtomicBool,
    /// The epoch of our memory since when the peer must not run this any more; 0 while it may.
    barred: AtomicU64,
    clock: Clock,
    sink: Weak<dyn OpSink>,
}

#[derive(Debug)]
struct Sending {
    cursor: PlanCursor,
    chunk: Chunk,
    in_flight: usize,
    complete: bool,
}

impl DelegatedOp {
    pub(super) fn new(
        link: Arc<SameHostLink>,
        request: OpRequest,
        routes: Arc<Routes>,
        way: Way,
        bytes: u64,
    ) -> Arc<Self> {
        let id = link.delegations.next_id();
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            write: writes(request.op),
            sending: Mutex::new(Sending {
                cursor: PlanCursor::new(request.plan),
                chunk: Chunk::default(),
                in_flight: 0,
                complete: false,
            }),
            local: request.local,
            remote: request.remote,
            route: way.route(link.path_of_link()),
            bytes,
            routes,
            turn: Mutex::new(()),
            attempt: AtomicU32::new(0),
            open: AtomicBool::new(false),
            barred: AtomicU64::new(0),
            clock: Clock::new(),
            sink: request.sink,
            link,
        })
    }

    fn attempt(&self) -> u32 {
        self.attempt.load(SeqCst)
    }

    /// Sends segments until the window is full.
    fn pump(&self) {
        let mut sending = crate::lock(&self.sending);
        let limits = ChunkLimits { max_vectors: BATCH, max_bytes: u64::MAX };
        while !sending.complete && sending.in_flight + BATCH <= WINDOW {
            let Sending { cursor, chunk, .. } = &mut *sending;
            let more = cursor.next_chunk(limits, |local, remote| self.routes.delegated(local, remote), chunk);
            let segments = if more { self.wire_segments(chunk) } else { Vec::new() };
            let last = !more || cursor.is_exhausted();
            sending.complete = last;
            sending.in_flight += segments.len();
            self.clock.segments.fetch_add(segments.len() as u64, Relaxed);
            let copy = Wire::Copy { op: self.id, attempt: self.attempt(), write: self.write, last, segments };
            self.link.outbox.send(copy.encode(), Vec::new());
        }
    }

    fn wire_segments(&self, chunk: &Chunk) -> Vec<WireSegment> {
        let wire = |s: &kvferry_proto::Segment| {
            let initiator = &self.local[s.local_slot as usize];
            let target = &self.remote[s.remote_slot as usize].region;
            WireSegment {
                initiator: initiator.id().0,
                initiator_offset: s.local_addr - initiator.desc().addr,
                target: target.id.0,
                target_key: target.key.0,
                target_offset: s.remote_addr - target.desc.addr,
                len: s.len,
                block: s.first_index,
            }
        };
        chunk.segments().iter().map(wire).collect()
    }

    /// Ends the attempt towards the sink; only the first call does anything.
    fn settle(&self, done: bool) {
        if !self.open.swap(false, SeqCst) {
            return;
        }
        self.link.leave();
        self.link.delegations.over(self.id);
        let Some(sink) = self.sink.upgrade() else { return };
        if done {
            sink.done(self.attempt(), self.clock.report());
        } else {
            sink.quiet(self.attempt());
        }
    }

    fn fail(&self, cause: FaultCause) {
        if self.open.load(SeqCst)
            && let Some(sink) = self.sink.upgrade()
        {
            sink.failed(self.attempt(), cause);
        }
    }

    /// Bars the peer from our memory and asks it to stop.
    fn bar(&self) {
        if !self.open.load(SeqCst) || self.barred.load(SeqCst) != 0 {
            return;
        }
        self.link.outbox.send(Wire::Stop { op: self.id, attempt: self.attempt() }.encode(), Vec::new());
        self.barred.store(self.link.revoke(RevokeScope::ops([self.id])), SeqCst);
    }
}

impl LinkOp for DelegatedOp {
    fn submit(&self, attempt: u32) -> Result<(), Backlog> {
        let Some(me) = self.me.upgrade() else { return Err(Backlog) };
        let _turn = crate::lock(&self.turn);
        self.attempt.store(attempt, SeqCst);
        self.barred.store(0, SeqCst);
        self.clock.start();
        self.open.store(true, SeqCst);
        self.link.join();
        self.link.outbox.run(move || me.link.delegations.start(me.clone()));
        Ok(())
    }

    fn request_cancel(&self) {
        let Some(me) = self.me.upgrade() else { return };
        if self.open.load(SeqCst) {
            let attempt = self.attempt();
            self.link.outbox.run(move || me.link.delegations.cancel(&me, attempt));
        }
    }

    fn poll_quiet(&self) {
        let epoch = self.barred.load(SeqCst);
        if epoch != 0 && self.link.is_quiet(epoch) {
            self.settle(false);
        }
    }

    fn residue(&self) -> Residue {
        Residue::Peer
    }

    fn route(&self) -> Route {
        self.route
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Debug for DelegatedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegatedOp")
            .field("id", &self.id)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

/// What an operation fails with; the target knows of a fault only the address and the first block of its segment.
fn fault_cause(plan: &Plan, fault: WireFault) -> FaultCause {
    let side = |initiators| if initiators { FaultSide::Local } else { FaultSide::Remote };
    match fault {
        WireFault::Gone { initiators } => FaultCause::Revoked { side: side(initiators) },
        WireFault::Unmapped { initiators, block: first, addr } => {
            let block = plan.pair(first).and_then(|(local, remote)| {
                let start = if initiators { local.addr } else { remote.addr };
                let segment = Segment {
                    local_slot: 0,
                    local_addr: local.addr,
                    remote_slot: 0,
                    remote_addr: remote.addr,
                    len: 0,
                    first_index: first,
                };
                plan.position_at(&segment, addr.checked_sub(start)?)
            });
            FaultCause::Unmapped { side: side(initiators), block: block.unwrap_or(first), addr }
        }
        WireFault::Other(detail) => FaultCause::Executor { detail },
    }
}

/// What the peer executes for us over one link.
#[derive(Debug, Default)]
pub(super) struct Delegations {
    last_id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<u64, Arc<DelegatedOp>>,
    waiting: VecDeque<Arc<DelegatedOp>>,
    declared: HashSet<RegionId>,
    memories: HashSet<u64>,
    lost: bool,
}

impl Delegations {
    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, SeqCst) + 1
    }

    /// Whether the region has not been declared to the peer yet; it counts as declared from now on.
    pub(super) fn first_use(&self, region: RegionId) -> bool {
        crate::lock(&self.state).declared.insert(region)
    }

    /// The same for a memory file.
    pub(super) fn first_memory(&self, memfd: u64) -> bool {
        crate::lock(&self.state).memories.insert(memfd)
    }

    fn start(&self, op: Arc<DelegatedOp>) {
        let mut state = crate::lock(&self.state);
        if state.lost || !op.open.load(SeqCst) {
            drop(state);
            let detail = "it was lost before the peer began to copy".into();
            op.fail(FaultCause::LinkLost { peer: op.link.peer().into(), detail });
            return op.settle(false);
        }
        if state.running.len() >= AT_ONCE {
            state.waiting.push_back(op);
            return;
        }
        state.running.insert(op.id, op.clone());
        drop(state);
        op.clock.first();
        {
            let mut sending = crate::lock(&op.sending);
            sending.cursor.reset();
            sending.in_flight = 0;
            sending.complete = false;
        }
        op.pump();
    }

    fn cancel(&self, op: &Arc<DelegatedOp>, attempt: u32) {
        // The attempt may have ended, and the next begun, before we came round to this; from here on none begins.
        let turn = crate::lock(&op.turn);
        if op.attempt() != attempt {
            return;
        }
        let mut state = crate::lock(&self.state);
        if let Some(at) = state.waiting.iter().position(|w| w.id == op.id) {
            state.waiting.remove(at);
            drop((state, turn));
            return op.settle(false);
        }
        drop(state);
        op.bar();
        drop(turn);
        op.poll_quiet();
    }

    /// The operation of an answer, if it is about the present attempt.
    fn current(&self, op: u64, attempt: u32) -> Option<Arc<DelegatedOp>> {
        let found = crate::lock(&self.state).running.get(&op).cloned()?;
        (found.attempt() == attempt).then_some(found)
    }

    pub(super) fn copied(&self, op: u64, attempt: u32, segments: u32) -> Result<(), String> {
        let Some(op) = self.current(op, attempt) else { return Ok(()) };
        {
            let mut sending = crate::lock(&op.sending);
            sending.in_flight = sending
                .in_flight
                .checked_sub(segments as usize)
                .ok_or("more segments were reported as copied than were sent")?;
        }
        if op.barred.load(SeqCst) == 0 {
            op.pump();
        }
        Ok(())
    }

    pub(super) fn done(&self, op: u64, attempt: u32) {
        if let Some(op) = self.current(op, attempt) {
            op.settle(true);
        }
    }

    pub(super) fn failed(&self, op: u64, attempt: u32, fault: WireFault) {
        let Some(op) = self.current(op, attempt) else { return };
        let plan = crate::lock(&op.sending).cursor.plan().clone();
        op.fail(fault_cause(&plan, fault));
        op.settle(false);
    }

    pub(super) fn stopped(&self, op: u64, attempt: u32) {
        if let Some(op) = self.current(op, attempt) {
            if op.barred.load(SeqCst) == 0 {
                // Not asked to: it parts with us, as the next that it says will tell.
                op.fail(FaultCause::PeerLost { peer: op.link.peer().into(), cause: LostCause::Disconnected });
            }
            op.settle(false);
        }
    }

    /// An operation runs no more: the next may.
    fn over(&self, op: u64) {
        let next = {
            let mut state = crate::lock(&self.state);
            if state.running.remove(&op).is_none() {
                return;
            }
            state.waiting.pop_front()
        };
        if let Some(next) = next {
            self.start(next);
        }
    }

    /// The link is gone: what waits is quiet, what runs is as soon as the peer's copiers have left our memory.
    pub(super) fn lost(&self) {
        let waiting = {
            let mut state = crate::lock(&self.state);
            state.lost = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(|op| op.settle(false));
        let running: Vec<_> = crate::lock(&self.state).running.values().cloned().collect();
        running.iter().for_each(|op| op.bar());
        self.linger();
    }

    /// Looks whether what ran when the link was lost is quiet now; true once nothing is left.
    pub(super) fn linger(&self) -> bool {
        let running: Vec<_> = crate::lock(&self.state).running.values().cloned().collect();
        running.iter().for_each(|op| op.poll_quiet());
        let mut state = crate::lock(&self.state);
        state.running.retain(|_, op| op.open.load(SeqCst));
        state.running.is_empty()
    }
}
