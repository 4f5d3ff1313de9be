use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, Release, SeqCst},
        },
    },
};

use kvferry_proto::{ChunkLimits, Op, Plan, PlanCursor};
use kvferry_sys::{ChunkGate, Direction, GateState};

use super::{
    copy::{ChunkCopy, cause_of},
    link::{Entry, SameHostLink},
    pool::{Buffers, Copier, Step, Work},
    route::Way,
    routes::Routes,
};
use crate::{
    error::{FaultCause, FaultSide},
    path::Route,
    region::LocalRegion,
    transport::{Backlog, Clock, LinkOp, OpRequest, OpSink, RemoteRef},
};

/// Vectors in a transfer that may be copied by the caller of `post`.
const INLINE_BLOCKS: u64 = 16;

/// A transfer, or the part of one, that the initiator's threads copy.
pub(super) struct LocalOp {
    me: Weak<Self>,
    link: Arc<SameHostLink>,
    handle: OnceLock<u64>,
    direction: Direction,
    plan: Arc<Plan>,
    local: Arc<[Arc<LocalRegion>]>,
    remote: Arc<[RemoteRef]>,
    routes: Arc<Routes>,
    route: Route,
    bytes: u64,
    inline: bool,
    cursor: Mutex<PlanCursor>,
    gate: ChunkGate,
    queued: AtomicBool,
    attempt: AtomicU32,
    /// Set while an attempt owes the sink its end.
    open: AtomicBool,
    /// One more than the revocation epoch of the peer under which all remote regions were found alive.
    validated: AtomicU64,
    clock: Clock,
    sink: Weak<dyn OpSink>,
}

impl LocalOp {
    pub(super) fn new(
        link: Arc<SameHostLink>,
        request: OpRequest,
        routes: Arc<Routes>,
        way: Way,
        bytes: u64,
    ) -> Arc<Self> {
        let inline = bytes <= link.settings().inline_limit && request.plan.blocks() <= INLINE_BLOCKS;
        let op = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            handle: OnceLock::new(),
            direction: match request.op {
                Op::Read => Direction::Read,
                Op::Write => Direction::Write,
            },
            cursor: Mutex::new(PlanCursor::new(request.plan.clone())),
            plan: request.plan,
            local: request.local,
            remote: request.remote,
            routes,
            route: way.route(link.path_of_link()),
            bytes,
            inline,
            gate: ChunkGate::new(),
            queued: AtomicBool::new(false),
            attempt: AtomicU32::new(0),
            open: AtomicBool::new(false),
            validated: AtomicU64::new(0),
            clock: Clock::new(),
            sink: request.sink,
            link,
        });
        let weak: Weak<dyn Work> = Arc::downgrade(&(op.clone() as Arc<dyn Work>));
        let _ = op.handle.set(op.link.pool().adopt(weak));
        op
    }

    fn handle(&self) -> u64 {
        self.handle.get().copied().unwrap_or_default()
    }

    /// Copies a chunk, from inside the gate, and goes out.
    fn step(&self, copier: &mut Copier<'_>) -> Step {
        let step = self.chunk(copier);
        self.settle(self.gate.exit());
        step
    }

    fn chunk(&self, copier: &mut Copier<'_>) -> Step {
        let pool = copier.pool;
        let local_alive = || self.local.iter().all(|r| !r.is_gone());
        let Some(_ours) = pool.board.enter(copier.slot, local_alive) else {
            self.fail(FaultCause::Revoked { side: FaultSide::Local });
            return Step::Leave;
        };
        let remote_alive = || self.remote.iter().all(|r| !r.is_revoked());
        let _theirs = match self.link.enter(copier.slot, &self.validated, remote_alive) {
            Entry::Go(guard) => guard,
            Entry::Stalled => {
                drop(_ours);
                let Some(me) = self.me.upgrade() else { return Step::Leave };
                return self.link.stall(self.handle(), me);
            }
            Entry::Revoked => {
                self.fail(FaultCause::Revoked { side: FaultSide::Remote });
                return Step::Leave;
            }
            Entry::Lost(cause) => {
                self.fail(cause);
                return Step::Leave;
            }
        };
        let last = {
            let mut cursor = crate::lock(&self.cursor);
            let more = cursor.next_chunk(
                ChunkLimits::default(),
                |local, remote| self.routes.initiated(local, remote),
                &mut copier.buffers.chunk,
            );
            if !more {
                self.gate.exhaust();
                return Step::Leave;
            }
            cursor.is_exhausted()
        };
        if last {
            self.gate.exhaust();
        }
        self.clock.first();
        let shared = last || copier.share(self.handle(), &self.queued);
        crate::testing::pause(crate::testing::Point::BeforeCopy);
        self.copy(copier);
        if shared { Step::Leave } else { Step::Again }
    }

    fn copy(&self, copier: &mut Copier<'_>) {
        let Buffers { lists, chunk } = &mut *copier.buffers;
        self.clock.segments.fetch_add(chunk.segments().len() as u64, Relaxed);
        let mut copy = ChunkCopy::new(lists, self.direction);
        let mut copied = Ok(());
        for (i, s) in chunk.segments().iter().enumerate() {
            let near = self.local[s.local_slot as usize].slice(s.local_addr, s.len);
            let region = &self.remote[s.remote_slot as usize].region;
            let far = self.routes.far(s.remote_slot, region, s.remote_addr, s.len);
            // The plan was checked against both regions when it was built, so both are inside.
            let (Some(near), Some(far)) = (near, far) else { continue };
            copied = copied.and_then(|()| copy.push(i, near, far));
        }
        let Err(failed) = copied.and_then(|()| copy.flush()) else { return };
        let Some(s) = chunk.segments().get(failed.segment) else { return };
        let cause =
            cause_of(&failed.error, |offset| self.plan.position_at(s, offset), s.local_addr, s.remote_addr);
        self.fail(cause.unwrap_or_else(|| self.link.peer_died()));
    }

    fn fail(&self, cause: FaultCause) {
        // We are inside the gate, so that somebody's way out reports quiet.
        self.gate.stop();
        if let Some(sink) = self.sink.upgrade() {
            sink.failed(self.attempt.load(SeqCst), cause);
        }
    }

    /// Reports what a step through the gate has brought about.
    fn settle(&self, state: GateState) {
        if state == GateState::Pending || !self.open.swap(false, SeqCst) {
            return;
        }
        self.link.leave();
        let Some(sink) = self.sink.upgrade() else { return };
        let attempt = self.attempt.load(SeqCst);
        match state {
            GateState::Finished => sink.done(attempt, self.clock.report()),
            _ => sink.quiet(attempt),
        }
    }
}

impl Work for LocalOp {
    fn run(self: Arc<Self>, copier: &mut Copier<'_>) -> Step {
        if self.gate.enter() { self.step(copier) } else { Step::Leave }
    }

    fn queued(&self) -> &AtomicBool {
        &self.queued
    }
}

impl LinkOp for LocalOp {
    fn submit(&self, attempt: u32) -> Result<(), Backlog> {
        // Whoever looks at it has come through the gate after this.
        self.attempt.store(attempt, Relaxed);
        crate::lock(&self.cursor).reset();
        let alone = self.link.join() == 0;
        // From here on a copy thread that still holds an old handle may run. We are inside, so that nobody tells the end
        // of the attempt before it is open.
        if !self.gate.reset_and_enter() {
            self.link.leave();
            return Err(Backlog);
        }
        self.open.store(true, Release);
        if self.inline && alone {
            self.clock.start_at_once();
            let copied = self.link.pool().inline(|copier| {
                let mut step = self.step(copier);
                while step == Step::Again && self.gate.enter() {
                    step = self.step(copier);
                }
            });
            if copied.is_some() {
                return Ok(());
            }
        }
        self.clock.start();
        let queued = self.link.pool().enqueue(self.handle(), &self.queued);
        if queued.is_err() {
            self.gate.stop();
            if self.gate.exit() == GateState::Pending {
                // A copy thread has come in with an old handle: the attempt is over when it is out.
                self.fail(FaultCause::Executor { detail: "the copy queue is full".into() });
                return Ok(());
            }
            self.open.store(false, SeqCst);
            self.link.leave();
            return queued;
        }
        self.settle(self.gate.exit());
        Ok(())
    }

    fn request_cancel(&self) {
        self.settle(self.gate.stop());
    }

    fn route(&self) -> Route {
        self.route
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for LocalOp {
    fn drop(&mut self) {
        self.link.pool().disown(self.handle());
        if self.open.swap(false, SeqCst) {
            self.link.leave();
        }
    }
}

impl fmt::Debug for LocalOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalOp")
            .field("route", &self.route)
            .field("blocks", &self.plan.blocks())
            .finish_non_exhaustive()
    }
}
