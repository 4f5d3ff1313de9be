//! The contract between the engine and what moves bytes.
//!
//! A [`Transport`] knows one way of reaching peers. For each peer it attaches over the engine's control channel and becomes
//! a [`Link`]; for each transfer the link admits a [`LinkOp`]. There is no progress call: a link has its own threads or
//! descriptors and reports to the [`OpSink`] of each operation.
//!
//! The word that the contract turns on is *quiet*: an operation is quiet when nothing of it touches local memory any more
//! and none of its writes can land at the peer. [`LinkOp::request_cancel`] only asks; quiet alone frees memory.

use std::{
    collections::HashSet,
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Weak, atomic::AtomicBool},
    time::{Duration, Instant},
};

use kvferry_proto::{ChannelKey, Incarnation, Op, Plan, Reach, RemoteRegion, RevokeScope};

use crate::{
    error::{ConnectError, FaultCause},
    path::{Path, PathReport, Route, WhyNot},
    region::LocalRegion,
    settings::Settings,
};

mod clock;
pub(crate) mod joint;
pub(crate) mod same_host;
pub(crate) mod tcp;

pub(crate) use clock::Clock;

/// One way of reaching peers.
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// The path that links of this transport belong to.
    fn path(&self) -> Path;

    /// The mechanisms by which peers can reach a region, with their keys, as they go into the metadata blob.
    fn reach(&self, region: &LocalRegion) -> Vec<Reach>;

    /// Begins to attach to a peer whose control channel has proven the capability.
    ///
    /// Runs on the control thread: must not block.
    fn attach(&self, context: AttachContext) -> Result<Box<dyn Attach>, ConnectError>;
}

/// What a transport learns about the peer that it attaches to.
#[derive(Clone, Debug)]
pub struct AttachContext {
    /// Our own incarnation.
    pub ours: Incarnation,
    /// The peer's incarnation.
    pub theirs: Incarnation,
    /// Whether we opened the channel (and will start transfers over it).
    pub initiator: bool,
    /// Sends to the transport at the other end of the control channel.
    pub outbox: Outbox,
    /// The peer's process id as the kernel tells it; 0 if it lives in a PID namespace that we cannot see.
    pub pid: i32,
    /// A handle to the peer's process, readable once it has ended; `None` where the kernel gives none.
    pub process: Option<Arc<OwnedFd>>,
    /// The socket of the control channel, and whether the control thread is about to hear it.
    pub control: ControlSocket,
    /// What both ends of the control channel share: the key of whatever else belongs to it.
    pub key: Option<ChannelKey>,
    /// The peer's name, for messages.
    pub peer: String,
    /// The settings of the agent.
    pub settings: Arc<Settings>,
}

/// The socket of a control channel, as a transport may look at it.
#[derive(Clone, Debug)]
pub struct ControlSocket {
    /// The socket.
    pub fd: Arc<OwnedFd>,
    /// Set by the control thread before it reads, cleared when what it has read is carried out.
    pub listening: Arc<AtomicBool>,
}

/// An attachment under way: messages in, until there is a link.
pub trait Attach: Send {
    /// Sends what opens the attachment. Called once, before any message.
    fn start(&mut self) -> Result<Attached, ConnectError>;

    /// Handles a message of the other end's transport.
    fn message(&mut self, message: Message) -> Result<Attached, ConnectError>;

    /// Until when the attachment waits for something that it can [do without](Attach::do_without).
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// What the attachment waits for does not come, since the transport has lost it or the [deadline](Attach::deadline) has
    /// passed. `None` if it can't do without.
    fn do_without(&mut self, detail: &str) -> Option<Attached> {
        let _ = detail;
        None
    }
}

/// How far an attachment has come.
#[derive(Debug)]
pub enum Attached {
    /// More messages are needed.
    Pending,
    /// The link is ready on this side.
    Ready(Arc<dyn Link>),
}

/// A message between the two ends of a transport, carried by the control channel in order.
#[derive(Debug)]
pub struct Message {
    /// The transport's own encoding. It comes from a stranger.
    pub body: Vec<u8>,
    /// Descriptors that came along; empty over wires that carry none.
    pub fds: Vec<OwnedFd>,
}

/// A peer within reach, as one transport sees it.
pub trait Link: Send + Sync + fmt::Debug + 'static {
    /// The path of this link, or of most of it.
    fn path(&self) -> Path;

    /// Whether the peer's data comes through sockets, out of which our own threads put it into memory.
    fn has_streams(&self) -> bool {
        false
    }

    /// How each kind of pair among these regions goes, and why not better.
    fn report(&self, local: &[Arc<LocalRegion>], remote: &[RemoteRegion]) -> Vec<PathReport>;

    /// Whether the link has a way between two regions.
    fn carries(&self, local: &LocalRegion, remote: &RemoteRegion) -> bool {
        let _ = (local, remote);
        true
    }

    /// Checks that every pair of its [share](OpRequest::share) of the plan has a route and makes ready what can be made ready
    /// before the post.
    ///
    /// One transfer may become several operations, each with the blocks of one executor. May block for as long as [`Settings::connect_timeout`] (to map a peer's memory, say).
    fn admit(&self, request: OpRequest) -> Result<Vec<Arc<dyn LinkOp>>, AdmitError>;

    /// Handles a message of the other end's transport. Runs on the control thread: must not block.
    ///
    /// An error ends the link as a protocol violation.
    fn message(&self, message: Message) -> Result<(), String>;

    /// Begins to bar the peer from memory of ours: moves the revocation epoch, tells the peer (by [`Outbox::revoked`], in the
    /// order of the epochs), and returns the last epoch.
    ///
    /// The link's own operations stop touching regions that are [gone](LocalRegion::is_gone), as all of `scope` are by then,
    /// and [`Link::is_quiet`] covers those operations too, unless they run on the engine's copy threads.
    ///
    /// The engine then asks [`Link::is_quiet`] until it is.
    fn revoke(&self, scope: RevokeScope) -> u64;

    /// Whether nothing that the peer started before `epoch` can touch our memory any more.
    fn is_quiet(&self, epoch: u64) -> bool;

    /// The peer has barred us: its control frame says up to which epoch, and those of its regions that are gone have been
    /// marked so before this call. Operations go on under the new epoch if their regions live.
    ///
    /// Where the peer has no other proof than our word (no shared busy words), the answer is [`Acknowledge::Later`] until no
    /// operation of an earlier epoch can touch what is revoked.
    fn acknowledge(&self, epoch: u64, scope: &RevokeScope) -> Acknowledge;

    /// The peer says that it has carried out our revocations up to `epoch`. Proof of quiet for a link without shared words.
    fn revoke_acknowledged(&self, epoch: u64) {
        let _ = epoch;
    }

    /// The peer is dead or the channel is gone: no operation goes on, each becomes quiet as soon as it can.
    fn lost(&self, cause: FaultCause);

    /// After [`Link::lost`]: the peer has shown that its end of this link is closed, by admitting us anew or by its death.
    /// Nothing that was under way can land there any more.
    fn superseded(&self) {}

    /// Looks, after [`Link::lost`], whether all operations are quiet; true once nothing is left to look for.
    fn linger(&self) -> bool {
        true
    }

    /// A word that the kernel changes when the peer's process dies, where the transport has one.
    fn liveness(&self) -> Option<Liveness> {
        None
    }
}

/// The page and side of a peer's liveness word, with what it takes to hold our own.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// The shared page.
    pub page: Arc<kvferry_sys::LinkPage>,
    /// Our side of it.
    pub ours: kvferry_sys::Side,
}

/// Whether a revocation of the peer is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// It is: the engine tells the peer.
    Now,
    /// Not yet: the link tells the peer, by [`Outbox::applied`], in the order of the epochs.
    Later,
}

/// What a link is asked to carry.
#[derive(Clone, Debug)]
pub struct OpRequest {
    /// The direction.
    pub op: Op,
    /// The blocks on both sides, checked.
    pub plan: Arc<Plan>,
    /// What of the plan the link is to carry.
    pub share: Share,
    /// The local regions by slot of the plan's local list.
    pub local: Arc<[Arc<LocalRegion>]>,
    /// The peer's regions by slot of the plan's remote list.
    pub remote: Arc<[RemoteRef]>,
    /// Where the operation reports to, for as long as somebody listens.
    pub sink: Weak<dyn OpSink>,
}

/// The part of a plan that one link carries, by the pairs of regions that bytes move between.
#[derive(Clone, Debug, Default)]
pub enum Share {
    /// All of it.
    #[default]
    Whole,
    /// The blocks between these region slots (local, remote) only.
    Pairs(Arc<HashSet<(u32, u32)>>),
}

impl Share {
    /// Whether blocks between these region slots belong to it.
    pub fn holds(&self, local: u32, remote: u32) -> bool {
        match self {
            Self::Whole => true,
            Self::Pairs(pairs) => pairs.contains(&(local, remote)),
        }
    }

    /// The bytes of a plan that belong to it.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        match self {
            Self::Whole => plan.bytes(),
            Self::Pairs(_) => plan.bytes_between(|local, remote| self.holds(local, remote)),
        }
    }
}

/// A peer's region as a transfer holds it, with the mark that its owner has revoked it.
#[derive(Clone, Debug)]
pub struct RemoteRef {
    /// What the blob says.
    pub region: RemoteRegion,
    /// Set, once and for ever, when the owner revokes the region.
    pub revoked: Arc<AtomicBool>,
}

impl RemoteRef {
    /// Whether the owner has revoked the region.
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// Why a link does not carry a plan.
#[derive(Debug)]
pub enum AdmitError {
    /// No way between two regions of the plan.
    NoRoute {
        /// Slot of the local region.
        local: u32,
        /// Slot of the remote region.
        remote: u32,
        /// Each way, and why not.
        why_not: Vec<WhyNot>,
    },
    /// The link is gone, or did not answer in time.
    Lost(FaultCause),
}

/// One transfer on one link. It may be submitted many times, one after the other.
pub trait LinkOp: Send + Sync + fmt::Debug {
    /// Starts the copy for an attempt. Waits for no peer, queue, lock or socket.
    ///
    /// After `Ok` the sink hears [`OpSink::done`] once, or else [`OpSink::quiet`] once (after [`OpSink::failed`] or
    /// [`LinkOp::request_cancel`]).
    fn submit(&self, attempt: u32) -> Result<(), Backlog>;

    /// Called by a thread that waits for the attempt: it may help for as long as `most`, and give up earlier.
    fn assist(&self, most: Duration) {
        let _ = most;
    }

    /// Asks the attempt to stop. Returns at once, often before the operation is quiet.
    fn request_cancel(&self);

    /// Looks once more whether the operation has become quiet, where only looking can tell.
    fn poll_quiet(&self) {}

    /// What may still happen for an operation that was asked to stop and is not quiet.
    fn residue(&self) -> Residue {
        Residue::ThisProcess
    }

    /// The route of most of its bytes.
    fn route(&self) -> Route;

    /// The bytes that it moves.
    fn bytes(&self) -> u64;
}

/// What an operation that is not quiet may still do, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residue {
    /// Local memory is free; what comes late is discarded by the peer.
    Discarded,
    /// The peer may be in a copy that touches local memory.
    Peer,
    /// This process may be in a copy.
    ThisProcess,
}

/// The link's queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog;

/// What an operation tells the engine.
pub trait OpSink: Send + Sync + fmt::Debug {
    /// All bytes are where they belong and visible there; the operation is quiet.
    fn done(self: Arc<Self>, attempt: u32, report: OpReport);

    /// The operation failed and will end. It may not be quiet yet.
    fn failed(self: Arc<Self>, attempt: u32, cause: FaultCause);

    /// The operation is quiet without being done.
    fn quiet(self: Arc<Self>, attempt: u32);
}

/// What a finished operation measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpReport {
    /// From the submission to the first chunk.
    pub queued: Duration,
    /// From the first chunk to the last.
    pub copied: Duration,
    /// Segments after merging.
    pub segments: u64,
}

/// Sends transport messages through the control channel of one peer.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: crate::control::Mailbox,
    channel: u64,
    /// Whether this is the far part of a joint link, whose near part tells the peer of revocations.
    far: bool,
}

impl Outbox {
    pub(crate) fn new(sender: crate::control::Mailbox, channel: u64) -> Self {
        Self { sender, channel, far: false }
    }

    /// The same channel, for the far part of a joint link.
    pub(crate) fn far(&self) -> Self {
        Self { far: true, ..self.clone() }
    }

    /// Sends a message. Never blocks; a message to a channel that is gone is dropped.
    pub fn send(&self, body: Vec<u8>, fds: Vec<Arc<OwnedFd>>) {
        let body = if self.far { joint::Wire::Far(body).encode() } else { body };
        self.sender.send(crate::control::Command::Transport { channel: self.channel, body, fds });
    }

    /// Runs `f` on the control thread, after what was sent before.
    pub(crate) fn run(&self, f: impl FnOnce() + Send + 'static) {
        self.sender.send(crate::control::Command::Run(Box::new(f)));
    }

    /// Tells the peer what was revoked under a new epoch of our memory.
    pub fn revoked(&self, epoch: u64, scope: RevokeScope) {
        if self.far {
            return;
        }
        self.sender.send(crate::control::Command::Revoked { channel: self.channel, epoch, scope });
    }

    /// Tells the peer that what it revoked under `epoch` is carried out, after [`Acknowledge::Later`].
    pub fn applied(&self, epoch: u64) {
        self.sender.send(crate::control::Command::Applied { channel: self.channel, epoch });
    }

    /// Ends the channel, since the transport's own connection is lost: transfers fail with `link.lost`, and the initiator
    /// connects once more.
    pub fn link_lost(&self, detail: impl Into<String>) {
        let detail = detail.into();
        self.sender.send(crate::control::Command::LinkLost { channel: self.channel, detail, far: self.far });
    }

    /// Ends the channel, since the transport has seen the peer's process die.
    pub fn peer_died(&self) {
        self.sender.send(crate::control::Command::PeerDied { channel: self.channel });
    }
}
