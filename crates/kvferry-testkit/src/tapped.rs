//! A transport with a listener in its way: what [`Faulty`](crate::Faulty), [`Throttled`](crate::Throttled) and
//! [`Recording`](crate::Recording) have in common.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use kvferry::transport::{
    Acknowledge, AdmitError, Attach, AttachContext, Attached, Backlog, Link, LinkOp, Liveness, Message,
    OpReport, OpRequest, OpSink, Outbox, Residue, Transport,
};
use kvferry::{ConnectError, FaultCause, LocalRegion, Op, Path, PathReport, Route};
use kvferry_proto::{Reach, RemoteRegion, RevokeScope};

/// What goes over the border between the engine and a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// The engine attached to a peer.
    Attach {
        /// Its name.
        peer: String,
        /// Whether we opened the channel.
        initiator: bool,
    },
    /// A link is ready.
    Ready {
        /// To whom.
        peer: String,
    },
    /// A transfer was admitted.
    Admit {
        /// Numbers the requests of this tap.
        request: u64,
        /// The direction.
        op: Op,
        /// Blocks of the transfer.
        blocks: u64,
        /// Bytes of the transfer.
        bytes: u64,
        /// Operations that it became.
        ops: usize,
    },
    /// An operation was submitted.
    Submit {
        /// Of which request.
        request: u64,
        /// For which attempt.
        attempt: u32,
    },
    /// The submission just recorded was refused.
    Refused {
        /// Of which request.
        request: u64,
        /// For which attempt.
        attempt: u32,
    },
    /// An operation was asked to stop.
    Cancel {
        /// Of which request.
        request: u64,
    },
    /// An operation reported that it is done.
    Done {
        /// Of which request.
        request: u64,
        /// For which attempt.
        attempt: u32,
        /// Segments after merging.
        segments: u64,
    },
    /// An operation reported that it fails.
    Failed {
        /// Of which request.
        request: u64,
        /// For which attempt.
        attempt: u32,
        /// The code of its cause.
        code: &'static str,
    },
    /// An operation reported that it is quiet.
    Quiet {
        /// Of which request.
        request: u64,
        /// For which attempt.
        attempt: u32,
    },
    /// The engine let an operation go, running or not: nobody listens to what it reports any more.
    Dropped {
        /// Of which request.
        request: u64,
    },
    /// The engine took memory back.
    Revoke {
        /// The epoch that came of it.
        epoch: u64,
        /// What was taken back.
        scope: RevokeScope,
    },
    /// The peer took memory back.
    Acknowledge {
        /// Its epoch.
        epoch: u64,
        /// What was taken back.
        scope: RevokeScope,
    },
    /// The link was lost.
    Lost {
        /// The code of the cause.
        code: &'static str,
    },
}

/// How an operation ends, or begins to.
#[derive(Clone, Debug)]
pub enum Report {
    /// All bytes are in place.
    Done(OpReport),
    /// It failed; quiet follows.
    Failed(FaultCause),
    /// Nothing of it runs any more.
    Quiet,
}

/// Listens to a transport and may step in. All methods let everything pass unless they are overridden.
pub trait Tap: Send + Sync + fmt::Debug + Sized + 'static {
    /// Something happened.
    fn called(&self, call: Call) {
        let _ = call;
    }

    /// The engine wants to attach.
    ///
    /// # Errors
    /// It shall not.
    fn attach(&self, context: &AttachContext) -> Result<(), ConnectError> {
        let _ = context;
        Ok(())
    }

    /// A link is ready; `outbox` reaches the engine's channel below it.
    fn ready(&self, peer: &str, outbox: &Outbox) {
        let _ = (peer, outbox);
    }

    /// The engine submits an operation: pass it on, hold it, or end it.
    ///
    /// # Errors
    /// It is refused.
    fn submit(&self, op: &Arc<TappedOp<Self>>, attempt: u32) -> Result<(), Backlog> {
        op.pass(attempt)
    }

    /// An operation reports: forward it, now or later, or something else in its place.
    fn report(&self, sink: &Arc<TappedSink<Self>>, attempt: u32, report: Report) {
        sink.forward(attempt, report);
    }
}

/// Puts `tap` between the engine and `inner`.
pub fn tapped<T: Tap>(tap: &Arc<T>, inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
    Arc::new(Tapped { tap: tap.clone(), inner })
}

#[derive(Debug)]
struct Tapped<T> {
    tap: Arc<T>,
    inner: Arc<dyn Transport>,
}

impl<T: Tap> Transport for Tapped<T> {
    fn path(&self) -> Path {
        self.inner.path()
    }

    fn reach(&self, region: &LocalRegion) -> Vec<Reach> {
        self.inner.reach(region)
    }

    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError> {
        self.tap.called(Call::Attach { peer: context.peer.clone(), initiator: context.initiator });
        self.tap.attach(&context)?;
        let (peer, outbox) = (context.peer.clone(), context.outbox.clone());
        let inner = self.inner.attach(context)?;
        Ok(Box::new(TappedAttach { tap: self.tap.clone(), inner, peer, outbox }))
    }
}

struct TappedAttach<T> {
    tap: Arc<T>,
    inner: Box<dyn Attach>,
    peer: String,
    outbox: Outbox,
}

impl<T: Tap> TappedAttach<T> {
    fn wrap(&self, attached: Attached) -> Attached {
        match attached {
            Attached::Pending => Attached::Pending,
            Attached::Ready(inner) => {
                self.tap.called(Call::Ready { peer: self.peer.clone() });
                self.tap.ready(&self.peer, &self.outbox);
                Attached::Ready(Arc::new(TappedLink { tap: self.tap.clone(), inner }))
            }
        }
    }
}

impl<T: Tap> Attach for TappedAttach<T> {
    fn start(&mut self) -> Result<Attached, ConnectError> {
        let attached = self.inner.start()?;
        Ok(self.wrap(attached))
    }

    fn message(&mut self, message: Message) -> Result<Attached, ConnectError> {
        let attached = self.inner.message(message)?;
        Ok(self.wrap(attached))
    }

    fn deadline(&self) -> Option<Instant> {
        self.inner.deadline()
    }

    fn do_without(&mut self, detail: &str) -> Option<Attached> {
        let attached = self.inner.do_without(detail)?;
        Some(self.wrap(attached))
    }
}

#[derive(Debug)]
struct TappedLink<T> {
    tap: Arc<T>,
    inner: Arc<dyn Link>,
}

impl<T: Tap> Link for TappedLink<T> {
    fn path(&self) -> Path {
        self.inner.path()
    }

    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }

    fn report(&self, local: &[Arc<LocalRegion>], remote: &[RemoteRegion]) -> Vec<PathReport> {
        self.inner.report(local, remote)
    }

    fn carries(&self, local: &LocalRegion, remote: &RemoteRegion) -> bool {
        self.inner.carries(local, remote)
    }

    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError> {
        static REQUESTS: AtomicU64 = AtomicU64::new(1);
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed);
        let (op, blocks, bytes) = (request.op, request.plan.blocks(), request.plan.bytes());
        let sink = Arc::new(TappedSink { tap: self.tap.clone(), outer: request.sink.clone(), number });
        let weak = Arc::downgrade(&(sink.clone() as Arc<dyn OpSink>));
        let inner = self.inner.admit(OpRequest { sink: weak, ..request })?;
        self.tap.called(Call::Admit { request: number, op, blocks, bytes, ops: inner.len() });
        let wrap = |inner| -> Arc<dyn LinkOp> {
            Arc::new_cyclic(|me| TappedOp {
                me: me.clone(),
                sink: sink.clone(),
                inner,
                held: Mutex::new(Held::Nothing),
            })
        };
        Ok(inner.into_iter().map(wrap).collect())
    }

    fn message(&self, message: Message) -> Result<(), String> {
        self.inner.message(message)
    }

    fn revoke(&self, scope: RevokeScope) -> u64 {
        let epoch = self.inner.revoke(scope.clone());
        self.tap.called(Call::Revoke { epoch, scope });
        epoch
    }

    fn is_quiet(&self, epoch: u64) -> bool {
        self.inner.is_quiet(epoch)
    }

    fn acknowledge(&self, epoch: u64, scope: &RevokeScope) -> Acknowledge {
        self.tap.called(Call::Acknowledge { epoch, scope: scope.clone() });
        self.inner.acknowledge(epoch, scope)
    }

    fn revoke_acknowledged(&self, epoch: u64) {
        self.inner.revoke_acknowledged(epoch);
    }

    fn superseded(&self) {
        self.inner.superseded();
    }

    fn lost(&self, cause: FaultCause) {
        self.tap.called(Call::Lost { code: cause.code() });
        self.inner.lost(cause);
    }

    fn linger(&self) -> bool {
        self.inner.linger()
    }

    fn liveness(&self) -> Option<Liveness> {
        self.inner.liveness()
    }
}

/// An operation of the transport below.
#[derive(Debug)]
pub struct TappedOp<T: Tap> {
    me: Weak<Self>,
    sink: Arc<TappedSink<T>>,
    inner: Arc<dyn LinkOp>,
    held: Mutex<Held>,
}

#[derive(Debug)]
enum Held {
    Nothing,
    /// This attempt is held back.
    Attempt(u32),
    /// An attempt is on its way to the transport below, which may not know of it yet.
    Passing {
        cancel: bool,
    },
}

impl<T: Tap> TappedOp<T> {
    /// Where it reports to.
    pub fn sink(&self) -> &Arc<TappedSink<T>> {
        &self.sink
    }

    /// Submits it to the transport below.
    ///
    /// # Errors
    /// As that says.
    pub fn pass(&self, attempt: u32) -> Result<(), Backlog> {
        self.inner.submit(attempt)
    }

    /// Keeps an attempt from the transport below until [`TappedOp::let_go`]. A cancel ends it meanwhile.
    pub fn hold(&self, attempt: u32) {
        *self.held() = Held::Attempt(attempt);
    }

    /// Submits an attempt that is still held.
    ///
    /// # Errors
    /// There is no room for it; it is held again.
    pub fn let_go(&self, attempt: u32) -> Result<(), Backlog> {
        let mut held = self.held();
        if !matches!(*held, Held::Attempt(of) if of == attempt) {
            return Ok(());
        }
        *held = Held::Passing { cancel: false };
        // Not under the lock: an inline copy that fails comes back through `request_cancel`.
        drop(held);
        let submitted = self.inner.submit(attempt);
        let mut held = self.held();
        let Held::Passing { cancel } = *held else { return submitted };
        *held = match (submitted, cancel) {
            (Err(Backlog), false) => Held::Attempt(attempt),
            _ => Held::Nothing,
        };
        drop(held);
        match (submitted, cancel) {
            (Ok(()), true) => self.inner.request_cancel(),
            (Err(Backlog), true) => self.sink.clone().quiet(attempt),
            _ => return submitted,
        }
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Tap> LinkOp for TappedOp<T> {
    fn submit(&self, attempt: u32) -> Result<(), Backlog> {
        let (tap, request) = (&self.sink.tap, self.sink.number);
        let Some(me) = self.me.upgrade() else { return Err(Backlog) };
        // Before the operation, whose report may come from inside the call.
        tap.called(Call::Submit { request, attempt });
        tap.submit(&me, attempt).inspect_err(|_| tap.called(Call::Refused { request, attempt }))
    }

    fn request_cancel(&self) {
        self.sink.tap.called(Call::Cancel { request: self.sink.number });
        let mut held = self.held();
        match &mut *held {
            Held::Attempt(attempt) => {
                let attempt = *attempt;
                *held = Held::Nothing;
                drop(held);
                return self.sink.clone().quiet(attempt);
            }
            Held::Passing { cancel } => *cancel = true,
            Held::Nothing => {}
        }
        drop(held);
        self.inner.request_cancel();
    }

    fn poll_quiet(&self) {
        self.inner.poll_quiet();
    }

    fn residue(&self) -> Residue {
        self.inner.residue()
    }

    fn route(&self) -> Route {
        self.inner.route()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

impl<T: Tap> Drop for TappedOp<T> {
    fn drop(&mut self) {
        self.sink.tap.called(Call::Dropped { request: self.sink.number });
    }
}

/// Where the operations of one transfer report to.
#[derive(Debug)]
pub struct TappedSink<T: Tap> {
    tap: Arc<T>,
    outer: Weak<dyn OpSink>,
    number: u64,
}

impl<T: Tap> TappedSink<T> {
    /// Tells the engine.
    pub fn forward(&self, attempt: u32, report: Report) {
        let request = self.number;
        self.tap.called(match &report {
            Report::Done(report) => Call::Done { request, attempt, segments: report.segments },
            Report::Failed(cause) => Call::Failed { request, attempt, code: cause.code() },
            Report::Quiet => Call::Quiet { request, attempt },
        });
        let Some(outer) = self.outer.upgrade() else { return };
        match report {
            Report::Done(report) => outer.done(attempt, report),
            Report::Failed(cause) => outer.failed(attempt, cause),
            Report::Quiet => outer.quiet(attempt),
        }
    }
}

impl<T: Tap> OpSink for TappedSink<T> {
    fn done(self: Arc<Self>, attempt: u32, report: OpReport) {
        self.tap.report(&self, attempt, Report::Done(report));
    }

    fn failed(self: Arc<Self>, attempt: u32, cause: FaultCause) {
        self.tap.report(&self, attempt, Report::Failed(cause));
    }

    fn quiet(self: Arc<Self>, attempt: u32) {
        self.tap.report(&self, attempt, Report::Quiet);
    }
}
