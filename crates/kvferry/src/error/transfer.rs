use std::time::Duration;

use kvferry_proto::{ListError, PlanError, RegionId};

use super::{ConnectError, LostCause};
use crate::{codes, path::WhyNot, transfer::Transfer};

/// Why a list of blocks could not be prepared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// A block is not inside a region, or is no block at all.
    #[error("{side} {source} ({})", list_code(source))]
    List {
        /// `local` or `remote`.
        side: &'static str,
        /// The first bad block.
        #[source]
        source: ListError,
    },
    /// A region was deregistered while the list was being prepared.
    #[error("{side} region {region} was just deregistered (prepare.stale)")]
    Deregistered {
        /// `local` or `remote`.
        side: &'static str,
        /// The region.
        region: RegionId,
    },
    /// No metadata of that name is loaded.
    #[error("no metadata of peer {0:?} is loaded (peer.unknown)")]
    UnknownPeer(String),
    /// The process forked.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl PrepareError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::List { source, .. } => list_code(source),
            Self::Deregistered { .. } => "prepare.stale",
            Self::UnknownPeer(_) => "peer.unknown",
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

fn list_code(error: &ListError) -> &'static str {
    match error {
        ListError::ZeroLength { .. } => "prepare.zero_length",
        ListError::Kind { .. } => "prepare.kind",
        _ => "prepare.bounds",
    }
}

/// Why a transfer could not be created.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The indices or the blocks of the two sides do not go together.
    #[error("{source} ({})", plan_code(source))]
    Plan {
        /// What does not fit.
        #[source]
        source: PlanError,
    },
    /// A flat list could not be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A list was given for the wrong side, or belongs to another agent.
    #[error("the {side} list {detail} (transfer.wrong_side)")]
    WrongSide {
        /// `local` or `remote`.
        side: &'static str,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// A region of a list is gone.
    #[error("the {side} list is stale: {detail} (transfer.stale_list)")]
    StaleList {
        /// `local` or `remote`.
        side: &'static str,
        /// What happened.
        detail: String,
    },
    /// The peer is not within reach.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No allowed way between two regions.
    #[error("no way between our {local} and {remote}: {} (transfer.no_path)", super::connect::list(why_not))]
    NoPath {
        /// Our region.
        local: String,
        /// The peer's region.
        remote: String,
        /// Each way, and why not.
        why_not: Vec<WhyNot>,
    },
    /// The peer or the link was lost before the transfer was made ready.
    #[error("{0}")]
    Lost(#[source] FaultCause),
}

impl TransferError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Plan { source } => plan_code(source),
            Self::Prepare(e) => e.code(),
            Self::WrongSide { .. } => "transfer.wrong_side",
            Self::StaleList { .. } => "transfer.stale_list",
            Self::Connect(e) => e.code(),
            Self::NoPath { .. } => "transfer.no_path",
            Self::Lost(cause) => cause.code(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

fn plan_code(error: &PlanError) -> &'static str {
    match error {
        PlanError::Index { .. } => "transfer.index",
        PlanError::Length { .. } => "transfer.length_mismatch",
        PlanError::Overlap { .. } => "transfer.overlap",
        _ => "transfer.count_mismatch",
    }
}

/// Why a transfer was not posted. It can be posted again later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// It runs, or its last attempt still touches memory.
    #[error("the transfer is still active (post.active)")]
    Active,
    /// Too many posted transfers wait.
    #[error("{depth} transfers are posted already: the queue is full (post.backlog)")]
    Backlog {
        /// Its bound.
        depth: usize,
    },
    /// The peer's inbox has no room for the notification.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// A region is gone, the link was lost, or the peer.
    #[error("{0}")]
    Fault(FaultCause),
    /// The process forked.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl PostError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Active => "post.active",
            Self::Backlog { .. } => "post.backlog",
            Self::Notify(e) => e.code(),
            Self::Fault(cause) => cause.code(),
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// Why a notification was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The peer's application has not drained its inbox.
    #[error("the inbox of peer {peer:?} has no room for {bytes} more bytes (notify.backlog)")]
    Backlog {
        /// The peer.
        peer: String,
        /// What was to be sent.
        bytes: usize,
    },
    /// The payload is longer than a notification may be.
    #[error("a notification of {bytes} bytes is longer than {max} (notify.too_large)")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The peer is not within reach. (Boxed, since it carries the whole story.)
    #[error("{text}")]
    Unreachable {
        /// Its code.
        code: &'static str,
        /// Its text.
        text: String,
    },
}

impl NotifyError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Backlog { .. } => "notify.backlog",
            Self::TooLarge { .. } => "notify.too_large",
            Self::Unreachable { code, .. } => code,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

impl From<ConnectError> for NotifyError {
    fn from(error: ConnectError) -> Self {
        Self::Unreachable { code: error.code(), text: error.to_string() }
    }
}

/// Which side's memory a fault was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSide {
    /// Our memory.
    Local,
    /// The peer's memory.
    Remote,
    /// One of the two; the kernel did not tell.
    Unknown,
}

impl std::fmt::Display for FaultSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Unknown => "local or remote",
        })
    }
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultCause {
    /// The peer is gone.
    #[error("peer {peer:?} was lost: {cause} (peer.lost)")]
    PeerLost {
        /// The peer.
        peer: String,
        /// How.
        cause: LostCause,
    },
    /// Another incarnation has taken the peer's name.
    #[error("peer restarted: another incarnation of {peer:?} was loaded (peer.restarted)")]
    PeerRestarted {
        /// The peer.
        peer: String,
    },
    /// The channel to the peer broke; its metadata stays.
    #[error("the link to peer {peer:?} was lost: {detail} (link.lost)")]
    LinkLost {
        /// The peer.
        peer: String,
        /// What happened to the channel.
        detail: String,
    },
    /// Memory of a registered region is not mapped any more.
    #[error("{side} memory is not mapped at 0x{addr:x} (block {block}) (region.unmapped)")]
    Unmapped {
        /// Whose memory.
        side: FaultSide,
        /// Position of the block in the transfer (the first of those merged).
        block: u64,
        /// Its address on that side, in the owner's address space.
        addr: u64,
    },
    /// A region was deregistered.
    #[error("a {side} region of the transfer was deregistered (region.revoked)")]
    Revoked {
        /// Whose region.
        side: FaultSide,
    },
    /// The kernel refuses to copy between the two processes.
    #[error("the kernel refuses to copy: {detail} (transfer.no_path)")]
    Denied {
        /// The cause, where it could be named.
        detail: String,
    },
    /// The peer copies for us and reports a fault.
    #[error("the peer, which copies for us, reports: {detail} (transfer.executor)")]
    Executor {
        /// Its words.
        detail: String,
    },
    /// The agent was closed.
    #[error("the agent is closed (agent.closed)")]
    Closed,
    /// The process forked: the transfer goes on in the parent.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
}

impl FaultCause {
    /// The stable code of this cause.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PeerLost { .. } => "peer.lost",
            Self::PeerRestarted { .. } => "peer.restarted",
            Self::LinkLost { .. } => "link.lost",
            Self::Unmapped { .. } => "region.unmapped",
            Self::Revoked { .. } => "region.revoked",
            Self::Denied { .. } => "transfer.no_path",
            Self::Executor { .. } => "transfer.executor",
            Self::Closed => "agent.closed",
            Self::Forked => "agent.forked",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// A failed transfer: what, where, why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} of {blocks} blocks, {} with peer {peer:?} failed: {cause}", kvferry_proto::human_size(*bytes))]
#[non_exhaustive]
pub struct TransferFault {
    /// `read` or `write`.
    pub op: &'static str,
    /// The peer.
    pub peer: String,
    /// Blocks of the transfer.
    pub blocks: u64,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Why.
    #[source]
    pub cause: FaultCause,
}

impl TransferFault {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        self.cause.code()
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// Why a cancel has not ended: the transfer's memory cannot be vouched for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// Our memory is free, but the peer has not said that it discards the rest. What may come late is discarded there.
    #[error(
        "the transfer is fenced: local memory is free, peer {peer:?} has not confirmed within {waited:?} (cancel.fenced)"
    )]
    Fenced {
        /// The peer.
        peer: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The process forked: the transfer goes on in the parent, and so does its memory.
    #[error("this process was forked from the one that built the agent (agent.forked)")]
    Forked,
    /// A system call that moves bytes of the transfer has not come back: its memory stays held. Call again.
    #[error(
        "the transfer still runs after {waited:?}: a copy by {by} has not come back, its memory stays held (cancel.still_running)"
    )]
    StillRunning {
        /// `this process` or the peer.
        by: String,
        /// How long was waited.
        waited: Duration,
    },
}

impl CancelError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "cancel.fenced",
            Self::Forked => "agent.forked",
            Self::StillRunning { .. } => "cancel.still_running",
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// A transfer that could not be released; it comes back so that nothing is lost.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct ReleaseError {
    /// Why.
    #[source]
    pub cause: CancelError,
    /// The transfer, to try again with.
    pub transfer: Transfer,
}

impl ReleaseError {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        self.cause.code()
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}

/// A transfer that has not ended in the time given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transfer has not ended within {waited:?} (wait.timeout)")]
pub struct WaitTimeout {
    /// The time given.
    pub waited: Duration,
}

impl WaitTimeout {
    /// The stable code of this error.
    pub fn code(&self) -> &'static str {
        "wait.timeout"
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        codes::remedy(self.code())
    }
}
