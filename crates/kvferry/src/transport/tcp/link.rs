use std::{
    collections::{HashMap, VecDeque},
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use rustix::net::RecvFlags;

use kvferry_proto::{ChannelKey, RemoteRegion, RevokeScope, StreamKind};

use super::{
    frame::{self, OutFrame},
    io::IoThreads,
    message::Wire,
    op::{FAIL_REGION, WireOp},
    stream::Halves,
};
use crate::{
    error::{FaultCause, LostCause},
    path::{Executor, Mechanism, Path, PathReport, Route, WhyNot},
    region::LocalRegion,
    registry::Registry,
    settings::Settings,
    transport::{
        Acknowledge, AdmitError, ControlSocket, Link, LinkOp, Message, OpRequest, Outbox, same_host::Board,
    },
};

mod streams;

/// Chunks that may be asked for over one link.
const READS: usize = 64;

/// Stopped attempts that a target remembers.
const MAX_BARRED: usize = 1 << 16;

/// A peer over data streams: one epoch, which dies as a whole.
pub(super) struct TcpLink {
    me: Weak<Self>,
    pub(super) id: [u8; 16],
    pub(super) peer: String,
    pub(super) initiator: bool,
    pub(super) streams: u8,
    key: ChannelKey,
    /// Where the data streams lead, for messages.
    pub(super) address: Option<SocketAddr>,
    /// The control channel: what waits there comes before any data.
    control: ControlSocket,
    pub(super) outbox: Outbox,
    pub(super) registry: Arc<Registry>,
    settings: Arc<Settings>,
    board: Arc<Board>,
    threads: Arc<IoThreads>,
    last_op: AtomicU64,
    ops: Mutex<HashMap<u64, Weak<WireOp>>>,
    sendable: Mutex<VecDeque<Weak<WireOp>>>,
    reading: AtomicUsize,
    /// The initiator's streams that are open, for those who post and wait.
    opened: Vec<Mutex<Option<Arc<Halves>>>>,
    /// Small frames that a stream is to send, by stream.
    extra: Vec<Mutex<VecDeque<OutFrame>>>,
    /// Target: attempts that were stopped, with the streams that have not said yet that nothing of them follows.
    barred: Mutex<HashMap<u64, (u32, u8)>>,
    /// Set once nothing of the peer may touch our memory any more.
    closed: AtomicBool,
    arrived: Mutex<u32>,
    revocations: Mutex<Revocations>,
    lost: OnceLock<FaultCause>,
}

/// The last revocation: its epoch as the peer is told, and that of our own board, which says when it is quiet.
#[derive(Default)]
struct Revocations {
    epoch: u64,
    ours: u64,
}

/// What a link is made from.
pub(super) struct Parts {
    pub(super) id: [u8; 16],
    pub(super) peer: String,
    pub(super) initiator: bool,
    pub(super) streams: u8,
    pub(super) key: ChannelKey,
    pub(super) address: Option<SocketAddr>,
    pub(super) control: ControlSocket,
    pub(super) outbox: Outbox,
    pub(super) registry: Arc<Registry>,
    pub(super) settings: Arc<Settings>,
    pub(super) board: Arc<Board>,
    pub(super) threads: Arc<IoThreads>,
}

impl TcpLink {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            id: parts.id,
            peer: parts.peer,
            initiator: parts.initiator,
            streams: parts.streams,
            key: parts.key,
            address: parts.address,
            control: parts.control,
            outbox: parts.outbox,
            registry: parts.registry,
            settings: parts.settings,
            board: parts.board,
            threads: parts.threads,
            last_op: AtomicU64::new(0),
            ops: Mutex::default(),
            sendable: Mutex::default(),
            reading: AtomicUsize::new(0),
            opened: (0..parts.streams).map(|_| Mutex::default()).collect(),
            extra: (0..parts.streams).map(|_| Mutex::default()).collect(),
            barred: Mutex::default(),
            closed: AtomicBool::new(false),
            arrived: Mutex::new(0),
            revocations: Mutex::default(),
            lost: OnceLock::new(),
        })
    }

    // The initiator's transfers.

    pub(super) fn next_op(&self) -> u64 {
        self.last_op.fetch_add(1, SeqCst) + 1
    }

    pub(super) fn is_open(&self) -> bool {
        self.lost.get().is_none()
    }

    pub(super) fn adopt(&self, op: &Arc<WireOp>) {
        crate::lock(&self.ops).insert(op.id(), Arc::downgrade(op));
        if let Some(cause) = self.lost.get() {
            // Lost between the look of the engine and here.
            let closed = is_closed(cause);
            op.link_lost(closed);
        }
    }

    pub(super) fn forget(&self, op: u64) {
        crate::lock(&self.ops).remove(&op);
    }

    pub(super) fn op(&self, op: u64) -> Option<Arc<WireOp>> {
        crate::lock(&self.ops).get(&op)?.upgrade()
    }

    /// Puts a transfer at the end of the queue and wakes the streams.
    pub(super) fn enqueue(&self, op: &Arc<WireOp>) {
        if !op.queued().swap(true, SeqCst) {
            crate::lock(&self.sendable).push_back(Arc::downgrade(op));
        }
        self.threads.wake();
    }

    pub(super) fn wake(&self) {
        self.threads.wake();
    }

    /// Takes the transfer whose turn it is.
    pub(super) fn dequeue(&self) -> Option<Arc<WireOp>> {
        loop {
            let op = crate::lock(&self.sendable).pop_front()?;
            if let Some(op) = op.upgrade() {
                op.queued().store(false, SeqCst);
                return Some(op);
            }
        }
    }

    /// Puts a transfer back that could not go now; nobody is woken.
    pub(super) fn put_back(&self, op: &Arc<WireOp>) {
        if !op.queued().swap(true, SeqCst) {
            crate::lock(&self.sendable).push_front(Arc::downgrade(op));
        }
    }

    pub(super) fn may_read(&self) -> bool {
        self.reading.load(SeqCst) < READS
    }

    pub(super) fn read_begun(&self) {
        self.reading.fetch_add(1, SeqCst);
    }

    pub(super) fn reads_over(&self, count: usize) {
        if count > 0 && self.reading.fetch_sub(count, SeqCst) >= READS {
            self.threads.wake();
        }
    }

    /// Asks the target to stop an attempt, and tells it on each stream when nothing more of it follows.
    pub(super) fn stop_remote(&self, op: u64, attempt: u32) {
        self.outbox.send(Wire::Stop { op, attempt }.encode(), Vec::new());
        for extra in &self.extra {
            crate::lock(extra).push_back(frame::small(StreamKind::Drop, 0, op, attempt, 0, &[]));
        }
        self.threads.wake();
    }

    /// The next small frame of a stream.
    pub(super) fn extra(&self, stream: u8) -> Option<OutFrame> {
        crate::lock(self.extra.get(usize::from(stream))?).pop_front()
    }

    // The target's side.

    /// Memory that the peer reads went away in the midst of a frame: its transfer fails, and it stops the attempt.
    pub(super) fn spoiled(&self, op: u64, attempt: u32) {
        self.outbox.send(Wire::Spoiled { op, attempt }.encode(), Vec::new());
    }

    /// Whether an attempt was stopped, or everything was.
    pub(super) fn is_barred(&self, op: u64, attempt: u32) -> bool {
        self.closed.load(SeqCst) || self.is_stopped(op, attempt)
    }

    /// Whether the peer has stopped an attempt, and so discards what still comes of it.
    pub(super) fn is_stopped(&self, op: u64, attempt: u32) -> bool {
        crate::lock(&self.barred).get(&op).is_some_and(|(stopped, _)| attempt <= *stopped)
    }

    fn bar(&self, op: u64, attempt: u32) -> Result<(), String> {
        let mut barred = crate::lock(&self.barred);
        if barred.len() >= MAX_BARRED {
            return Err("too many stopped transfers that are still under way".into());
        }
        barred.insert(op, (attempt, self.streams));
        Ok(())
    }

    /// A stream says that nothing more of an attempt follows on it.
    pub(super) fn dropped(&self, op: u64, attempt: u32) {
        let mut barred = crate::lock(&self.barred);
        if let Some((stopped, left)) = barred.get_mut(&op)
            && *stopped == attempt
        {
            *left -= 1;
            if *left == 0 {
                barred.remove(&op);
            }
        }
    }

    /// Whether something waits on the control channel, which has to be heard before data is taken in.
    pub(super) fn control_waits(&self) -> bool {
        // In this order: bytes that are gone from the socket were taken under the flag, and what they say is carried out before
        // the flag is cleared. The end of the channel counts as well.
        let silent = || {
            let peeked = rustix::net::recv(&self.control.fd, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            matches!(peeked, Err(rustix::io::Errno::AGAIN))
        };
        !silent() || self.control.listening.load(SeqCst)
    }
}

impl Link for TcpLink {
    fn path(&self) -> Path {
        Path::Tcp
    }

    fn has_streams(&self) -> bool {
        true
    }

    fn report(&self, _: &[Arc<LocalRegion>], _: &[RemoteRegion]) -> Vec<PathReport> {
        let refusal =
            self.settings.refusal("same_host", "map").or_else(|| self.settings.refusal("same_host", "cma"));
        let reason = refusal.unwrap_or_else(|| "the peer is not on this host, or cannot be met there".into());
        vec![PathReport {
            local: "any memory",
            remote: "any memory",
            route: Some(Route {
                path: Path::Tcp,
                mechanism: Mechanism::Stream,
                executor: Executor::Initiator,
            }),
            why_not: vec![WhyNot { way: "same_host", reason }],
        }]
    }

    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        let Some(me) = self.me.upgrade() else { return Ok(Vec::new()) };
        if let Some(cause) = self.lost.get() {
            return Err(AdmitError::Lost(cause.clone()));
        }
        if request.plan.blocks() == 0 {
            return Ok(Vec::new());
        }
        Ok(vec![WireOp::new(me, request)])
    }

    fn message(&self, message: Message) -> Result<(), String> {
        match (Wire::decode(&message.body)?, self.initiator) {
            (Wire::Complete, true) => Ok(()),
            (Wire::Stop { op, attempt }, false) => {
                self.bar(op, attempt)?;
                self.threads.wake();
                // Whoever is in a receive for it has begun before: when all threads have been elsewhere, nobody is.
                let outbox = self.outbox.clone();
                self.threads.barrier(move || {
                    outbox.send(Wire::Stopped { op, attempt }.encode(), Vec::new());
                });
                Ok(())
            }
            (Wire::Stopped { op, attempt }, true) => {
                if let Some(op) = self.op(op) {
                    op.stopped(attempt);
                }
                Ok(())
            }
            (Wire::Spoiled { op, attempt }, true) => {
                if let Some(op) = self.op(op) {
                    op.refused(attempt, 0, FAIL_REGION, String::new());
                }
                Ok(())
            }
            _ => Err("a transport message out of place".into()),
        }
    }

    fn revoke(&self, scope: RevokeScope) -> u64 {
        // All our memory that this peer reaches is touched by our own threads, which the board knows.
        if scope.all {
            self.closed.store(true, SeqCst);
        }
        // Under one lock, so that the peer hears of the epochs in their order.
        let mut revocations = crate::lock(&self.revocations);
        revocations.ours = self.board.revoke();
        for piece in scope.split() {
            revocations.epoch += 1;
            self.outbox.revoked(revocations.epoch, piece);
        }
        revocations.epoch
    }

    fn is_quiet(&self, _: u64) -> bool {
        self.board.is_quiet(crate::lock(&self.revocations).ours)
    }

    fn acknowledge(&self, _: u64, _: &RevokeScope) -> Acknowledge {
        Acknowledge::Now
    }

    fn superseded(&self) {
        let ops: Vec<_> = crate::lock(&self.ops).values().filter_map(Weak::upgrade).collect();
        ops.iter().for_each(|op| op.link_lost(true));
    }

    fn lost(&self, cause: FaultCause) {
        let closed = is_closed(&cause);
        if self.lost.set(cause).is_err() {
            return;
        }
        self.closed.store(true, SeqCst);
        let ops: Vec<_> = crate::lock(&self.ops).values().filter_map(Weak::upgrade).collect();
        ops.iter().for_each(|op| op.link_lost(closed));
        self.threads.close(self.id);
    }
}

/// Whether the loss shows that the peer's end is closed: then nothing that is under way can be taken in there.
///
/// Silence shows nothing (the peer may be stopped, and go on), nor does what we have closed ourselves, nor a connection that
/// broke: other streams may still be read at the other end until it has noticed as well.
fn is_closed(cause: &FaultCause) -> bool {
    match cause {
        FaultCause::PeerLost { cause, .. } => matches!(
            cause,
            LostCause::Died | LostCause::Closed | LostCause::Disconnected | LostCause::Unreachable(_)
        ),
        _ => false,
    }
}

impl fmt::Debug for TcpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpLink")
            .field("peer", &self.peer)
            .field("initiator", &self.initiator)
            .field("address", &self.address)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}
