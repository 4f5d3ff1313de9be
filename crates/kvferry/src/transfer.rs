use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, OnceLock, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use kvferry_proto::{Op, Plan, Reservation};
use kvferry_sys::{Phase, StateWord};

use crate::{
    agent::Shared,
    control::Command,
    error::{CancelError, FaultCause, PostError, ReleaseError, TransferFault, WaitTimeout},
    path::Route,
    peer::Peer,
    queue::{CompletionQueue, Event, WeakQueue},
    region::LocalRegion,
    transport::{AdmitError, Link, LinkOp, OpReport, OpRequest, OpSink, RemoteRef, Residue, Share},
};

mod options;
mod table;
mod telemetry;

pub use options::TransferOptions;
pub(crate) use table::TransferTable;
pub use telemetry::Telemetry;
pub(crate) use telemetry::Timing;

/// How long a thread that waits may help before it sleeps; what ends the transfer in another way is seen only afterwards. No
/// shorter than the kernel's tick: to arm a nearer timer costs more than all the rest.
const ASSIST: Duration = Duration::from_millis(5);

/// How far a transfer has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// Never posted.
    Created,
    /// Posted; nothing has been copied yet.
    Posted,
    /// Being copied, or copied with its notification on the way.
    Running,
    /// All bytes are visible where they belong, and the peer's engine has the notification if there is one.
    Done,
    /// Failed. Any subset of the destination bytes may have changed, none outside the blocks; more of them may change until
    /// [`Transfer::cancel`] has returned `Ok`.
    Failed(Arc<TransferFault>),
    /// Cancelled. As with `Failed`, any subset of the destination bytes may have changed, or may yet change.
    Cancelled,
}

impl Status {
    /// Whether the transfer has ended.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_) | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("created"),
            Self::Posted => f.write_str("posted"),
            Self::Running => f.write_str("running"),
            Self::Done => f.write_str("done"),
            Self::Failed(fault) => write!(f, "failed: {fault}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// A transfer: posted as often as one likes, one attempt at a time.
///
/// Dropping it starts its cancel and never blocks; its memory is let go when it is quiet. The registrations that it
/// touches live for as long. Until then a WRITE that was dropped may still land at the peer: [`cancel`](Self::cancel) it
/// before the same blocks are written again.
#[derive(Debug)]
pub struct Transfer {
    core: Arc<TransferCore>,
}

impl Transfer {
    pub(crate) fn new(core: Arc<TransferCore>) -> Self {
        Self { core }
    }

    /// The handle by which events name this transfer: never used twice by an agent.
    pub fn handle(&self) -> u64 {
        self.core.handle()
    }

    /// Starts the transfer, with the notification it was created with.
    ///
    /// Waits for no peer, queue, lock or socket. Small transfers ([`Settings::inline_limit`](crate::Settings)) may be copied by
    /// the calling thread.
    pub fn post(&self) -> Result<(), PostError> {
        self.core.post(self.core.notification.clone())
    }

    /// Starts the transfer with this notification instead of the one it was created with; `None` sends none.
    pub fn post_with_notification(&self, payload: Option<Vec<u8>>) -> Result<(), PostError> {
        self.core.post(payload.map(Into::into))
    }

    /// How far the transfer has come.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Waits until the transfer has ended, for as long as `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<Status, WaitTimeout> {
        self.core.wait(timeout).ok_or(WaitTimeout { waited: timeout })
    }

    /// Cancels with the time-out of the settings: see [`Transfer::cancel_within`].
    pub fn cancel(&self) -> Result<(), CancelError> {
        self.cancel_within(self.core.shared.settings.cancel_timeout)
    }

    /// Stops the transfer and waits for it to be quiet.
    ///
    /// `Ok` means that nothing of the transfer touches our memory and none of its writes can land at the peer. A transfer that
    /// has ended stays as it ended, one whose bytes are all in place goes on to `Done`.
    pub fn cancel_within(&self, timeout: Duration) -> Result<(), CancelError> {
        self.core.cancel(timeout)
    }

    /// Cancels if need be and gives the transfer up: see [`Transfer::release_within`].
    pub fn release(self) -> Result<(), ReleaseError> {
        let timeout = self.core.shared.settings.cancel_timeout;
        self.release_within(timeout)
    }

    /// Gives the transfer up once it is quiet, cancelling it if it runs. Where it does not become quiet in time, the transfer comes
    /// back in the error.
    pub fn release_within(self, timeout: Duration) -> Result<(), ReleaseError> {
        match self.core.cancel(timeout) {
            Ok(()) => Ok(()),
            Err(cause) => Err(ReleaseError { cause, transfer: self }),
        }
    }

    /// What the last attempt measured.
    pub fn telemetry(&self) -> Telemetry {
        self.core.telemetry()
    }

    /// A future that ends with the transfer. Dropping it changes nothing.
    pub fn completion(&self) -> Completion {
        Completion { core: self.core.clone() }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.core.shared.forked() {
            // What the parent's threads share with us is theirs: not even its locks can be trusted here.
            return std::mem::forget(self.core.clone());
        }
        self.core.shared.transfers.remove(self.core.handle());
        self.core.begin_cancel();
        self.core.peer.forget_transfer(self.core.handle());
    }
}

/// Ends with the [`Status`] that a transfer ends with.
#[derive(Debug)]
pub struct Completion {
    core: Arc<TransferCore>,
}

impl Future for Completion {
    type Output = Status;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Status> {
        let mut waiters = self.core.arm();
        let status = self.core.status();
        if status.is_final() {
            return Poll::Ready(status);
        }
        if !waiters.iter().any(|w| w.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The engine's side of a transfer.
pub(crate) struct TransferCore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Arc<Peer>,
    handle: OnceLock<u64>,
    plan: Arc<Plan>,
    local: Arc<[Arc<LocalRegion>]>,
    remote: Arc<[RemoteRef]>,
    notification: Option<Arc<[u8]>>,
    word: StateWord,
    /// An attempt, in the upper half, and how many of its operations are not done yet.
    pending: AtomicU64,
    /// What the link carries it by, and the channel of that link.
    ops: RwLock<Arc<[Arc<dyn LinkOp>]>>,
    admitted: AtomicU64,
    /// What this attempt sends when its data is visible, with its reserved room in the peer's inbox.
    /// The attempt stands beside it: the next may be posted before the end of this one is seen to.
    outgoing: Mutex<Option<(u32, Reservation)>>,
    fault: Mutex<Option<(u32, Arc<TransferFault>)>>,
    queue: Option<WeakQueue>,
    timing: Timing,
    has_waiters: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
    changed: Condvar,
}

/// What a [`TransferCore`] is made from.
pub(crate) struct NewTransfer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) plan: Plan,
    pub(crate) local: Arc<[Arc<LocalRegion>]>,
    pub(crate) remote: Arc<[RemoteRef]>,
    pub(crate) options: TransferOptions,
}

impl TransferCore {
    pub(crate) fn new(new: NewTransfer) -> Arc<Self> {
        Arc::new(Self {
            shared: new.shared,
            peer: new.peer,
            handle: OnceLock::new(),
            plan: Arc::new(new.plan),
            local: new.local,
            remote: new.remote,
            notification: new.options.notification.map(Into::into),
            word: StateWord::new(),
            pending: AtomicU64::new(0),
            ops: RwLock::new(Arc::new([])),
            admitted: AtomicU64::new(0),
            outgoing: Mutex::new(None),
            fault: Mutex::new(None),
            queue: new.options.queue.as_ref().map(CompletionQueue::downgrade),
            timing: Timing::default(),
            has_waiters: AtomicBool::new(false),
            waiters: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        })
    }

    /// The handle; 0 before the transfer is in the table.
    pub(crate) fn handle(&self) -> u64 {
        self.handle.get().copied().unwrap_or_default()
    }

    /// Gives the transfer its handle. Once, before anybody else sees it.
    pub(crate) fn name(&self, handle: u64) {
        let _ = self.handle.set(handle);
    }

    /// Has a link take the transfer on. May block for a while.
    pub(crate) fn admit(self: &Arc<Self>, link: &dyn Link, channel: u64) -> Result<(), AdmitError> {
        let sink = Arc::downgrade(&(self.clone() as Arc<dyn OpSink>));
        let ops = link.admit(OpRequest {
            op: self.plan.op(),
            plan: self.plan.clone(),
            share: Share::Whole,
            local: self.local.clone(),
            remote: self.remote.clone(),
            sink,
        })?;
        *self.ops.write().unwrap_or_else(|e| e.into_inner()) = ops.into();
        self.admitted.store(channel, SeqCst);
        Ok(())
    }

    /// Has the link that the peer has now take the transfer on, unless that is done or an attempt is not quiet.
    pub(crate) fn admit_anew(self: &Arc<Self>) {
        let Some((link, channel)) = self.peer.link() else { return };
        if self.admitted.load(SeqCst) == channel || !self.word.snapshot().is_quiet() {
            return;
        }
        if let Err(error) = self.admit(&*link, channel) {
            tracing::debug!(target: "kvferry::transfer", peer = %self.peer.name, "not ready for the new link: {error:?}");
        }
    }

    fn ops(&self) -> Arc<[Arc<dyn LinkOp>]> {
        self.ops.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// The route of most bytes.
    pub(crate) fn route(&self) -> Option<Route> {
        self.ops().iter().max_by_key(|op| op.bytes()).map(|op| op.route())
    }

    fn post(self: &Arc<Self>, notification: Option<Arc<[u8]>>) -> Result<(), PostError> {
        let begun = Instant::now();
        if self.shared.forked() {
            return Err(PostError::Forked);
        }
        if let Some(cause) = self.peer.gone() {
            return Err(PostError::Fault(cause));
        }
        if self.peer.channel() != Some(self.admitted.load(SeqCst)) {
            return Err(PostError::Fault(self.on_another_link()));
        }
        let slot = self.peer.take_slot(self.shared.settings.queue_depth)?;
        let reserved = notification.map(|n| self.peer.reserve(n.to_vec())).transpose()?;
        let (attempt, ops) = {
            // Whoever ends the attempt takes this lock, and so does who posts the next one: a cancel at this moment must not let
            // a later attempt begin whose notification and count of operations would be overwritten here.
            let mut outgoing = crate::lock(&self.outgoing);
            let Ok(attempt) = self.word.post() else {
                return Err(PostError::Active);
            };
            crate::testing::pause(crate::testing::Point::Posted);
            // From here on the attempt is ours: what it holds is given back when it ends.
            slot.keep();
            *outgoing = reserved.map(|r| (attempt, r));
            self.shared.counters.in_flight.fetch_add(1, Relaxed);
            self.timing.start();
            let ops = self.ops();
            self.pending.store(u64::from(attempt) << 32 | ops.len() as u64, SeqCst);
            (attempt, ops)
        };
        for op in ops.iter() {
            if !self.word.enter(attempt) {
                break;
            }
            crate::testing::pause(crate::testing::Point::BeforeSubmit);
            if op.submit(attempt).is_err() {
                self.end(attempt, Phase::Cancelled);
                self.stop(attempt);
                self.word.exit();
                self.wake();
                return Err(PostError::Backlog { depth: self.shared.settings.queue_depth });
            }
        }
        if ops.is_empty() && self.word.enter(attempt) {
            self.word.exit();
            self.landed(attempt);
        }
        // The peer may have gone between the look above and the word: whoever is second sees the other.
        if let Some(cause) = self.peer.gone() {
            self.fail(cause);
        }
        // What has ended the attempt before its operations were submitted has asked none of them to stop.
        self.stop(attempt);
        self.timing.posted(begun.elapsed());
        Ok(())
    }

    /// Asks the operations of an attempt that has ended to stop, unless it is quiet: they may be those of the next attempt then.
    fn stop(&self, attempt: u32) {
        if self.word.hold(attempt) {
            self.ops().iter().for_each(|op| op.request_cancel());
            self.word.exit();
            self.wake();
        }
    }

    /// The link that the transfer was made ready for is lost: makes it ready for the new one, if there is one.
    fn on_another_link(self: &Arc<Self>) -> FaultCause {
        if self.peer.channel().is_some() {
            let core = self.clone();
            let started = kvferry_sys::spawn_quiet("kvferry-admit", move || core.admit_anew());
            if let Err(error) = started {
                tracing::warn!(target: "kvferry::transfer", "no thread to make a transfer ready: {error}");
            }
        }
        let detail = "it is being made ready for a new one: post again".into();
        FaultCause::LinkLost { peer: self.peer.name.clone(), detail }
    }

    pub(crate) fn status(&self) -> Status {
        if self.shared.forked() {
            return Status::Failed(Arc::new(self.fault_of(FaultCause::Forked)));
        }
        let now = self.word.snapshot();
        self.status_of(now.attempt, now.phase)
    }

    fn status_of(&self, attempt: u32, phase: Phase) -> Status {
        match phase {
            Phase::Created => Status::Created,
            Phase::Posted => Status::Posted,
            Phase::Running | Phase::Landed => Status::Running,
            Phase::Done => Status::Done,
            Phase::Cancelled => Status::Cancelled,
            Phase::Failed => Status::Failed(self.fault_of_attempt(attempt)),
        }
    }

    fn fault_of_attempt(&self, attempt: u32) -> Arc<TransferFault> {
        // The cause is written before the phase, so it is there, unless the next attempt has failed as well by now.
        let fault = crate::lock(&self.fault).clone();
        let fault = fault.filter(|(of, _)| *of >= attempt).map(|(_, fault)| fault);
        fault.unwrap_or_else(|| Arc::new(self.fault_of(FaultCause::Closed)))
    }

    fn fault_of(&self, cause: FaultCause) -> TransferFault {
        let op = match self.plan.op() {
            Op::Read => "read",
            Op::Write => "write",
        };
        let (blocks, bytes) = (self.plan.blocks(), self.plan.bytes());
        TransferFault { op, peer: self.peer.name.clone(), blocks, bytes, cause }
    }

    /// Ends the transfer as failed if it is active.
    pub(crate) fn fail(&self, cause: FaultCause) {
        let now = self.word.snapshot();
        if matches!(now.phase, Phase::Posted | Phase::Running | Phase::Landed) {
            self.fail_attempt(now.attempt, cause);
        }
    }

    fn fail_attempt(&self, attempt: u32, cause: FaultCause) {
        let code = cause.code();
        {
            // The first cause of an attempt stands; a late cause of an earlier attempt must not mask it.
            let mut fault = crate::lock(&self.fault);
            if fault.as_ref().is_some_and(|(of, _)| *of >= attempt) {
                return;
            }
            *fault = Some((attempt, Arc::new(self.fault_of(cause))));
        }
        if self.end(attempt, Phase::Failed) {
            self.shared.counters.failed(code);
            self.stop(attempt);
        }
    }

    /// Starts the cancel of an active transfer.
    pub(crate) fn begin_cancel(&self) {
        if let Some(attempt) = self.word.cancel() {
            self.ended(attempt, Phase::Cancelled);
            self.shared.counters.cancels.fetch_add(1, Relaxed);
            self.stop(attempt);
        }
    }

    fn cancel(&self, timeout: Duration) -> Result<(), CancelError> {
        if self.shared.forked() {
            return Err(CancelError::Forked);
        }
        let deadline = Instant::now() + timeout;
        self.begin_cancel();
        let mut pause = Duration::from_micros(50);
        loop {
            if self.is_quiet() {
                return Ok(());
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.unquiet(timeout));
            }
            let waiters = self.arm();
            if self.word.snapshot().inflight > 0 {
                // What another process must do is not signalled to us: look again soon.
                let _ = self.changed.wait_timeout(waiters, pause.min(deadline - now));
                pause = (pause * 2).min(Duration::from_millis(2));
            }
        }
    }

    /// Whether nothing of the last attempt touches memory any more, looking once more where only looking can tell.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ops().iter().for_each(|op| op.poll_quiet());
        self.word.snapshot().inflight == 0
    }

    fn unquiet(&self, waited: Duration) -> CancelError {
        let peer = self.peer.name.clone();
        let residue = self.ops().iter().map(|op| op.residue()).max().unwrap_or(Residue::Discarded);
        match residue {
            Residue::Discarded => {
                self.shared.counters.fences.fetch_add(1, Relaxed);
                CancelError::Fenced { peer, waited }
            }
            Residue::Peer => CancelError::StillRunning { by: format!("peer {peer:?}"), waited },
            Residue::ThisProcess => CancelError::StillRunning { by: "this process".into(), waited },
        }
    }

    pub(crate) fn wait(&self, timeout: Duration) -> Option<Status> {
        let status = self.status();
        if status.is_final() {
            return Some(status);
        }
        let deadline = Instant::now().checked_add(timeout);
        self.ops().iter().for_each(|op| op.assist(ASSIST.min(timeout)));
        // A short spin catches the small transfers without a trip through the kernel.
        for _ in 0..64 {
            let status = self.status();
            if status.is_final() {
                return Some(status);
            }
            std::hint::spin_loop();
        }
        let mut waiters = crate::lock(&self.waiters);
        loop {
            // Anew each time: the wake-up that brought us here may have been for a step before the last.
            self.want_wake();
            let status = self.status();
            if status.is_final() {
                return Some(status);
            }
            let left = match deadline {
                Some(deadline) => deadline.checked_duration_since(Instant::now())?,
                None => Duration::from_secs(3600),
            };
            waiters = self.changed.wait_timeout(waiters, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }

    pub(crate) fn telemetry(&self) -> Telemetry {
        self.timing.read(self.plan.blocks(), self.plan.bytes(), self.route())
    }

    /// Counts an operation of an attempt as done: whether it was the last. Once it has left the word, the attempt may have been
    /// cancelled, and the count be that of the next one.
    fn is_last(&self, attempt: u32) -> bool {
        let is_ours = |pending: u64| (pending >> 32) as u32 == attempt && pending as u32 > 0;
        let one_less = |pending: u64| is_ours(pending).then(|| pending - 1);
        self.pending.fetch_update(SeqCst, SeqCst, one_less).is_ok_and(|before| before as u32 == 1)
    }

    /// The data of an attempt is visible at its destination: notify, or be done.
    fn landed(self: &Arc<Self>, attempt: u32) {
        if crate::lock(&self.outgoing).as_ref().is_none_or(|(of, _)| *of != attempt) {
            self.end(attempt, Phase::Done);
            return;
        }
        crate::testing::pause(crate::testing::Point::BeforeNotify);
        // From here on the notification goes out: no cancel holds it back any more.
        if self.word.land(attempt)
            && let Some(reservation) = self.take_outgoing(attempt)
        {
            let token = NotifyToken { transfer: self.clone(), attempt };
            self.shared.mailbox.send(Command::Notify {
                peer: self.peer.clone(),
                reservation,
                token: Some(token),
            });
        }
    }

    /// Moves the attempt to its end, if nobody else has.
    fn end(&self, attempt: u32, phase: Phase) -> bool {
        let first = self.word.finish(attempt, phase);
        if first {
            self.ended(attempt, phase);
        }
        first
    }

    /// What there is to do once when an attempt has ended.
    fn ended(&self, attempt: u32, phase: Phase) {
        self.peer.return_slot();
        // Gives the room for an unsent notification back.
        drop(self.take_outgoing(attempt));
        self.shared.counters.in_flight.fetch_sub(1, Relaxed);
        if phase == Phase::Done {
            for op in self.ops().iter() {
                let route = op.route();
                self.shared.counters.done(route.path, route.mechanism, op.bytes());
            }
        }
        if let Some(queue) = self.queue.as_ref().and_then(WeakQueue::upgrade) {
            let status = self.status_of(attempt, phase);
            queue.push(Event::Completed { transfer: self.handle(), status });
        }
        self.wake();
    }

    fn take_outgoing(&self, attempt: u32) -> Option<Reservation> {
        crate::lock(&self.outgoing).take_if(|(of, _)| *of == attempt).map(|(_, reservation)| reservation)
    }

    fn arm(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        let waiters = crate::lock(&self.waiters);
        self.want_wake();
        waiters
    }

    /// Asks for the next wake-up. Look at the state after it, with the lock of the waiters held.
    fn want_wake(&self) {
        self.has_waiters.store(true, SeqCst);
        fence(SeqCst);
    }

    fn wake(&self) {
        fence(SeqCst);
        if self.has_waiters.swap(false, SeqCst) {
            let wakers = std::mem::take(&mut *crate::lock(&self.waiters));
            self.changed.notify_all();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl OpSink for TransferCore {
    fn done(self: Arc<Self>, attempt: u32, report: OpReport) {
        self.timing.finished(report);
        self.word.exit();
        if self.is_last(attempt) {
            self.landed(attempt);
        }
        self.wake();
    }

    fn failed(self: Arc<Self>, attempt: u32, cause: FaultCause) {
        self.fail_attempt(attempt, self.peer.cause_of_revocation(cause));
    }

    fn quiet(self: Arc<Self>, _attempt: u32) {
        self.word.exit();
        self.wake();
    }
}

impl fmt::Debug for TransferCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("handle", &self.handle())
            .field("op", &self.plan.op())
            .field("peer", &self.peer.name)
            .field("blocks", &self.plan.blocks())
            .field("bytes", &self.plan.bytes())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

/// Names the attempt that a notification belongs to.
///
/// It holds the transfer: one that was given up while its notification was on the way still has to come to its end.
#[derive(Clone, Debug)]
pub(crate) struct NotifyToken {
    transfer: Arc<TransferCore>,
    attempt: u32,
}

impl NotifyToken {
    /// The peer's engine has the notification.
    pub(crate) fn acknowledged(&self) {
        self.transfer.end(self.attempt, Phase::Done);
    }

    /// The notification was not sent, or it is not known whether the peer has it.
    pub(crate) fn lost(&self, detail: &str) {
        let peer = self.transfer.peer.name.clone();
        self.transfer.fail_attempt(self.attempt, FaultCause::LinkLost { peer, detail: detail.into() });
    }
}
