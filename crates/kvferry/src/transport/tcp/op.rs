use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use kvferry_proto::{Chunk, Op, Plan, PlanCursor, Segment};
use kvferry_sys::{ChunkGate, GateState};

use super::{frame::OutFrame, link::TcpLink};
use crate::{
    error::{FaultCause, FaultSide},
    path::{Executor, Mechanism, Path, Route},
    region::LocalRegion,
    transport::{Backlog, Clock, LinkOp, OpRequest, OpSink, RemoteRef, Residue, Share},
};

mod chunks;

/// Chunks of one transfer that may be on the way.
const WINDOW: usize = 16;

/// Most blocks of a transfer that the thread that posts it may send by itself.
const DIRECT_BLOCKS: u64 = 16;

/// No stream.
const ELSEWHERE: u32 = u32::MAX;

/// Why a chunk failed, as the target says it.
pub(super) const FAIL_REGION: u8 = 1;
pub(super) const FAIL_UNMAPPED: u8 = 2;
pub(super) const FAIL_OTHER: u8 = 3;

/// What a transfer has to send.
pub(super) enum Next {
    /// A frame.
    Frame(OutFrame),
    /// Something, but not now: the link's window is full.
    Later,
    /// Nothing.
    Nothing,
}

/// A transfer over the streams of a link.
///
/// Local memory is touched inside the gate only, by the threads of the streams and by those that post and wait. The target's memory is quiet when all
/// chunks are acknowledged, or when the target says that it has stopped.
pub(super) struct WireOp {
    me: Weak<Self>,
    link: Arc<TcpLink>,
    id: u64,
    op: Op,
    plan: Arc<Plan>,
    share: Share,
    bytes: u64,
    local: Arc<[Arc<LocalRegion>]>,
    remote: Arc<[RemoteRef]>,
    /// Small enough to be sent by the thread that posts it.
    direct: bool,
    /// The stream on which the posting thread has sent the attempt, or [`ELSEWHERE`].
    posted_on: AtomicU32,
    state: Mutex<State>,
    gate: ChunkGate,
    attempt: AtomicU32,
    open: AtomicBool,
    stopping: AtomicBool,
    /// In the link's queue of what has something to send.
    queued: AtomicBool,
    /// A write that was stopped, of which the target has not said yet that it is over.
    unresolved: AtomicBool,
    clock: Clock,
    sink: Weak<dyn OpSink>,
}

struct State {
    cursor: PlanCursor,
    chunk: Chunk,
    next: u32,
    /// Chunks on the way, with their segments.
    outstanding: HashMap<u32, Vec<Segment>>,
    exhausted: bool,
    /// Whether anything was sent that the target may still act upon.
    sent: bool,
    /// No more frames are made. Under the lock, so that whoever stops the transfer knows what was sent.
    stopped: bool,
}

impl WireOp {
    pub(super) fn new(link: Arc<TcpLink>, request: OpRequest) -> Arc<Self> {
        let id = link.next_op();
        let bytes = request.share.bytes(&request.plan);
        let direct = bytes <= link.inline_limit() && request.plan.blocks() <= DIRECT_BLOCKS;
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            op: request.op,
            state: Mutex::new(State {
                cursor: PlanCursor::new(request.plan.clone()),
                chunk: Chunk::new(),
                next: 0,
                outstanding: HashMap::new(),
                exhausted: false,
                sent: false,
                stopped: false,
            }),
            plan: request.plan,
            bytes,
            share: request.share,
            local: request.local,
            remote: request.remote,
            direct,
            posted_on: AtomicU32::new(ELSEWHERE),
            gate: ChunkGate::new(),
            attempt: AtomicU32::new(0),
            open: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            unresolved: AtomicBool::new(false),
            clock: Clock::new(),
            sink: request.sink,
            link,
        })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn attempt(&self) -> u32 {
        self.attempt.load(SeqCst)
    }

    pub(super) fn queued(&self) -> &AtomicBool {
        &self.queued
    }

    /// Permission to touch local memory; `None` once the transfer is stopped.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Inside> {
        self.gate.enter().then(|| Inside(self.clone()))
    }

    /// A local region went away under a frame.
    pub(super) fn local_gone(self: &Arc<Self>) {
        if self.open.load(SeqCst) && self.local.iter().any(|r| r.is_gone()) {
            self.fail(FaultCause::Revoked { side: FaultSide::Local });
        }
    }

    fn fail(self: &Arc<Self>, cause: FaultCause) {
        if let Some(sink) = self.sink.upgrade() {
            sink.failed(self.attempt(), cause);
        }
        // The engine has asked us to stop by now, if anybody listened; else we do it ourselves.
        self.request_cancel();
    }

    /// The target says that nothing of the attempt can land any more.
    pub(super) fn stopped(&self, attempt: u32) {
        if attempt == self.attempt() {
            self.resolve();
        }
    }

    /// The link is lost. What the target may still do is over if its end is known to be closed.
    pub(super) fn link_lost(&self, closed: bool) {
        self.stop_sending();
        if !closed && self.may_land() {
            self.unresolved.store(true, SeqCst);
        }
        self.settle(self.gate.stop());
        if closed {
            self.resolve();
        }
    }

    /// Whether the target has not said yet that it discards what comes of the attempt.
    pub(super) fn is_unresolved(&self) -> bool {
        self.unresolved.load(SeqCst)
    }

    /// Makes no more frames; whether the target has any.
    fn stop_sending(&self) -> bool {
        let mut state = crate::lock(&self.state);
        state.stopped = true;
        state.sent
    }

    /// Whether the target may still take bytes of this attempt in.
    fn may_land(&self) -> bool {
        let state = crate::lock(&self.state);
        self.op == Op::Write && state.sent && !(state.exhausted && state.outstanding.is_empty())
    }

    fn resolve(&self) {
        self.unresolved.store(false, SeqCst);
        // A frame may wait for this.
        self.link.wake();
        if self.gate.is_quiet() {
            self.quiet();
        }
    }

    /// What a step through the gate has brought about.
    fn settle(&self, state: GateState) {
        match state {
            GateState::Pending => {}
            GateState::Finished => {
                if self.open.swap(false, SeqCst) {
                    self.link.forget(self.id);
                    if let Some(sink) = self.sink.upgrade() {
                        sink.done(self.attempt(), self.clock.report());
                    }
                }
            }
            GateState::Quiet if self.unresolved.load(SeqCst) => {}
            GateState::Quiet => self.quiet(),
        }
    }

    fn quiet(&self) {
        if self.open.swap(false, SeqCst) {
            self.link.forget(self.id);
            if self.op == Op::Read {
                let over = std::mem::take(&mut crate::lock(&self.state).outstanding).len();
                self.link.reads_over(over);
            }
            if let Some(sink) = self.sink.upgrade() {
                sink.quiet(self.attempt());
            }
        }
    }
}

impl LinkOp for WireOp {
    fn submit(&self, attempt: u32) -> Result<(), Backlog> {
        let Some(me) = self.me.upgrade() else { return Err(Backlog) };
        self.attempt.store(attempt, SeqCst);
        self.clock.start();
        self.unresolved.store(false, SeqCst);
        self.stopping.store(false, SeqCst);
        {
            let mut state = crate::lock(&self.state);
            state.cursor.reset();
            state.outstanding.clear();
            state.exhausted = false;
            state.sent = false;
            state.stopped = false;
        }
        // We are inside, so that nobody tells the end of the attempt before it is open.
        if !self.gate.reset_and_enter() {
            return Err(Backlog);
        }
        self.open.store(true, SeqCst);
        self.link.adopt(&me);
        let posted = if self.direct { self.link.post(&me) } else { None };
        self.posted_on.store(posted.map_or(ELSEWHERE, u32::from), SeqCst);
        if posted.is_none() {
            self.link.enqueue(&me);
        }
        self.settle(self.gate.exit());
        Ok(())
    }

    fn request_cancel(&self) {
        if !self.open.load(SeqCst) || self.stopping.swap(true, SeqCst) {
            return;
        }
        // The target must not act upon what is under way: it is asked to say when it no longer can. A read writes nothing there.
        let sent = self.stop_sending() && self.link.is_open();
        if sent && self.may_land() {
            self.unresolved.store(true, SeqCst);
        }
        // Closed before the other side hears of it, which may answer with filler from then on.
        let stopped = self.gate.stop();
        if sent {
            self.link.stop_remote(self.id, self.attempt());
        }
        self.settle(stopped);
    }

    fn assist(&self, most: Duration) {
        if let Ok(stream) = u8::try_from(self.posted_on.load(SeqCst)) {
            self.link.assist(stream, most, || !self.open.load(SeqCst));
        }
    }

    fn residue(&self) -> Residue {
        if self.gate.is_quiet() { Residue::Discarded } else { Residue::ThisProcess }
    }

    fn route(&self) -> Route {
        Route { path: Path::Tcp, mechanism: Mechanism::Stream, executor: Executor::Initiator }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for WireOp {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}

impl fmt::Debug for WireOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireOp").field("id", &self.id).field("op", &self.op).finish_non_exhaustive()
    }
}

/// While it lives, a thread may touch the transfer's local memory.
pub(super) struct Inside(Arc<WireOp>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.settle(self.0.gate.exit());
    }
}
